"""Several processes at once: none crashes, nothing is lost, and one that waits in vain names the
process that it waited for.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.support import cli
from tests.support.cli import ROOT, Running, error_of, pages, run_killed, run_patched, start
from tests.support.compare import assert_whole
from tests.support.indexes import list_folders, list_unfinished, view_of
from tests.support.long import crossed
from tests.support.pace import slack
from tests.support.repos import DATABASE_FILE
from tests.support.terminal import Done, Project
from vmrag_link.index.views import list_segments
from vmrag_link.progress import QUIET
from vmrag_link.workspace import Workspace

library, stocked = cli.library, cli.stocked

IMPORT = ("import", "more", "--collection", "handbook", "--base", "more")
NOTHING_KEPT = {"VMRAG_INDEX_KEEP_MB": "0"}


def all_done(*running: Running) -> list[Done]:
    return [process.done() for process in running]


def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / f"scratch-{len(list(tmp_path.glob('scratch-*')))}"
    folder.mkdir()
    return folder


def worktree(project: Project, path: Path, branch: str) -> Project:
    project.git("worktree", "add", "-q", str(path), branch)
    return Project(path)


def holding(project: Project, body: str, *, seconds: float = 30) -> Running:
    """Hold a lock of the workspace `ws` in a process that runs `body`, until it is killed."""
    script = (
        "import os, sys, time\nfrom pathlib import Path\n"
        "from vmrag_link import locks\nfrom vmrag_link.progress import QUIET\nfrom vmrag_link.workspace import Workspace\n"
        f"ws = Workspace.open(Path(), QUIET)\nwith {body}:\n    Path('held').touch()\n    time.sleep({seconds})\n"
    )
    running = start(project, program=(sys.executable, "-c", script), PYTHONPATH=str(ROOT))
    deadline = time.monotonic() + 20
    while not (project.top / "held").exists():
        assert running.process.poll() is None, running.done()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (project.top / "held").unlink()
    return running


WORKSPACE = "locks.hold_exclusive(ws.places.workspace_lock, purpose='test', timeout=0)"
KNOWLEDGE = "ws.engine.write_lock('test')"


# -- two at once -----------------------------------------------------------------------------------


def test_imports_and_syncs_at_once_store_everything(stocked, tmp_path):
    expected = stocked.texts()
    for name, first in (("one", 500), ("two", 600)):
        pages(stocked, range(first, first + 15), folder=name)
        expected |= {path.name: path.read_text() for path in (stocked.top / name).iterdir()}
    stocked.git("switch", "-q", "edited", env={"VMRAG": "0"})
    stocked.git("switch", "-q", "main", env={"VMRAG": "0"})
    commands = [
        ("import", "one", "--collection", "handbook", "--base", "one"),
        ("sync",),
        ("import", "two", "--collection", "handbook", "--base", "two"),
        ("sync",),
    ]
    for result in all_done(*[start(stocked, *command) for command in commands]):
        assert result.code == 0, result
    assert stocked.texts() == expected
    assert_whole(stocked, scratch(tmp_path))


def test_two_imports_into_one_new_collection_create_it_once(stocked, tmp_path):
    for name, first in (("one", 500), ("two", 600)):
        pages(stocked, range(first, first + 10), folder=name)
    for result in all_done(*[start(stocked, "import", name, "--collection", "fresh") for name in ("one", "two")]):
        assert result.code == 0, result
    assert len([key for key in assert_whole(stocked, scratch(tmp_path)) if key[0] == "fresh"]) == 20


def test_second_of_two_concurrent_commits_has_nothing_to_do(stocked, tmp_path):
    stocked.put("note.md", "A note about zebras.")
    before = stocked.pinned
    result = all_done(*[start(stocked, "commit", "-m", name, "--json") for name in ("one", "two")])
    assert sorted(result.code for result in result) == [0, 1], result
    for commit_result in result:
        if commit_result.code:
            assert error_of(commit_result)["code"] in ("NO_CHANGES", "KB_MOVED")
        else:
            assert (commit_result.json["parent"], commit_result.json["revision"]) == (before, stocked.pinned)
    assert ("handbook", "note.md") in assert_whole(stocked, scratch(tmp_path))


@pytest.mark.long  # test_commit_journal hits the moments
def test_concurrent_commits_and_checkouts_keep_reported_revisions(stocked, tmp_path):
    reported: list[str] = []
    for number in range(6):
        stocked.put(f"note-{number}.md", f"Note {number} about zebras.")
        commit = start(stocked, "commit", "-m", "note", "--json")
        time.sleep(0.05 * number)
        moved = start(stocked, "-q", "-f", "edited", program=("git", "checkout")).done()
        result = commit.done()
        assert moved.code in (0, 128), moved  # 128: our `git add` held index.lock
        if result.code == 0:
            reported.append(result.json["revision"])
        else:
            assert error_of(result)["code"] in ("UNPINNED_REVISION", "KB_MOVED", "GIT_BUSY", "NO_CHANGES", "BUSY"), (
                result
            )
            if error_of(result)["code"] == "UNPINNED_REVISION":
                reported.append(error_of(result)["details"]["revision"])
        stocked.git("checkout", "-q", "-f", "main")
        stocked.vmrag("sync")
        if reported:
            stocked.vmrag("pin", reported[-1])
            stocked.run("commit", "-q", "-m", "note", "--", ".dolt-version")
    if stocked.status()["kb"]["dirty"]:
        stocked.vmrag("commit", "-m", "the rest")
    history = {revision["revision"] for revision in stocked.ask("log", "-n", "100")["revisions"]}
    assert set(reported) <= history
    assert {f"note-{number}.md" for number in range(6)} <= set(stocked.texts())
    assert_whole(stocked, scratch(tmp_path))


def test_first_writes_in_two_worktrees_at_once_get_separate_branches(stocked, tmp_path):
    trees = []
    for name in ("Topic", "topic", "other-topic"):
        stocked.git("branch", name, "main")
        tree = worktree(stocked, tmp_path / f"tree-{name}", name)
        pages(tree, range(len(trees) * 100 + 700, len(trees) * 100 + 710), folder="more")
        trees.append(tree)
    for result in all_done(*[start(tree, *IMPORT) for tree in trees]):
        assert result.code == 0, result
    for number, tree in enumerate(trees):
        new = {doc_id for _, doc_id in assert_whole(tree, scratch(tmp_path)) if int(doc_id[5:-3]) >= 700}
        assert new == {f"page-{page}.md" for page in range(number * 100 + 700, number * 100 + 710)}
    for result in all_done(*[start(tree, "commit", "-m", "pages", "--json") for tree in trees]):
        assert result.code == 0, result
    for tree in trees:
        assert tree.status()["state"] == "in_sync"


def test_concurrent_queries_imports_and_commits_answer_from_one_state(stocked, tmp_path):
    """Each import replaces the same ten pages as a whole: an answer must never mix two of them."""
    writer = []
    seen = set()
    for edition in range(1, 4):
        for number in range(10):
            stocked.write(f"more/edition-{number}.md", f"zebra edition{edition}")
        writer = [start(stocked, *IMPORT)]
        while writer:
            result = start(stocked, "query", "zebra", "-k", "20", "--mode", "keyword", "--json").done()
            assert result.code == 0, result
            editions = {result["text"].split()[1] for result in result.json["results"]}
            assert len(editions) <= 1
            assert len(result.json["results"]) in (0, 10)
            seen |= editions
            if writer[0].process.poll() is not None:
                assert writer.pop().done().code == 0
        if edition % 2:
            assert start(stocked, "commit", "-m", f"edition {edition}").done().code == 0
    assert len(seen) > 1
    assert_whole(stocked, scratch(tmp_path))


@pytest.mark.long  # the gaps below are hit one by one
def test_worktrees_that_evict_spares_keep_indexes_in_use(stocked, tmp_path):
    stocked.git("branch", "walker", "main")
    walker = worktree(stocked, tmp_path / "walker", "walker")
    walk = (
        "for branch in edited other main edited other; do\n"
        f"    git switch -q --detach $branch || exit 1\n    {sys.executable} -P -m vmrag_link.cli.main sync -q || exit 2\ndone"
    )
    walking = start(walker, walk, program=("sh", "-c"), **NOTHING_KEPT)
    while walking.process.poll() is None:
        for ref in ((), ("--at", "other")):
            result = start(stocked, "query", "garden", *ref, "--json", **NOTHING_KEPT).done()
            assert result.code == 0, result
            assert result.json["kb"]["in_sync"]
            assert result.json["results"]
    result = walking.done()
    assert result.code == 0, result
    assert_whole(stocked, scratch(tmp_path))
    assert_whole(walker, scratch(tmp_path))


# -- the gaps between two steps --------------------------------------------------------------------


def test_view_is_not_evicted_between_its_building_and_its_binding(stocked, tmp_path):
    """Another worktree evicts all unbound views right before this one binds."""
    stocked.git("branch", "walker", "other")
    walker = worktree(stocked, tmp_path / "walker", "walker")
    stocked.git("switch", "-q", "edited", env={"VMRAG": "0"})
    body = (
        "import subprocess\nfrom vmrag_link.sync import apply as m\nswap = m._switch_work_tree\n"
        "def then(*a):\n"
        f"    subprocess.run([sys.executable, '-P', '-m', 'vmrag_link.cli.main', '-C', {str(walker.top)!r}, 'sync', '--rebuild'],"
        " check=True, env=os.environ | {'VMRAG_INDEX_KEEP_MB': '0'})\n"
        "    return swap(*a) if a[2].path.is_dir() else os._exit(7)\nm._switch_work_tree = then"
    )
    assert run_patched(stocked, body, "sync").code == 0
    assert stocked.pinned in {path.name.partition("-")[0] for path in list_folders(stocked.shared / "views")}
    assert stocked.status()["state"] == "in_sync"
    assert_whole(stocked, scratch(tmp_path))


BETWEEN = {
    "sync": ("vmrag_link.sync.apply", "_switch_work_tree", ("sync",)),
    "add": (
        "vmrag_link.workspace.documents.writing",
        "_refuse_sources",
        ("add", "-m", "Paused.", "--collection", "handbook", "--id", "paused.md"),
    ),
    "query": ("vmrag_link.workspace.follow.follow_pin", "list_pending", ("query", "garden")),
}
"""By command: the function that it calls between its read of HEAD and the pin and its use of
them.
"""


@pytest.mark.parametrize("command", BETWEEN)
def test_paused_command_follows_head_after_two_concurrent_switches(stocked, tmp_path, command):
    module, function, arguments = BETWEEN[command]
    stocked.git("switch", "-q", "edited", env={"VMRAG": "0"})
    git = f"['git', '-C', {str(stocked.top)!r}, 'switch', '-q', branch]"
    body = (
        f"import subprocess\nimport {module} as m\noriginal = m.{function}\nbranches = ['main', 'other']\n"
        "def pause(*values, **options):\n"
        "    while branches:\n"
        "        branch = branches.pop(0)\n"
        f"        subprocess.run({git}, check=True)\n"
        "    return original(*values, **options)\n"
        f"m.{function} = pause"
    )
    result = run_patched(stocked, body, *arguments)
    assert result.code == 0, result
    assert stocked.git("branch", "--show-current") == "other"
    status = stocked.status()
    assert (status["in_sync"], status["index"]["revision"]) == (True, stocked.pinned)
    assert status["kb"]["dirty"] == (command == "add")
    if command == "add":
        assert stocked.vmrag("show", "handbook/paused.md").out == "Paused.\n"
        stocked.git("switch", "-q", "edited")
        assert not stocked.status()["kb"]["dirty"]
    assert_whole(stocked, scratch(tmp_path))


def test_eviction_rechecks_views_bound_in_between(stocked):
    """The list of bound views was read before another work tree bound one of the spares."""
    workspace = Workspace.open(stocked.top, QUIET)
    try:
        spares = workspace.views.list_spare(bound=set(), keep_bytes=0)
        # That of the empty knowledge base takes no room, so it stays in any case.
        assert {*spares} == {view.path for view in workspace.views.list_views() if list_segments(view.path)}
        assert len(spares) > 1
        lists = iter([set(), *[set(spares)] * len(spares)])
        assert workspace.views.evict_spare(bound=lambda: next(lists), keep_bytes=0) == []
        assert all(path.is_dir() for path in spares)
    finally:
        workspace.close()


def test_evicted_base_is_replaced_by_another_or_none(stocked, tmp_path):
    stocked.git("switch", "-q", "edited", env={"VMRAG": "0"})
    view_of(stocked).rename(tmp_path / "gone")
    body = (
        "import shutil\nfrom vmrag_link.sync import build as m\nnearest = m._find_nearest\n"
        "def then(*a):\n    found = nearest(*a)\n    if found: shutil.rmtree(found.path)\n    return found\nm._find_nearest = then"
    )
    result = run_patched(stocked, body, "sync", "--json")
    assert result.code == 0, result
    assert result.json["snapshot"]["how"] == "fresh"
    assert_whole(stocked, scratch(tmp_path))


def test_query_rebuilds_bound_index_that_disappeared(stocked, tmp_path):
    body = (
        "import shutil\nfrom vmrag_link.workspace import Workspace as m\nbring = m.bring_to_pin\n"
        "def then(ws, **options):\n    done = bring(ws, **options)\n    shutil.rmtree(ws.views.view_path(ws.require_revision()))\n    return done\nm.bring_to_pin = then"
    )
    result = run_patched(stocked, body, "query", "garden", "--json")
    assert result.code == 0, result
    assert result.json["results"]
    assert_whole(stocked, scratch(tmp_path))


def test_uncommitted_documents_that_were_written_from_another_worktree_are_found(stocked, tmp_path):
    """A code branch moves from one work tree to another and back; each of them adds a document to
    it.
    """
    stocked.git("switch", "-q", "-c", "feature")
    stocked.put("one.md", "From the first work tree.")
    stocked.git("switch", "-q", "main")
    second = worktree(stocked, tmp_path / "second", "feature")
    second.put("two.md", "From the second work tree.")
    second.git("switch", "-q", "--detach")
    stocked.git("switch", "-q", "feature")
    doc_ids = {
        result["doc_id"] for result in stocked.ask("query", "work tree", "--mode", "keyword", "-k", "9")["results"]
    }
    assert {"one.md", "two.md"} <= doc_ids
    assert_whole(stocked, scratch(tmp_path))


def test_working_copies_of_committed_documents_do_not_pile_up(stocked):
    for number in range(3):
        stocked.put("note.md", f"Note {number}.")
        stocked.vmrag("commit", "-m", "note")
    assert list_folders(stocked.shared / "uncommitted") == []


def test_rebuild_fails_without_changes_while_another_process_reads_the_index(stocked):
    stocked.git("config", "vmrag.lock-timeout-s", "1")
    reader = holding(stocked, "ws.reader.view()")
    result = stocked.vmrag("sync", "--rebuild", "--json", code=3)
    assert error_of(result)["code"] == "BUSY"
    assert "another process reads it" in error_of(result)["message"]
    assert stocked.vmrag("query", "garden").code == 0
    reader.signal(signal.SIGKILL)
    reader.done()
    stocked.vmrag("sync", "--rebuild")


def test_sync_without_work_removes_leftovers_of_killed_processes(stocked):
    for name in ("views", "segments"):
        (stocked.shared / name / ".building-0123456789ab" / "deep").mkdir(parents=True)
    stocked.vmrag("sync")
    assert list_unfinished(stocked) == []


# -- waiting in vain -------------------------------------------------------------------------------


@pytest.mark.parametrize("lock", [WORKSPACE, KNOWLEDGE])
def test_write_that_times_out_names_the_process_with_the_lock(stocked, lock):
    holder = holding(stocked, lock)
    since = time.monotonic()
    result = start(
        stocked,
        "add",
        "docs/page-1.md",
        "--collection",
        "handbook",
        "--copy",
        "--id",
        "x",
        "--json",
        VMRAG_LOCK_TIMEOUT_S="1",
    ).done()
    assert time.monotonic() - since < 15 * slack()
    assert result.code == 3
    error = error_of(result)
    assert error["code"] == "BUSY"
    assert error["details"]["holder_pid"] == holder.process.pid
    assert f"process {holder.process.pid} (test) has held" in error["message"]
    assert f"ps -fp {holder.process.pid}" in error["hint"]
    assert stocked.vmrag("query", "garden").code == 0  # questions do not wait
    holder.signal(signal.SIGKILL)
    holder.done()
    stocked.put("x", "now it works")


def test_holder_that_was_killed_is_not_named(stocked):
    killed_one = holding(stocked, WORKSPACE)
    killed_one.signal(signal.SIGKILL)
    killed_one.done()
    assert (stocked.own / "workspace.lock.holder").exists()
    reader = holding(stocked, "locks.hold_shared(ws.places.workspace_lock, purpose='test', timeout=0)")
    result = start(
        stocked,
        "add",
        "docs/page-1.md",
        "--collection",
        "handbook",
        "--copy",
        "--id",
        "x",
        "--json",
        VMRAG_LOCK_TIMEOUT_S="0",
    ).done()
    assert "another process" in error_of(result)["message"]
    reader.signal(signal.SIGKILL)
    reader.done()


@pytest.mark.parametrize("lock", [WORKSPACE, KNOWLEDGE])
def test_checkout_does_not_wait_for_a_long_write(stocked, tmp_path, lock):
    holder = holding(stocked, lock)
    since = time.monotonic()
    moved = stocked.run("switch", "-q", "edited")
    assert time.monotonic() - since < 5 * slack()
    assert moved.returncode == 0
    assert len(moved.stderr.splitlines()) <= 1
    holder.signal(signal.SIGKILL)
    holder.done()
    stocked.vmrag("sync")
    assert_whole(stocked, scratch(tmp_path))


# -- git goes on -----------------------------------------------------------------------------------


def interpreter_gone(project: Project) -> None:
    (project.shared / "interpreter").write_text("/nowhere/python\n")


def knowledge_broken(project: Project) -> None:
    (project.shared / "kb" / DATABASE_FILE).write_bytes(b"garbage" * 1000)


def knowledge_gone(project: Project) -> None:
    (project.shared / "kb" / DATABASE_FILE).unlink()


def views_a_file(project: Project) -> None:
    (project.shared / "views").rename(project.shared / "aside")
    (project.shared / "views").write_text("not a folder")


def segments_a_file(project: Project) -> None:
    (project.shared / "segments").rename(project.shared / "aside")
    (project.shared / "segments").write_text("not a folder")


def journal_a_file(project: Project) -> None:
    (project.shared / "journal").rename(project.shared / "aside")
    (project.shared / "journal").write_text("not a folder")


def settings_broken(project: Project) -> None:
    project.write(".vmrag.yaml", "embedding: [\n")


BROKEN = [
    interpreter_gone,
    knowledge_broken,
    knowledge_gone,
    views_a_file,
    segments_a_file,
    journal_a_file,
    settings_broken,
]


@pytest.mark.parametrize(
    ("command", "broken"),
    crossed([("switch", "-q", "edited"), ("merge", "-q", "edited"), ("rebase", "-q", "edited")], BROKEN),
)
@pytest.mark.sample(3)
def test_git_succeeds_despite_broken_vmrag_and_prints_one_line(stocked, broken, command, tmp_path):
    broken(stocked)
    if command[0] != "switch":
        stocked.run("checkout", "-q", "--", ".vmrag.yaml")
    (tmp_path / "bin").mkdir()
    for program in ("git", "sh", "mkdir"):
        (tmp_path / "bin" / program).symlink_to(shutil.which(program))
    result = stocked.run(*command, env={"PATH": str(tmp_path / "bin")})
    assert result.returncode == 0, result
    assert len([line for line in result.stderr.splitlines() if line]) <= 1, result.stderr


def test_commands_and_hooks_print_the_log_of_a_bug_once(stocked):
    site = stocked.top.parent / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import vmrag_link.workspace.follow.follow_pin as m\ndef broken(*_): raise ZeroDivisionError('a test')\nm.follow = broken\n"
    )
    python = stocked.top.parent / "python"
    python.write_text(f'#!/bin/sh\nshift 2 # -P -E\nPYTHONPATH={site} exec {sys.executable} -P "$@"\n')
    python.chmod(0o755)
    (stocked.shared / "interpreter").write_text(f"{python}\n")
    moved = stocked.run("switch", "-q", "edited")
    assert moved.returncode == 0
    lines = moved.stderr.splitlines()
    assert len(lines) == 1
    assert "a bug: ZeroDivisionError" in lines[0]
    assert Path(lines[0].rpartition(": ")[2]).read_text().count("ZeroDivisionError")


def test_killed_hook_leaves_no_lock_that_anyone_waits_for(stocked, tmp_path):
    stocked.git("switch", "-q", "edited", env={"VMRAG": "0"})
    for moment in (0.1, 0.15, 0.2):
        run_killed(stocked, moment, "sync")
    since = time.monotonic()
    stocked.vmrag("sync")
    assert time.monotonic() - since < 10 * slack()
    assert json.loads(stocked.run_quietly("status", "--json").out)["state"] == "in_sync"
    assert list((stocked.shared / "journal").iterdir()) == []
    assert_whole(stocked, scratch(tmp_path))
