"""What tools call a commit of the knowledge base."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support import people, terminal
from tests.support.engines import document, store
from tests.support.people import World
from tests.support.terminal import Project
from vmrag_link.errors import BranchMissing, RevisionMissing
from vmrag_link.models import Working
from vmrag_link.ops.history import revparse
from vmrag_link.ops.history.revparse import branch_revision, place, revision
from vmrag_link.progress import Quiet
from vmrag_link.workspace import Workspace

template, project = terminal.template, terminal.project
shared, world = people.shared, people.world


@pytest.fixture
def ws(project: Project) -> Iterator[Workspace]:
    made = Workspace.open(project.top, Quiet())
    made.reconcile()
    yield made
    made.close()


def test_heads_hashes_branches_and_steps_back(project: Project, ws: Workspace) -> None:
    head = project.pinned
    first = project.ask("log")["revisions"][1]["revision"]
    for name in ("HEAD", head, head[:4], head[:12], head.upper()[:12], "main", "HEAD~0", "refs/heads/main"):
        assert revision(ws, name) == head, name
    for name in ("HEAD~1", "HEAD~", "HEAD^", "main~1", f"{head[:8]}~1", "feature~1", "first", "refs/tags/first"):
        assert revision(ws, name) == first, name
    root = revision(ws, "HEAD~2")
    assert revision(ws, "HEAD~1~1") == revision(ws, "first~1") == root
    assert revision(ws, project.git("rev-parse", "first")) == first  # what that code commit pins


@pytest.mark.parametrize(
    "name",
    [
        "absent",
        "0" * 40,
        "0" * 32,
        "HEAD~3",
        "HEAD~99999999999",
        "~1",
        "abc",
        "HEAD@{1}",
        "main:docs",
        "-x",
        "\0",
        "WORKING",
    ],
)
def test_what_names_nothing_is_no_commit(ws: Workspace, name: str) -> None:
    with pytest.raises(RevisionMissing):
        revision(ws, name)
    with pytest.raises(BranchMissing):
        branch_revision(ws, name)


def test_the_beginning_of_a_hash_of_git_is_none(project: Project, ws: Workspace) -> None:
    with pytest.raises(RevisionMissing):
        revision(ws, project.git("rev-parse", "HEAD")[:12])


def test_an_ambiguous_beginning_is_told_with_its_candidates(ws: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revparse, "SHORTEST_HASH", 1)  # among more than sixteen, two begin alike
    made = [store(ws.engine, "feature", document(f"d{number}")) for number in range(17)]
    digit = next(each for each, count in Counter(each[0] for each in made).items() if count > 1)
    with pytest.raises(RevisionMissing) as caught:
        revision(ws, digit)
    candidates = caught.value.details["candidates"]
    assert {each for each in made if each[0] == digit} <= set(candidates)
    assert all(each.startswith(digit) for each in candidates)
    with pytest.raises(RevisionMissing):
        branch_revision(ws, digit)  # says more than that there is no such branch


def test_a_branch_called_like_a_hash_is_found_by_its_whole_name(project: Project, ws: Workspace) -> None:
    there = revision(ws, "feature")
    ws.engine.create_branch(project.pinned[:6], there)
    assert revision(ws, project.pinned[:6]) == there
    assert revision(ws, project.pinned[:7]) == project.pinned


def test_what_was_given_up_is_found_by_its_hash(project: Project, ws: Workspace) -> None:
    old = ws.engine.branch("feature")
    assert old
    ws.engine.delete_branch("feature", expected=old.head)
    assert revision(ws, old.head[:10]) == old.head


def test_working_is_the_workspace_with_its_uncommitted_documents(project: Project, ws: Workspace) -> None:
    assert place(ws, "WORKING") == place(ws, "HEAD") == project.pinned
    project.put("new.md", "new")
    assert place(ws, "WORKING") == Working("main")
    assert place(ws, "HEAD") == project.pinned


def test_a_branch_of_a_remote_is_where_it_was_last_seen(world: World) -> None:
    bob = world.join("bob")
    bob.vmrag("status", code=None)
    bob.vmrag("clone", code=None)
    old = bob.pinned
    new = world.ada.write_document("setup.md", "New.")
    world.ada.git("push", "-q")
    made = Workspace.open(bob.top, Quiet())
    assert revision(made, "origin/main") == old
    bob.vmrag("fetch")
    made.close()
    made = Workspace.open(bob.top, Quiet())
    assert revision(made, "origin/main") == revision(made, new[:8]) == new
    assert revision(made, "origin/main~1") == old
    with pytest.raises(BranchMissing):
        branch_revision(made, "origin/absent")
    made.close()
