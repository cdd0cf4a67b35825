"""The knowledge base of `notes` with branches, commits and conflicts: the states `topic` and
`conflict` of tests/contract/_common.yaml.

A test module takes the fixtures with `template, notes, tools = branching.template, branching.notes,
branching.tools`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import notes as states
from tests.support.compare import assert_whole
from tests.support.mcp import Tools
from tests.support.notes import TEXTS
from tests.support.terminal import Project, copied, opened
from vmrag_link.models import KbBranch, WorkingSet

__all__ = [
    "TEXTS",
    "assert_consistent",
    "changed",
    "drop",
    "kb_branches",
    "make_branch",
    "make_conflict",
    "notes",
    "put",
    "read_state",
    "template",
    "tools",
]

COLLECTION = "notes"
template = states.template


@pytest.fixture
def notes(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return copied(template, tmp_path, monkeypatch)


@pytest.fixture
def tools(notes: Project) -> Tools:
    return Tools(notes.top)


def put(project: Project, **documents: str) -> None:
    for name, text in documents.items():
        project.put(name, text, collection=COLLECTION)


def drop(project: Project, *names: str) -> None:
    for name in names:
        project.drop(name, collection=COLLECTION)


def make_branch(project: Project, tools: Tools, name: str = "topic", **documents: str | None) -> str:
    """A KB branch with a commit that stores these documents (None removes one); returns the commit.
    Back on the former branch.
    """
    before = tools("dolt_checkout", target=name, create_branch=True)["checkout_result"]["from_branch"]
    revision = changed(project, tools, f"on {name}", **documents)
    tools("dolt_checkout", target=before)
    return revision


def changed(project: Project, tools: Tools, message: str, **documents: str | None) -> str:
    """Commit documents to the current KB branch."""
    put(project, **{name: text for name, text in documents.items() if text is not None})
    drop(project, *[name for name, text in documents.items() if text is None])
    revision: str = tools("dolt_commit", message=message)["commit"]["hash"]
    return revision


def make_conflict(project: Project, tools: Tools, *names: str) -> tuple[str, str]:
    """`main` and `topic` gave these documents different texts; returns both commits."""
    theirs = make_branch(project, tools, **dict.fromkeys(names or ("a",), "theirs"))
    return changed(project, tools, "ours", **dict.fromkeys(names or ("a",), "ours")), theirs


def kb_branches(project: Project) -> dict[str, KbBranch]:
    with opened(project) as workspace:
        return {branch.name: branch for branch in workspace.engine.list_branches()}


def read_state(project: Project) -> tuple[object, ...]:
    """All that a call must leave as it is that is refused, or changes nothing."""
    pin, config = (project.top / ".dolt-version").read_bytes(), (project.top / ".git/config").read_bytes()
    merge = project.own / "merge.json"
    with opened(project) as workspace:
        rows = {
            branch.name: list(workspace.engine.read_documents(WorkingSet(branch.name)))
            for branch in workspace.engine.list_branches()
        }
    return pin, config, project.git("status", "--porcelain"), kb_branches(project), rows, merge.exists()


def assert_consistent(project: Project, tmp_path: Path) -> None:
    scratch = tmp_path / f"scratch-{len(list(tmp_path.glob('scratch-*')))}"
    scratch.mkdir()
    assert_whole(project, scratch)
    assert project.status()["state"] == "in_sync"
