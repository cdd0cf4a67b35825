"""`vmrag gc`: what git can still check out can still be queried, and what nothing needs goes."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time

import pytest

from tests.support import terminal
from tests.support.cli import measure_duration, run_killed
from tests.support.indexes import copy_of, list_folders, segments_of, view_of
from tests.support.terminal import Project
from tests.unit.test_hint_form import find_flaw
from vmrag_link import hints, locks
from vmrag_link.engines.own_branches import UNFINISHED_BRANCH
from vmrag_link.file_access import STALE_SECONDS
from vmrag_link.ops.gc import gc as operation
from vmrag_link.progress import QUIET
from vmrag_link.workspace import Workspace

pytestmark = pytest.mark.hooks("off")

template, project = terminal.template, terminal.project

SEED = int(os.environ.get("VMRAG_TEST_SEED") or random.SystemRandom().randrange(10**6))
QUIETLY = {"VMRAG": "0"}
STALE = 10_000
"""Seconds after which a temporary file is abandoned."""


ASKED = "rest deleted first second attempt reset uv"


def pins(project: Project) -> dict[str, str]:
    """Every commit of refs and reflogs that pins something, with the revision."""
    result = {}
    for commit in project.git("rev-list", "--all", "--reflog").split():
        pin = project.run("show", f"{commit}:.dolt-version")
        if pin.returncode == 0:
            result[commit] = json.loads(pin.stdout)["dolt_commit"]
    return result


def rewrite_history(project: Project) -> None:
    """Branches deleted, commits amended, reset away, rebased away and stashed."""
    project.git("switch", "-q", "-c", "doomed")
    project.record("doomed", doomed="To be deleted.")
    project.record("doomed too", second="To be deleted, too.")
    project.git("switch", "-q", "main")
    project.git("branch", "-q", "-D", "doomed")
    project.put("amended.md", "The first attempt.")
    project.vmrag("commit", "-m", "attempt")
    project.git("commit", "-q", "-m", "attempt")
    project.put("amended.md", "The second attempt.")
    project.vmrag("commit", "-m", "second attempt")
    project.git("commit", "-q", "--amend", "-m", "second attempt")
    project.record("reset", reset="To be reset away.")
    project.git("reset", "-q", "--hard", "HEAD~1")
    project.vmrag("sync")
    project.vmrag("pin", "feature")
    project.git("stash", "-q")
    project.vmrag("sync")


def test_every_known_commit_is_queryable_after_rewritten_history(project):
    rewrite_history(project)
    known_pins = pins(project)
    assert len(set(known_pins.values())) >= 7
    before = {commit: project.ask("query", ASKED, "-k", "20", "--at", commit) for commit in known_pins}
    answers = project.answers()
    project.git("config", "vmrag.index.keep-mb", "0")
    report = project.ask("gc", "--apply")
    assert report["applied"] is True
    assert project.status()["state"] == "in_sync"
    assert project.answers() == answers
    for commit, revision in known_pins.items():
        project.git("checkout", "-q", "--detach", commit)
        answer = project.ask("query", ASKED, "-k", "20")
        assert answer["results"] == before[commit]["results"]
        assert (answer["kb"]["commit"], answer["kb"]["in_sync"]) == (revision, True)


def test_uncommitted_documents_of_all_branches_survive(project):
    project.put("draft.md", "A draft of main.")
    project.git("switch", "-q", "feature")
    project.put("draft.md", "A draft of feature.")
    project.vmrag("gc", "--apply")
    assert project.texts()["draft.md"] == "A draft of feature."
    project.git("switch", "-q", "main")
    assert project.texts()["draft.md"] == "A draft of main."
    assert project.consistent()


def kb_branches(project: Project) -> dict[str, str]:
    return {branch["name"]: branch["revision"] for branch in project.ask("branch")["branches"]}


def needed(project: Project) -> list[str]:
    workspace = Workspace.open(project.top, QUIET)
    try:
        return operation.list_needed(workspace)
    finally:
        workspace.close()


def test_gc_without_apply_only_prints_its_plan(project):
    project.git("config", "vmrag.index.keep-mb", "0")
    project.git("branch", "-q", "-D", "feature")
    before = {path: path.stat().st_mtime_ns for path in project.shared.rglob("*") if path.is_file()}
    report = project.ask("gc")
    assert report["applied"] is False
    assert report["leftovers"]["snapshots"]["names"]
    assert report["leftovers"]["snapshots"]["bytes"] > 0
    assert [branch["name"] for branch in report["pruned"]] == ["feature"]
    said = project.vmrag("gc").out
    assert {path: path.stat().st_mtime_ns for path in project.shared.rglob("*") if path.is_file()} == before
    assert "Would remove" in said
    assert "hint: run 'vmrag gc --apply' to remove them" in said
    result = project.ask("gc", "--apply")
    assert result["applied"] is True
    assert result["leftovers"]["snapshots"] == report["leftovers"]["snapshots"]
    assert result["pruned"] == report["pruned"]
    again = project.ask("gc")
    assert (again["leftovers"]["snapshots"]["names"], again["pruned"]) == ([], [])
    assert project.consistent()


def test_gc_can_run_repeatedly(project):
    rewrite_history(project)
    project.vmrag("gc", "--apply")
    size = project.ask("gc", "--apply")["kb_bytes"]["after"]
    for _ in range(3):
        assert project.ask("gc", "--apply")["kb_bytes"]["after"] <= size
    assert project.consistent()


# -- what is pinned --------------------------------------------------------------------------------


def test_revision_that_only_git_knows_of_is_anchored(project):
    revision = kb_branches(project)["feature"]
    workspace = Workspace.open(project.top, QUIET)
    workspace.engine.create_branch(UNFINISHED_BRANCH, revision)  # a killed merge left it; it keeps nothing alive
    workspace.engine._session.writer.execute("SELECT dolt_branch('-D', 'feature')")  # unlike any vmrag command
    assert workspace.engine.find_unreachable([revision]) == [revision]
    workspace.close()
    assert project.ask("gc")["anchored"] == [revision]
    assert project.ask("gc", "--apply")["anchored"] == [revision]
    project.git("switch", "-q", "feature")
    project.vmrag("sync", "--rebuild")
    assert "uv.md" in project.texts()


def unpinned_elsewhere(project: Project) -> tuple[str, str]:
    """A revision of a branch that is gone from refs and reflogs, and its pin."""
    project.git("switch", "-q", "-c", "short")
    revision = project.record("short", short="A short life.")
    pin = (project.top / ".dolt-version").read_text()
    project.git("switch", "-q", "main")
    project.git("branch", "-q", "-D", "short")
    project.git("reflog", "expire", "--expire=now", "--all")
    project.git("gc", "-q", "--prune=now")
    assert revision not in needed(project)
    return revision, pin


@pytest.mark.hooks("on")
def test_gc_keeps_revision_pinned_only_in_work_tree_or_index(project):
    revision, pin = unpinned_elsewhere(project)
    ours = (project.top / ".dolt-version").read_text()
    project.write(".dolt-version", pin)
    assert revision in needed(project)
    project.git("add", ".dolt-version")
    project.write(".dolt-version", ours)
    assert revision in needed(project)
    project.vmrag("gc", "--apply")
    project.git("checkout", "-q", "--", ".dolt-version")
    project.vmrag("sync")
    assert project.texts()["short.md"] == "A short life."


@pytest.mark.hooks("on")
def test_pins_of_linked_work_trees_keep_their_revisions(project, tmp_path):
    revision, pin = unpinned_elsewhere(project)
    project.git("worktree", "add", "-q", "--detach", str(tmp_path / "linked"), "first", env=QUIETLY)
    linked = Project(tmp_path / "linked")
    assert revision not in needed(project)
    theirs = (linked.top / ".dolt-version").read_text()
    linked.write(".dolt-version", pin)
    assert revision in needed(project)
    linked.git("add", ".dolt-version")
    linked.write(".dolt-version", theirs)
    assert revision in needed(project)
    linked.write(".dolt-version", pin)
    linked.git("commit", "-q", "-am", "detached", env=QUIETLY)
    linked.git("reflog", "expire", "--expire=now", "--all")
    assert revision in needed(project)  # its HEAD alone
    linked.git("checkout", "-q", "--detach", "first", env=QUIETLY)
    assert revision in needed(project)  # its reflog alone
    project.vmrag("gc", "--apply")
    linked.git("checkout", "-q", "HEAD@{1}")
    linked.vmrag("sync")
    assert linked.texts()["short.md"] == "A short life."


@pytest.mark.hooks("on")
def test_gc_keeps_revisions_of_stashed_pins_and_all_conflict_sides(project):
    revision, pin = unpinned_elsewhere(project)
    project.write(".dolt-version", pin)
    project.git("stash", "-q", env=QUIETLY)
    project.git("reflog", "expire", "--expire=now", "HEAD")
    assert revision in needed(project)
    blob = project.git("rev-parse", "stash@{0}:.dolt-version")
    project.git("stash", "drop", "-q")
    assert revision not in needed(project)
    stages = "".join(f"100644 {blob} {stage}\t.dolt-version\n" for stage in (1, 2, 3))
    project.git("update-index", "--force-remove", ".dolt-version")
    project.git("update-index", "--index-info", stdin=stages)
    assert revision in needed(project)


@pytest.mark.hooks("on")
def test_revisions_in_merge_and_fetch_heads_are_kept(project):
    revision, pin = unpinned_elsewhere(project)
    project.git("checkout", "-q", "--detach", "main", env=QUIETLY)
    commit = project.commit("aside", pin=pin)
    project.git("checkout", "-q", "main", env=QUIETLY)
    project.vmrag("sync")
    project.git("reflog", "expire", "--expire=now", "--all")
    assert revision not in needed(project)
    for name in ("FETCH_HEAD", "ORIG_HEAD", "rebase-merge/autostash"):
        note = project.own.parent / name
        note.parent.mkdir(exist_ok=True)
        note.write_text(f"{'0' * 40}\n{commit}\tnot-for-merge\n")
        assert revision in needed(project), name
        note.unlink()


# -- branches --------------------------------------------------------------------------------------


def test_kb_branch_goes_with_its_code_branch_and_its_revision_stays(project):
    revision = kb_branches(project)["feature"]
    project.git("branch", "-q", "-D", "feature")
    assert project.ask("gc", "--apply")["pruned"] == [{"name": "feature", "revision": revision}]
    assert list(kb_branches(project)) == ["main"]
    project.git("switch", "-q", "-c", "again", "HEAD@{2}")
    assert "uv.md" in project.texts()
    project.put("more.md", "Written on it again.")
    assert project.consistent()


def test_entry_that_outlived_its_code_branch_goes_with_the_kb_branch(project):
    project.git("update-ref", "-d", "refs/heads/feature")
    assert project.git("config", "branch.feature.vmragBranch") == "feature"
    report = project.ask("gc", "--apply")
    assert ([branch["name"] for branch in report["pruned"]], report["unmapped"]) == (["feature"], ["feature"])
    assert project.run("config", "branch.feature.vmragBranch").returncode == 1
    assert project.ask("gc", "--apply")["unmapped"] == []


def test_unborn_branch_is_treated_as_existing(project):
    project.git("switch", "-q", "--orphan", "fresh", env=QUIETLY)
    project.git("config", "branch.fresh.vmragBranch", "feature")
    project.git("config", "--unset", "branch.feature.vmragBranch")
    project.git("branch", "-q", "-D", "feature")
    assert project.ask("gc", "--apply")["pruned"] == []
    assert "feature" in kb_branches(project)


def test_kb_branch_that_a_copied_code_branch_names_stays(project):
    project.git("branch", "-c", "feature", "copy")
    project.git("update-ref", "-d", "refs/heads/feature")
    report = project.ask("gc", "--apply")
    assert (report["pruned"], report["unmapped"]) == ([], [])


@pytest.mark.parametrize(
    ("how", "made_again"),
    [
        (("branch", "-q", "-D", "feature"), False),
        (("branch", "-q", "-D", "feature"), True),
        (("update-ref", "-d", "refs/heads/feature"), False),
    ],
    ids=["deleted", "deleted and made again", "its entry in git's configuration stayed"],
)
@pytest.mark.sample(1)
def test_uncommitted_documents_of_a_deleted_branch_stay_restorable(project, how, made_again):
    project.git("switch", "-q", "feature")
    project.put("draft.md", "A draft.")
    expected = project.texts()
    project.git("switch", "-q", "main")
    project.git(*how)
    report = project.ask("gc", "--apply")
    assert report["pruned"] == []
    [kept] = report["kept"]
    assert (kept["name"], kept["reason"]) == ("feature", "uncommitted")
    assert kept["hint"] in project.vmrag("gc").out
    if made_again:
        project.git("switch", "-q", "-c", "feature")
        assert project.ask("gc")["kept"] == report["kept"]
    assert find_flaw(kept["hint"]) == ""
    program, *arguments = hints.list_commands(kept["hint"])[0].split(" ")
    assert program == "vmrag"
    project.vmrag(*arguments)
    assert project.texts() == expected
    assert project.marks()["draft.md"] == "added"
    assert project.ask("gc", "--apply")["kept"] == []


def test_stashed_branches_are_listed_and_never_pruned(project):
    workspace = Workspace.open(project.top, QUIET)
    workspace.engine.create_branch("vmrag/wip/feature", project.pinned)
    workspace.close()
    report = project.ask("gc", "--apply")
    assert report["pruned"] == []
    assert [(branch["name"], branch["reason"]) for branch in report["kept"]] == [("vmrag/wip/feature", "set_aside")]
    assert "vmrag/wip/feature" in project.vmrag("gc").out


def test_kb_branch_that_an_interrupted_commit_waits_for_stays(project):
    revision = kb_branches(project)["feature"]
    entry = {"type": "commit", "git_dir": str(project.shared.parent / "worktrees" / "x"), "pin": None}
    entry |= {"symbolic": "refs/heads/feature", "kb_branch": "feature", "parent": revision}
    (project.shared / "journal").mkdir(exist_ok=True)
    (project.shared / "journal" / "commit-1.json").write_text(json.dumps(entry))
    project.git("branch", "-q", "-D", "feature")
    assert project.ask("gc", "--apply")["pruned"] == []
    assert kb_branches(project)["feature"] == revision


# -- files -----------------------------------------------------------------------------------------


def test_gc_removes_files_of_killed_processes_from_every_folder(project):
    shared = project.shared
    (shared / "local" / "segments").mkdir(parents=True)
    (shared / "remotes" / "git-0123").mkdir(parents=True)
    files = [
        shared / "segments" / ".building-0123.lock.holder",
        shared / "sources" / ".building-0123.lock",
        shared / "local" / "segments" / ".building-0123.lock.holder",
        *(
            folder / f".name.{'a' * 12}.tmp"
            for folder in (shared / "kb", shared / "local", shared / "remotes" / "git-0123")
        ),
        project.top / f"..vmrag.yaml.{'a' * 12}.tmp",
        project.top / ".git" / "hooks" / f".post-merge.{'a' * 12}.tmp",
        shared / "remotes" / "git-0123" / "new.doltlite",
    ]
    folders = [
        shared / "snapshots" / "deep",
        shared / "working",
        shared / "remotes.git.unfinished",
        shared / "remotes" / "incoming-git-0123" / "objects",
        shared / "kb" / ".creating",
    ]
    for path in files:
        path.parent.mkdir(exist_ok=True)
        path.write_text("99999999 build a segment")
        os.utime(path, (time.time() - 2 * STALE_SECONDS,) * 2)
    for path in folders:
        path.mkdir(parents=True)
    assert "LEFTOVERS" in project.vmrag("doctor").out
    project.vmrag("gc", "--apply")
    assert [path for path in (*files, *folders) if path.exists()] == []
    assert not (shared / "snapshots").exists()
    assert "LEFTOVERS" not in project.vmrag("doctor").out


def test_gc_keeps_files_of_a_running_process(project):
    making = project.shared / "remotes" / "incoming-git-0123"
    making.mkdir(parents=True)
    with locks.hold_exclusive(project.shared / "locks" / "remote-git-0123.lock", purpose="fetch", timeout=0):
        project.vmrag("gc", "--apply")
    assert making.exists()


def test_gc_removes_leftovers_of_killed_processes(project):
    shelf, segments, working = (project.shared / name for name in ("views", "segments", "uncommitted"))
    project.vmrag("gc", "--apply")
    (shelf / ".building-0123" / "deep").mkdir(parents=True)
    (segments / ".building-4567" / "deep").mkdir(parents=True)
    working.mkdir(exist_ok=True)
    names = [
        shelf / "gone-12345678.lock",
        shelf / "gone-12345678.lock.holder",
        working / "0123.lock",
        working / "0123.writing",
    ]
    names += [project.shared / "embeddings.sqlite.corrupt-1"]
    temporaries = [project.top / f"..dolt-version.{'0' * 12}.tmp", project.own / f".applied.{'a' * 12}.tmp"]
    for path in (*names, *temporaries):
        path.write_text("x")
    for path in temporaries:
        os.utime(path, (time.time() - STALE,) * 2)
    young = project.own / f".applied.{'b' * 12}.tmp"
    young.write_text("somebody is at it")
    locks = sorted(path.name for path in shelf.glob("*.lock") if path.with_suffix("").exists())
    expected = project.ask("gc")["leftovers"]["files"]
    builders = [shelf / ".building-0123", segments / ".building-4567"]
    assert set(expected["names"]) == {path.name for path in (*names, *temporaries, *builders)}
    assert project.ask("gc", "--apply")["leftovers"]["files"]["names"]
    assert not any(path.exists() for path in (*names, *temporaries, *builders))
    assert young.exists()
    assert sorted(path.name for path in shelf.glob("*.lock")) == locks
    assert project.ask("gc")["leftovers"]["files"]["names"] == []


def test_segments_that_no_view_counts_any_more_go(project):
    """A view was removed manually, as doctor advises for a damaged one."""
    feature = view_of(project, json.loads(project.git("show", "feature:.dolt-version"))["dolt_commit"])
    shutil.rmtree(feature)

    def uncounted() -> set[str]:
        counted = {path for view in list_folders(project.shared / "views") for path in segments_of(view)}
        return {path.name for path in {*list_folders(project.shared / "segments")} - counted}

    unused_segments = uncounted()
    assert unused_segments
    assert {*project.ask("gc")["leftovers"]["snapshots"]["names"]} == unused_segments
    assert {*project.ask("gc", "--apply")["leftovers"]["snapshots"]["names"]} == unused_segments
    assert uncounted() == set()
    assert project.consistent()


def test_second_gc_rewrites_no_segment(project, tmp_path):
    """Also if a document is in the segments of two views, and only one of them is worn."""
    project.git("config", "vmrag.index.keep-mb", "0")
    project.git("worktree", "add", "-q", str(tmp_path / "side"), "feature")
    Project(tmp_path / "side").vmrag("sync")
    project.vmrag("gc", "--apply")
    before = {*list_folders(project.shared / "segments")}
    project.vmrag("gc", "--apply")
    assert {*list_folders(project.shared / "segments")} == before


def test_working_copies_of_committed_documents_go_and_those_of_drafts_stay(project):
    project.git("config", "vmrag.hooks.sync", "off")
    project.put("draft.md", "A draft.")
    copy = copy_of(project)
    (copy.parent / ("0" * 16)).mkdir()
    (copy.parent / ("0" * 16) / "file").write_text("12345")
    report = project.ask("gc", "--apply")["leftovers"]["working_copies"]
    assert report == {"names": ["0" * 16], "bytes": 5}
    assert copy.is_dir()
    assert project.texts()["draft.md"] == "A draft."


def test_old_vectors_go_and_are_computed_again(project):
    assert project.ask("gc", "--apply")["leftovers"]["vectors"]["number"] == 0
    for number in range(3):
        text = "\n\n".join(f"Paragraph {number} {place} " + "of many words " * 30 for place in range(500))
        project.put(f"large-{number}.md", text)
    project.git("config", "vmrag.embedding.cache-mb", "1")
    before = (project.shared / "embeddings.sqlite").stat().st_size
    planned = project.ask("gc")["leftovers"]["vectors"]
    vectors = project.ask("gc", "--apply")["leftovers"]["vectors"]
    after = (project.shared / "embeddings.sqlite").stat().st_size
    assert planned["number"] == vectors["number"] > 0
    assert (vectors["bytes"], after < 1_100_000) == (before - after, True)
    assert project.consistent()


# -- everything at once ----------------------------------------------------------------------------


class History:
    """Commits of git with the documents that each was made with."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.documents: dict[str, dict[str, str]] = {}

    def note(self) -> str:
        commit = self.project.git("rev-parse", "HEAD")
        self.documents[commit] = self.project.texts()
        return commit

    def record(self, name: str, text: str) -> str:
        self.project.record(text, **{name: text})
        return self.note()

    def grow(self) -> None:
        """25 commits and more: on branches that are merged, deleted, moved, amended, reset and
        rebased.
        """
        project = self.project
        self.note()
        for branch in ("one", "two", "three"):
            project.git("switch", "-q", "-c", branch, "main")
            for number in range(4):
                self.record(f"{branch}{number}", f"Number {number} of {branch}.")
        self.merge("two")
        self.record("after", "After the merge.")
        project.put("after.md", "After the merge, amended.")
        project.vmrag("commit", "-m", "amended")
        project.git("commit", "-q", "--amend", "-m", "amended")
        self.note()
        project.git("switch", "-q", "one")
        project.git("reset", "-q", "--hard", "HEAD~2")
        project.vmrag("sync")
        self.record("reset", "Written after the reset.")
        project.git("switch", "-q", "main")
        for number in range(4):
            self.record(f"main{number}", f"Number {number} of main.")
        project.drop("rest.md")
        project.vmrag("commit", "-m", "no rest")
        project.git("commit", "-q", "-m", "no rest")
        self.note()
        self.rebase("two", "main")
        project.git("switch", "-q", "main")
        self.merge("one")
        project.vmrag("pin", "feature")
        project.git("commit", "-q", "-m", "back to the knowledge of feature")
        self.note()
        self.record("last", "The last one.")
        project.git("branch", "-q", "-f", "one", "first")
        for branch in ("two", "three"):
            project.git("branch", "-q", "-D", branch)
        project.git("update-ref", "-d", "refs/heads/feature")

    def merge(self, other: str) -> None:
        """The pin of the merge is written by hand: that of the other side."""
        self.project.git("merge", "-q", "--no-ff", "--no-commit", "-s", "ours", other)
        self.project.vmrag("pin", other)
        self.project.git("commit", "-q", "-m", f"merge {other}", env=QUIETLY)
        self.project.vmrag("sync")
        self.note()

    def rebase(self, branch: str, onto: str) -> None:
        self.project.git("switch", "-q", branch)
        self.project.git("rebase", "-q", "-X", "theirs", onto, env=QUIETLY)
        self.project.vmrag("sync")
        self.note()

    def check(self) -> None:
        """Check that each commit of refs and reflogs can be checked out and has its original
        documents.
        """
        project = self.project
        known_pins = pins(project)
        assert self.documents.keys() <= known_pins.keys()
        for commit in known_pins:
            project.git("checkout", "-q", "--detach", commit)
            project.vmrag("sync")
            assert project.status()["state"] == "in_sync"
            if commit in self.documents:
                assert project.texts() == self.documents[commit]


@pytest.fixture
def history(project: Project) -> History:
    made = History(project)
    made.grow()
    assert len(made.documents) >= 25
    return made


@pytest.mark.long
def test_every_old_commit_can_be_checked_out_after_gc(history):
    report = history.project.ask("gc", "--apply")
    assert {branch["name"] for branch in report["pruned"]} == {"two", "three", "feature"}
    history.check()
    assert history.project.ask("gc", "--apply")["anchored"] == []


@pytest.mark.long  # test_merge_kills.py kills it over a smaller history
def test_kill_at_any_moment_loses_nothing(history):
    print(f"VMRAG_TEST_SEED={SEED}")
    dice, project = random.Random(SEED), history.project
    duration = measure_duration(project, "gc")
    hits = 0
    for number in range(40):
        project.git("branch", "-q", "-f", f"doomed-{number}", "main")
        project.git("switch", "-q", f"doomed-{number}", env=QUIETLY)
        project.record(f"doomed {number}", doomed=f"Doomed to number {number}.")
        history.note()
        project.git("switch", "-q", "main")
        project.git("branch", "-q", "-D", f"doomed-{number}")
        result = run_killed(project, dice.uniform(0.3, 1.3) * duration, "gc", "--apply")
        hits += result.code == -signal.SIGKILL
        if hits >= 6:
            break
    assert hits >= 3
    project.vmrag("gc", "--apply")
    assert list(kb_branches(project)) == ["main", "one"]
    history.check()
