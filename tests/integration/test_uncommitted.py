"""Uncommitted documents before an operation that needs a clean KB branch
(`ops.uncommitted`).
"""

from __future__ import annotations

import pytest

from tests.support import branching as support
from tests.support.branching import TEXTS, drop, make_branch, make_conflict, put
from tests.support.terminal import Project
from vmrag_link.errors import GitFailed, MergeConflict, MessageMissing, Uncommitted
from vmrag_link.ops import uncommitted
from vmrag_link.ops.merge import merge
from vmrag_link.progress import QUIET
from vmrag_link.workspace import Workspace

template, notes, tools = support.template, support.notes, support.tools

EDITED = {"a": "edited", "c": TEXTS["c"], "d": "delta"}


@pytest.fixture
def dirty(notes: Project) -> Project:
    put(notes, a="edited", d="delta")
    drop(notes, "b")
    return notes


@pytest.fixture
def workspace(notes: Project):
    opened = Workspace.open(notes.top, QUIET)
    yield opened
    opened.close()


def wip(workspace: Workspace) -> list[str]:
    return [branch.name for branch in workspace.engine.list_branches() if branch.name.startswith("vmrag/wip/")]


@pytest.mark.parametrize("how", ["stash", "carry"])
def test_stashed_documents_come_back_with_their_marks(dirty, workspace, how):
    with uncommitted.clean_branch(workspace, how, message="") as result:
        branch = workspace.find_kb_branch()
        assert branch is not None
        assert (result.handling, branch.dirty, wip(workspace)) == (how, False, [result.aside])
        assert {
            document.doc_id: document.content for document in workspace.engine.read_documents(result.held)
        } == EDITED
    assert dirty.texts() == EDITED
    assert dirty.marks() == {"a": "modified", "b": "removed", "c": None, "d": "added"}
    assert wip(workspace) == []


def test_block_that_fails_brings_them_back(dirty, workspace):
    with pytest.raises(GitFailed), uncommitted.clean_branch(workspace, "stash", message=""):
        raise GitFailed("The network is down.")
    assert (dirty.texts(), wip(workspace)) == (EDITED, [])


def test_open_merge_in_the_block_names_the_stash(notes, tools, workspace):
    make_conflict(notes, tools)
    put(notes, d="delta")

    def merged() -> None:
        with uncommitted.clean_branch(workspace, "stash", message=""):
            assert merge.merge(workspace, "topic").result == "conflict"
            raise MergeConflict("It conflicts.")

    with pytest.raises(MergeConflict) as caught:
        merged()
    aside = caught.value.details["aside"]
    assert wip(workspace) == [aside]
    tools("resolve_conflicts", table="all", strategy="theirs", commit=True)
    tools("merge_branch", source=aside)
    assert notes.texts() == TEXTS | {"a": "theirs", "d": "delta"}
    assert wip(workspace) == []


def test_stash_that_conflicts_stays_aside_and_nothing_of_it_is_written(notes, tools, workspace):
    theirs = make_branch(notes, tools, a="theirs")
    put(notes, a="mine", d="delta")
    with pytest.raises(MergeConflict) as caught, uncommitted.clean_branch(workspace, "stash", message=""):
        notes.vmrag("pin", theirs)
    details = caught.value.details
    assert (details["stage"], details["branch"], details["conflicts"][0]["doc_id"]) == (
        "stash_restore",
        "vmrag/wip/main",
        "a",
    )
    assert (notes.texts(), wip(workspace)) == (TEXTS | {"a": "theirs"}, ["vmrag/wip/main"])
    tools.error("MERGE_CONFLICT", "merge_branch", source="vmrag/wip/main")
    tools("resolve_conflicts", table="all", strategy="theirs")
    assert notes.texts() == TEXTS | {"a": "mine", "d": "delta"}


def test_abort_refuses_and_names_the_documents(dirty, workspace):
    with pytest.raises(Uncommitted) as caught, uncommitted.clean_branch(workspace, "abort", message=""):
        pytest.fail("the block runs")
    assert caught.value.details["local_changes"]["documents"] == ["a", "b", "d"]
    assert dirty.texts() == EDITED


def test_commit_first_commits_and_reset_first_gives_up(dirty, workspace):
    before = dirty.pinned
    with uncommitted.clean_branch(workspace, "commit_first", message="kept") as result:
        assert result.commit is not None
        assert (result.commit.parent, result.held, dirty.pinned) == (before, result.commit.revision, result.held)
    put(dirty, e="epsilon")
    with uncommitted.clean_branch(workspace, "reset_first", message="") as result:
        assert workspace.engine.has_revision(result.held)
    assert (dirty.texts(), wip(workspace)) == (EDITED, [])
    assert workspace.engine.find_unreachable([result.held]) == []


@pytest.mark.parametrize("how", ["abort", "commit_first", "reset_first", "stash", "carry"])
def test_clean_branch_needs_no_handling(notes, workspace, how):
    with uncommitted.clean_branch(workspace, how, message="") as result:
        assert (result.handling, result.held, result.commit, result.aside) == ("none", notes.pinned, None, "")


def test_commit_first_commits_nothing_without_a_message(dirty, workspace):
    with pytest.raises(MessageMissing), uncommitted.clean_branch(workspace, "commit_first", message=""):
        pytest.fail("the block runs")
    assert (dirty.texts(), wip(workspace)) == (EDITED, [])
