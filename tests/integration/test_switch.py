"""`vmrag branch --switch`: the documents of a code branch are written elsewhere, and the pin goes
along as a submodule's would.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.compare import assert_whole
from tests.support.terminal import Project, opened
from vmrag_link import hints

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project


def pinned_by(project: Project, ref: str) -> str:
    return json.loads(project.git("show", f"{ref}:.dolt-version"))["dolt_commit"]


def rows(project: Project) -> dict[str, dict]:
    return {branch["name"]: branch for branch in project.ask("branch")["branches"]}


def whole(project: Project, tmp_path: Path) -> None:
    scratch = tmp_path / f"scratch-{len(list(tmp_path.glob('scratch-*')))}"
    scratch.mkdir()
    assert_whole(project, scratch)
    assert project.status()["state"] == "in_sync"


@pytest.fixture
def spare(project: Project) -> Project:
    """With a KB branch `spare` of no code branch, at what `feature` pins."""
    with opened(project) as workspace:
        workspace.engine.create_branch("spare", pinned_by(project, "feature"))
    return project


def test_other_kb_branch_is_pinned_staged_and_written(spare, tmp_path):
    before = spare.pinned
    report = spare.ask("branch", "--switch", "spare")
    assert report == report | {"code_branch": "main", "branch": "spare", "staged": True, "notes": []}
    assert report["pin"]["dolt_branch"] == "spare"
    assert spare.pinned == pinned_by(spare, "feature") == report["pin"]["dolt_commit"]
    assert spare.git("status", "--porcelain") == "M  .dolt-version"
    assert (rows(spare)["spare"]["current"], rows(spare)["main"]["code_branch"]) == (True, None)
    spare.put("note.md", "A note.")
    spare.vmrag("commit", "-m", "note")
    assert (rows(spare)["spare"]["revision"], rows(spare)["main"]["revision"]) == (spare.pinned, before)
    whole(spare, tmp_path)


def test_switch_names_documents_left_behind_and_restores_them_on_return(spare, tmp_path):
    spare.put("draft.md", "A draft.")
    said = spare.vmrag("branch", "--switch", "spare").out
    assert "vmrag branch --switch main" in said
    assert "draft.md" not in spare.texts()
    assert rows(spare)["main"]["dirty"]
    spare.put("other.md", "On spare.")
    spare.vmrag("branch", "--switch", "main")
    assert spare.marks() == {
        "setup.md": None,
        "rest.md": None,
        "deep/tls.txt": None,
        "faq.md": None,
        "draft.md": "added",
    }
    whole(spare, tmp_path)
    spare.vmrag("branch", "--switch", "spare")
    assert spare.marks()["other.md"] == "added"
    whole(spare, tmp_path)


def test_first_document_on_a_revision_creates_a_branch(project, tmp_path):
    first = pinned_by(project, "first")
    report = project.ask("branch", "--switch", first)
    assert (report["branch"], report["pin"]["dolt_commit"]) == (None, first)
    assert project.status()["kb"]["detached"]
    assert sorted(project.texts()) == ["deep/tls.txt", "rest.md", "setup.md"]
    old = rows(project)["main"]
    assert old["code_branch"] is None
    project.put("note.md", "A note.")
    new = next(row for row in rows(project).values() if row["current"])
    assert (new["name"] != "main", new["revision"], new["dirty"]) == (True, first, True)
    project.vmrag("commit", "-m", "note")
    with opened(project) as workspace:
        assert workspace.engine.read_revision(project.pinned).parents == (first,)
    assert rows(project)["main"] == old
    whole(project, tmp_path)


def test_own_branch_changes_nothing(project, tmp_path):
    before = (project.top / ".dolt-version").read_bytes()
    project.put("draft.md", "A draft.")
    report = project.ask("branch", "--switch", "main")
    assert (report["branch"], report["notes"]) == ("main", [])
    assert (project.top / ".dolt-version").read_bytes() == before
    assert project.git("status", "--porcelain") == ""
    assert project.marks()["draft.md"] == "added"
    whole(project, tmp_path)


@pytest.mark.parametrize(
    ("name", "code", "error", "hint"),
    [
        ("feature", 3, "BRANCH_IN_USE", "run 'git switch feature'"),
        ("nowhere", 3, "BRANCH_NOT_FOUND", "run 'vmrag branch' to list the KB branches"),
        ("", 3, "BRANCH_NOT_FOUND", "run 'vmrag branch' to list the KB branches"),
        ("--all", 3, "BRANCH_NOT_FOUND", "run 'vmrag branch' to list the KB branches"),
        ("0" * 40, 3, "BRANCH_NOT_FOUND", "run 'vmrag branch' to list the KB branches"),
        ("first", 3, "BRANCH_NOT_FOUND", "run 'vmrag branch' to list the KB branches"),
        ("vmrag_root", 2, "INVALID_NAME", "run 'vmrag branch' to list the KB branches"),
        ("vmrag/wip/main", 2, "INVALID_NAME", "run 'vmrag merge vmrag/wip/main' to merge it"),
    ],
)
@pytest.mark.sample(4)
def test_invalid_switch_target_changes_nothing(project, name, code, error, hint):
    if name.startswith("vmrag/"):
        project.vmrag("merge", "feature", "--no-commit")
        project.vmrag("merge", "--abort")
    before, listed = (project.top / ".dolt-version").read_bytes(), rows(project)
    failed = project.vmrag("branch", "--switch", name, "--json", code=code).error
    assert (failed["code"], hint in failed["hint"]) == (error, True)
    assert (project.top / ".dolt-version").read_bytes() == before
    assert rows(project) == listed


def test_linked_work_tree_switches_for_its_own_branch(spare, tmp_path):
    spare.git("worktree", "add", "-q", "-b", "second", str(tmp_path / "second"), "main")
    second, before = Project(tmp_path / "second"), spare.pinned
    second.vmrag("branch", "--switch", "spare")
    assert (rows(second)["spare"]["code_branch"], rows(spare)["main"]["current"]) == ("second", True)
    assert spare.vmrag("branch", "--switch", "spare", "--json", code=3).error["details"]["holder"] == "second"
    assert (spare.pinned, spare.git("status", "--porcelain")) == (before, "")
    second.put("note.md", "A note.")
    second.vmrag("commit", "-m", "note")
    whole(second, tmp_path)
    whole(spare, tmp_path)


def test_git_commit_includes_the_switch_and_a_reset_reverts_the_pin(spare, tmp_path):
    before = spare.pinned
    spare.vmrag("branch", "--switch", "spare")
    spare.git("commit", "-q", "-m", "switched")
    spare.git("switch", "-q", "feature")
    spare.git("switch", "-q", "main")
    assert rows(spare)["spare"]["current"]
    spare.git("reset", "-q", "--hard", "HEAD~1")
    assert spare.pinned == before
    spare.vmrag("sync")
    whole(spare, tmp_path)  # the KB branch follows the pin, as always
    assert rows(spare)["spare"]["revision"] == before


def test_index_lock_in_the_way_switches_nothing(spare):
    before = spare.pinned
    (spare.top / ".git/index.lock").touch()
    assert spare.vmrag("branch", "--switch", "spare", "--json", code=3).error["code"] == "GIT_BUSY"
    assert (spare.pinned, rows(spare)["main"]["current"]) == (before, True)


@pytest.mark.hooks("on")
def test_printed_command_is_quoted_for_any_branch_name(project):
    name = "x;touch${IFS}PWN"
    project.git("switch", "-q", "-c", name)
    project.put("new.md", "new")
    result = project.run("switch", "-q", "main")
    command = hints.list_commands(result.stderr)[-1]
    subprocess.run(["sh", "-c", command], cwd=project.top, check=True, capture_output=True)
    assert not (project.top / "PWN").exists()
    assert project.git("branch", "--show-current") == name
    assert project.marks()["new.md"] == "added"
