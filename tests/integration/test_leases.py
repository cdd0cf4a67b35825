"""Several work trees on one branch: one of them writes its documents, the others read what the pin
names.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.cli import error_of, start
from tests.support.compare import assert_whole
from tests.support.terminal import Done, Project
from vmrag_link import hints, locks
from vmrag_link.git import own_keys
from vmrag_link.workspace.pins import kb_branches as named

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

OFF = {"VMRAG": "0"}


def add(project: Project, doc_id: str) -> Done:
    """`vmrag add`, however it ends."""
    return project.vmrag(
        "add", "-", "--collection", "handbook", "--id", doc_id, "--json", code=None, stdin=f"Text of {doc_id}."
    )


def linked(project: Project, folder: Path, branch: str = "main") -> Project:
    project.git("worktree", "add", "-q", "--force", str(folder), branch, env=OFF)
    other = Project(folder)
    other.vmrag("sync")
    return other


def writes(project: Project, doc_id: str) -> None:
    assert add(project, doc_id).code == 0
    assert project.marks()[doc_id] == "added"
    assert doc_id in {result["doc_id"] for result in project.ask("query", f"text of {doc_id}", "-k", "20")["results"]}


def reads(project: Project, holder: Project, *uncommitted: str) -> None:
    """Check that it reads the pin without uncommitted documents of the holder, and cannot switch
    the holder's KB branch; that is not drift.
    """
    result = project.vmrag("branch", "--switch", project.pinned, "--json", code=None)
    error = error_of(result)
    assert (result.code, error["code"]) == (3, "BRANCH_IN_USE")
    assert (error["details"]["holder"], error["details"]["branch"]) == (
        str(holder.top),
        holder.git("branch", "--show-current"),
    )
    assert hints.list_commands(error["hint"])[0] == f"cd {holder.top}"
    assert error_of(project.vmrag("commit", "-m", "m", "--json", code=1))["code"] == "NO_CHANGES"
    marks = project.marks()
    assert set(marks.values()) == {None}
    assert not marks.keys() & {*uncommitted}
    answer = project.ask("query", "text of a document", "-k", "20")
    assert not {result["doc_id"] for result in answer["results"]} & {*uncommitted}
    assert (answer["kb"]["commit"], answer["kb"]["in_sync"], answer["kb"]["dirty"]) == (project.pinned, True, False)
    status = project.status()
    assert (status["state"], status["kb"]["detached"], status["kb"]["dirty"]) == ("in_sync", True, False)
    assert any(f"another worktree, {holder.top}" in reason for reason in status["reasons"])


def test_main_work_tree_holds_the_branch_that_it_was_on_first(project, tmp_path):
    project.put("draft.md", "Text of draft.md.")
    other = linked(project, tmp_path / "other")
    reads(other, project, "draft.md")
    writes(project, "second.md")
    reads(other, project, "draft.md", "second.md")
    (tmp_path / "scratch").mkdir()
    assert_whole(other, tmp_path / "scratch")


def test_linked_work_tree_that_came_first_keeps_the_branch(project, tmp_path):
    other = linked(project, tmp_path / "other", "feature")
    writes(other, "draft.md")
    project.git("switch", "-q", "--ignore-other-worktrees", "feature", env=OFF)
    reads(project, other, "draft.md")
    writes(other, "second.md")
    project.git("switch", "-q", "main", env=OFF)
    writes(project, "third.md")


def test_two_linked_work_trees(project, tmp_path):
    one, two = linked(project, tmp_path / "one", "feature"), linked(project, tmp_path / "two", "feature")
    writes(one, "draft.md")
    reads(two, one, "draft.md")


def test_worktree_that_switches_away_releases_the_branch(project, tmp_path):
    project.put("draft.md", "Text of draft.md.")
    other = linked(project, tmp_path / "other")
    reads(other, project, "draft.md")
    project.git("switch", "-q", "feature", env=OFF)
    assert other.marks()["draft.md"] == "added"
    assert other.status()["state"] == "in_sync"
    writes(other, "second.md")
    project.git("switch", "-q", "--ignore-other-worktrees", "main", env=OFF)
    reads(project, other, "draft.md", "second.md")
    other.git("switch", "-q", "--detach", env=OFF)
    writes(project, "third.md")
    assert {"draft.md", "second.md"} <= project.marks().keys()


@pytest.mark.parametrize("how", ["worktree remove", "rm -r"])
def test_holder_that_is_gone_holds_nothing(project, tmp_path, how):
    project.git("switch", "-q", "--detach", env=OFF)
    one, two = linked(project, tmp_path / "one"), linked(project, tmp_path / "two")
    writes(one, "draft.md")
    reads(two, one, "draft.md")
    if how == "rm -r":
        subprocess.run(["rm", "-r", one.top], check=True)
    else:
        project.git("worktree", "remove", "--force", str(one.top))
    assert two.marks()["draft.md"] == "added"
    writes(two, "second.md")


def test_holder_in_the_middle_of_a_rebase_still_holds_its_branch(project, tmp_path):
    project.git("switch", "-q", "-c", "base", "first", env=OFF)
    project.commit("other code", **{"code.py": "2"})
    project.git("switch", "-q", "main", env=OFF)
    project.commit("code", **{"code.py": "1"})
    project.put("draft.md", "Text of draft.md.")
    other = linked(project, tmp_path / "other")
    for backend in ("--merge", "--apply"):
        assert project.run("rebase", backend, "base", env=OFF).returncode == 1
        assert project.git("branch", "--show-current") == ""
        error = error_of(other.vmrag("branch", "--switch", other.pinned, "--json", code=3))
        assert (error["code"], error["details"]["holder"]) == ("BRANCH_IN_USE", str(project.top))
        assert "draft.md" not in other.marks()
        assert error_of(add(project, "refused.md"))["code"] == "GIT_BUSY"
        project.git("rebase", "--abort", env=OFF)
    assert project.marks()["draft.md"] == "added"
    reads(other, project, "draft.md")


def test_holder_in_the_middle_of_a_bisect_still_holds_its_branch(project, tmp_path):
    project.put("draft.md", "Text of draft.md.")
    other = linked(project, tmp_path / "other")
    project.commit("code", **{"code.py": "1"})
    project.git("bisect", "start", "main", "first", env=OFF)
    project.git("bisect", "good", env=OFF)
    assert project.git("branch", "--show-current") == ""
    error = error_of(other.vmrag("branch", "--switch", other.pinned, "--json", code=3))
    assert (error["code"], error["details"]["holder"]) == ("BRANCH_IN_USE", str(project.top))
    project.git("bisect", "reset", env=OFF)
    reads(other, project, "draft.md")


def test_work_trees_of_a_bare_repository(project, tmp_path):
    project.git("clone", "-q", "--bare", str(project.top), str(tmp_path / "bare.git"))
    bare = Project(tmp_path / "bare.git")
    subprocess.run(["cp", "-a", project.shared, tmp_path / "bare.git" / "vmrag"], check=True)
    for name in ("workspace.json", "applied"):
        (tmp_path / "bare.git" / "vmrag" / name).unlink()
    one, two = linked(bare, tmp_path / "one"), linked(bare, tmp_path / "two")
    writes(two, "draft.md")
    reads(one, two, "draft.md")
    bare.git("worktree", "remove", "--force", str(two.top))
    writes(one, "second.md")


def test_renamed_branch_has_one_writer_still(project, tmp_path):
    other = linked(project, tmp_path / "other")
    writes(project, "draft.md")
    project.git("branch", "-m", "renamed", env=OFF)
    assert other.git("branch", "--show-current") == "renamed"
    reads(other, project, "draft.md")
    writes(project, "second.md")


def test_branch_renamed_under_a_linked_holder_has_one_writer_still(project, tmp_path):
    project.git("switch", "-q", "--detach", env=OFF)
    one, two = linked(project, tmp_path / "one"), linked(project, tmp_path / "two")
    writes(one, "draft.md")
    project.git("branch", "-m", "main", "renamed", env=OFF)
    writes(one, "second.md")
    reads(two, one, "draft.md", "second.md")


@pytest.mark.parametrize("branch", ["feature", "fresh"])
def test_concurrent_writers_get_separate_branches(project, tmp_path, branch):
    if branch == "fresh":
        project.git("branch", "fresh", "main", env=OFF)
    trees = [linked(project, tmp_path / name, branch) for name in ("one", "two")]
    arguments = ("rm", "setup.md", "--collection", "handbook", "--json")
    result = [process.done() for process in [start(tree, *arguments) for tree in trees]]
    assert [result.code for result in result] == [0, 0], result
    kb_branches = {tree.status()["kb"]["branch"] for tree in trees}
    assert len(kb_branches) == 2
    assert branch in kb_branches
    assert [tree.marks()["setup.md"] for tree in trees] == ["removed", "removed"]
    trees[0].vmrag("restore", "setup.md")
    assert [tree.marks()["setup.md"] for tree in trees] == [None, "removed"]


def test_kb_branch_that_another_process_named_during_the_wait_is_used(project, monkeypatch):
    project.git("switch", "-q", "-c", "fresh", env=OFF)
    with terminal.opened(project) as workspace:
        places, target, hold = workspace.places, workspace.resolve_target(), locks.hold_exclusive

        @contextlib.contextmanager
        def wait_for_lock(path, **more):
            with hold(path, **more):
                own_keys.set_kb_branch(places, "fresh", "fresh-knowledge")
                yield

        monkeypatch.setattr(locks, "hold_exclusive", wait_for_lock)
        assert named.prepare_branch(workspace, target) == "fresh-knowledge"
        assert own_keys.find_kb_branch(places, "fresh") == "fresh-knowledge"


def test_documents_committed_by_the_holder_are_read_after_reset(project, tmp_path):
    other = linked(project, tmp_path / "other")
    project.record("news", news="Text of news.md.")
    assert "news.md" not in other.marks()
    other.git("reset", "-q", "--hard", env=OFF)
    assert other.marks()["news.md"] is None
    reads(other, project)
    writes(project, "draft.md")


def test_reader_with_a_moved_pin_keeps_documents_of_the_holder(project, tmp_path):
    project.put("draft.md", "Text of draft.md.")
    other = linked(project, tmp_path / "other")
    head = project.pinned
    other.git("checkout", "first", "--", ".dolt-version", env=OFF)
    assert "faq.md" not in other.marks()
    assert project.marks()["draft.md"] == "added"
    assert project.status()["kb"]["revision"] == head
    reads(other, project, "draft.md")


def test_branch_of_its_own_gives_the_reader_a_place_to_write(project, tmp_path):
    project.put("draft.md", "Text of draft.md.")
    other = linked(project, tmp_path / "other")
    other.git("switch", "-q", "-c", "own", env=OFF)
    writes(other, "mine.md")
    assert "draft.md" not in other.marks()
    assert "mine.md" not in project.marks()


def test_reader_cannot_switch_the_branch_to_other_knowledge(project, tmp_path):
    project.put("draft.md", "Text of draft.md.")
    other = linked(project, tmp_path / "other")
    with_others = project.ask("branch")
    old = project.ask("log")["revisions"][1]["revision"]
    for name in (old, "main"):
        error = error_of(other.vmrag("branch", "--switch", name, "--json", code=3))
        assert (error["code"], error["details"]["holder"]) == ("BRANCH_IN_USE", str(project.top))
    assert project.ask("branch") == with_others
    assert (project.marks()["draft.md"], project.status()["kb"]["dirty"]) == ("added", True)
    assert (other.git("status", "--porcelain"), other.status()["state"]) == ("", "in_sync")
    reads(other, project, "draft.md")


def test_writer_can_switch_while_readers_read_their_pin(project, tmp_path):
    project.put("draft.md", "Text of draft.md.")
    other = linked(project, tmp_path / "other")
    project.vmrag("branch", "--switch", project.ask("log")["revisions"][1]["revision"])
    reads(other, project, "draft.md")
    writes(project, "second.md")


def test_leases_that_hold_nothing_are_swept_and_those_that_hold_stay(project, tmp_path):
    one, two = linked(project, tmp_path / "one", "feature"), linked(project, tmp_path / "two", "first")
    two.git("switch", "-q", "-c", "own", env=OFF)
    for tree in (one, two):
        writes(tree, "draft.md")
    project.put("draft.md", "Text of draft.md.")
    leases = project.shared / "leases"
    assert len(list(leases.iterdir())) == 3
    one.git("switch", "-q", "--detach", env=OFF)
    project.vmrag("sync")
    assert len(list(leases.iterdir())) == 2
    project.git("worktree", "remove", "--force", str(two.top))
    project.vmrag("gc", "--apply")
    assert len(list(leases.iterdir())) == 1
    reads(linked(project, tmp_path / "three"), project, "draft.md")
    one.git("switch", "-q", "feature", env=OFF)
    assert one.marks()["draft.md"] == "added"
    writes(one, "second.md")


def test_work_tree_with_relative_gitdir_holds_its_branch(project, tmp_path):
    other = linked(project, tmp_path / "other", "feature")
    writes(other, "draft.md")
    (other.own.parent / "gitdir").write_text("../../../../other/.git\n")
    project.git("switch", "-q", "--ignore-other-worktrees", "feature", env=OFF)
    reads(project, other, "draft.md")
