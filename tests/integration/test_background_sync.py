"""Background syncs: how a checkout starts one, how it is shown, and what a query does while it
runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.pace import slack
from tests.support.terminal import Project
from vmrag_hooks import run
from vmrag_link import locks
from vmrag_link.git import plumbing
from vmrag_link.sync import background

template, project = terminal.template, terminal.project

ASIDE = {"VMRAG_HOOKS_SYNC": "background"}
LINE = "vmrag: syncing in the background; run 'vmrag status' to see the state"


def switched(project: Project, branch: str, **environ: str) -> list[str]:
    result = project.run("switch", "-q", branch, env=environ)
    assert result.returncode == 0, result.stderr
    return result.stderr.splitlines()


def bound(project: Project) -> str:
    return json.loads((project.own / "workspace.json").read_text())["revision"]


def ended(project: Project) -> None:
    assert background.wait_for_end(background.get_sync_job(plumbing.locate_work_tree(project.top)), within=60)


def log(project: Project) -> str:
    return (project.own / "sync.log").read_text()


@pytest.fixture
def held(project: Project):
    """Hold the lock as if a process synced this working tree, while the context lasts."""
    return lambda: locks.hold_exclusive(project.own / "sync.lock", purpose="sync in the background", timeout=1)


def test_git_does_not_wait_and_the_index_follows(project):
    assert switched(project, "feature", **ASIDE) == [LINE]
    ended(project)
    assert bound(project) == project.pinned
    assert f"done: {project.pinned}" in log(project)
    assert project.status()["state"] == "in_sync"
    assert project.status()["background"] is None
    assert not (project.own / "sync.request").exists()
    assert project.consistent()


def test_sync_is_not_started_without_a_move(project):
    assert switched(project, "main", **ASIDE) == []
    project.git("branch", "same")
    assert switched(project, "same", **ASIDE) == [], "another branch with the same knowledge"
    project.git("commit", "-q", "--allow-empty", "-m", "x", env=ASIDE)
    assert not (project.own / "sync.log").exists()
    assert switched(project, "feature", **ASIDE) == [LINE]
    ended(project)
    assert "started" in log(project)


def test_pipe_around_git_does_not_wait_for_the_sync(project):
    """A program that captures git's output waits until all processes have closed it."""
    slow = project.write("slow.py", "import time; time.sleep(8)")
    project.write(".git/vmrag/interpreter", f"{sys.executable}\n")
    since = time.monotonic()
    with locks.hold_exclusive(
        project.own / "workspace.lock", purpose="test", timeout=1
    ):  # the sync has to wait for this
        assert switched(project, "feature", **ASIDE) == [LINE]
        assert time.monotonic() - since < 5 * slack()
    ended(project)
    slow.unlink()
    assert bound(project) == project.pinned


def test_auto_lets_git_wait_for_small_changes_only(project):
    assert switched(project, "feature") == [
        f"vmrag: the knowledge base is now at {project.pinned[:7]} (+1 ~1 -2 documents)"
    ]
    project.forget_indexes()
    for number in range(60):
        project.write(f"many/{number}.md", f"# Page {number}\n\nText of the page {number}.\n")
    project.vmrag("import", "many", "--collection", "many", "--base", "many")
    project.record("many")
    (project.shared / "embeddings.sqlite").unlink()
    switched(project, "main")
    project.forget_indexes()
    (project.shared / "embeddings.sqlite").unlink(missing_ok=True)
    assert switched(project, "feature") == [LINE], "sixty texts have to be embedded"
    ended(project)
    assert bound(project) == project.pinned
    assert switched(project, "main") == [
        f"vmrag: the knowledge base is now at {project.pinned[:7]} (+2 ~1 -61 documents)"
    ]
    project.forget_indexes()
    assert switched(project, "feature", VMRAG_HOOKS_SYNC="foreground")[0].startswith(
        "vmrag: the knowledge base is now at"
    )
    assert bound(project) == project.pinned


def test_requests_during_a_sync_are_answered_by_the_one_that_runs(project, held):
    with held():
        assert switched(project, "feature", **ASIDE) == [LINE]
        assert switched(project, "main", **ASIDE) == [], "where it still stands"
        assert switched(project, "feature", **ASIDE) == [LINE]
        assert not (project.own / "sync.log").exists(), "no process was started"
        assert (project.own / "sync.request").exists()
    started = subprocess.run([sys.executable, "-P", "-m", "vmrag_hooks.background"], cwd=project.top, check=True)
    assert started.returncode == 0
    assert bound(project) == project.pinned
    assert log(project).count("started") == 1


def test_many_checkouts_at_once_end_at_the_last_one(project):
    for branch in ["feature", "main"] * 5 + ["feature"]:
        switched(project, branch, **ASIDE)
    ended(project)
    assert bound(project) == project.pinned
    assert project.status()["state"] == "in_sync"
    assert project.consistent()


def test_killed_sync_is_completed_by_the_next_command(project):
    with locks.hold_exclusive(project.own / "workspace.lock", purpose="test", timeout=1):
        switched(project, "feature", **ASIDE)
        deadline = time.monotonic() + 20
        while "started" not in (log(project) if (project.own / "sync.log").exists() else ""):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(
            background.read_report(background.get_sync_job(plumbing.locate_work_tree(project.top))).pid, signal.SIGKILL
        )
    ended(project)
    assert project.ask("query", "uv")["kb"]["commit"] == project.pinned
    assert project.status()["background"] is None


def test_failed_sync_is_reported_by_status_until_one_succeeds(project):
    project.commit("code", **{"code.py": "1"})
    project.write(".dolt-version", "{")
    project.git("commit", "-q", "--no-verify", "-a", "-m", "bad", env={"VMRAG": "0"})
    switched(project, "feature", **ASIDE)
    ended(project)
    switched(project, "main", **ASIDE)
    ended(project)
    report = project.run_quietly("status", "--json")
    content = json.loads(report.out)
    assert "is not JSON" in content["background"]["error"]
    assert any("background sync failed" in reason and "sync.log" in reason for reason in content["reasons"])
    switched(project, "feature", **ASIDE)
    ended(project)
    assert project.status()["background"] is None


def test_status_shows_how_far_a_sync_is(project, held):
    with held():
        watched = background.WatchedProgress(background.get_sync_job(plumbing.locate_work_tree(project.top)), print)
        with watched.task("building the index", 40) as task:
            task.advance(10)
            time.sleep(background.WRITE_SECONDS)
            task.advance(10)
            status = project.status()
            assert status["background"]["doing"] == "building the index"
            assert (status["background"]["done"], status["background"]["total"]) == (20, 40)
            assert any("building the index, 20 of 40" in reason for reason in status["reasons"])


def test_log_is_kept_small(project, monkeypatch):
    (project.own / "sync.log").write_text("x" * 300_000)
    switched(project, "feature", **ASIDE)
    ended(project)
    assert len(log(project)) < 2_000
    assert (project.own / "sync.log.1").stat().st_size == 300_000


# -- queries meanwhile


def test_query_waits_for_a_sync_that_ends_in_time(project):
    with locks.hold_exclusive(project.own / "workspace.lock", purpose="test", timeout=1):
        switched(project, "feature", **ASIDE)
        result = subprocess.Popen(
            [terminal.SCRIPT, "query", "uv", "--json"], cwd=project.top, stdout=subprocess.PIPE, text=True
        )
        time.sleep(0.5)
        assert result.poll() is None
    answer = json.loads(result.communicate(timeout=60)[0])
    assert answer["kb"]["commit"] == project.pinned
    assert answer["kb"]["in_sync"]
    ended(project)


def test_query_answers_from_old_revision_after_waiting_for_sync(project, held):
    before = project.pinned
    with held():
        switched(project, "feature", **ASIDE)
        answer = project.ask("query", "uv", env={"VMRAG_HOOKS_WAIT_S": "0"})
        assert answer["kb"]["commit"] == before
        assert not answer["kb"]["in_sync"]
        assert any(before[:7] in note and "background" in note for note in answer["notes"])
    answer = project.ask("query", "uv")
    assert answer["kb"]["commit"] == project.pinned
    assert answer["notes"] == []


def test_add_waits_for_background_sync_and_lands_on_the_pin(project):
    with locks.hold_exclusive(project.own / "workspace.lock", purpose="test", timeout=1):
        switched(project, "feature", **ASIDE)
        adding = subprocess.Popen(
            [terminal.SCRIPT, "add", "-", "--collection", "handbook", "--id", "new.md", "--json"],
            cwd=project.top,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        time.sleep(0.3)
        assert adding.poll() is None
    adding.communicate("new", timeout=60)
    assert adding.returncode == 0
    ended(project)
    assert project.marks()["new.md"] == "added"
    assert project.status()["state"] == "in_sync"


def test_next_command_names_documents_that_background_sync_stashed_once(project):
    project.put("rest.md", "# Rest\n\nRest on Sundays.\n")
    project.git("update-ref", "refs/heads/main", "feature")
    project.git("reset", "-q", "--hard", env={"VMRAG": "0"})
    project.git("checkout", "-q", "--force", "main", env=ASIDE)
    ended(project)
    assert "vmrag/wip/main" in " ".join(project.status()["reasons"])
    first, second = project.vmrag("query", "rest"), project.vmrag("query", "rest")
    assert "vmrag merge vmrag/wip/main" in first.err
    assert "vmrag/wip" not in second.err


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
@pytest.mark.parametrize("why", ["too much", "a lock", "nothing"])
def test_hook_reports_all_stashed_documents_despite_its_sync(project, monkeypatch, capsys, why):
    project.git("switch", "-q", "feature", env={"VMRAG": "0"})
    progress = background.WatchedProgress(
        background.get_sync_job(plumbing.locate_work_tree(project.top)), lambda _: None
    )
    for note in (
        "'main' left revision 1, which is kept.",
        "Back: vmrag merge vmrag/wip/a",
        "Back: vmrag merge vmrag/wip/b",
    ):
        progress.note(note)
    monkeypatch.setenv("VMRAG_HOOKS_QUIET", "1")
    with contextlib.ExitStack() as stack:
        if why == "too much":
            project.forget_indexes()
            monkeypatch.setattr(run, "QUICK_WORK", {"building the index": 0, "embedding": 0})
        elif why == "a lock":
            stack.enter_context(locks.hold_exclusive(project.own / "workspace.lock", purpose="test", timeout=1))
        run.follow_pin(project.top)
    ended(project)
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert line.endswith("Back: vmrag merge vmrag/wip/a; Back: vmrag merge vmrag/wip/b\n")
    assert ("cannot switch the workspace" in line) == (why == "a lock")
    assert (project.own / "sync.log").exists() == (why == "too much")
    assert "vmrag/wip" not in project.vmrag("query", "uv").err, "it was said"


def test_background_sync_ends_if_its_work_tree_is_removed(project):
    project.git("worktree", "add", "-q", "../linked", "feature", env={"VMRAG": "0"})
    linked = Project(project.top.parent / "linked")
    own_folder = linked.own
    own_folder.mkdir()
    with locks.hold_exclusive(own_folder / "workspace.lock", purpose="test", timeout=1):
        linked.git("checkout", "-q", "feature", env=ASIDE)
        pid = holder(own_folder)
        deadline = time.monotonic() + 20
        report = own_folder / "sync.json"  # written by who holds the lock, a moment later
        while not report.exists() or json.loads(report.read_text())["pid"] != pid or "started" not in log(linked):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.5)  # it waits for the lock now
        project.git("worktree", "remove", "--force", "../linked")
    assert ended_process(pid)
    assert not own_folder.parent.exists()
    assert not linked.top.exists()


def holder(own_folder: Path) -> int:
    """The process that syncs a work tree."""
    deadline = time.monotonic() + 20
    while (result := locks.read_holder(own_folder / "sync.lock")) is None or not (own_folder / "sync.log").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return result[0]


def ended_process(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while locks.is_process_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not locks.is_process_alive(pid)


def test_status_names_the_rebase_for_which_hooks_wait(project):
    project.git("switch", "-q", "-c", "side", "first")
    project.commit("code", **{"code.py": "1"})
    editor = {"GIT_SEQUENCE_EDITOR": "sed -i -e '1i break'"}
    project.git("rebase", "-q", "-i", "feature", env=editor)
    assert any("wait for the end of a rebase" in reason or "names" in reason for reason in project.status()["reasons"])
    assert project.ask("query", "uv")["kb"]["commit"] == project.pinned
    project.git("rebase", "--continue")
    assert project.status()["state"] == "in_sync"
