"""`vmrag commit` killed at each of its steps, and everything that may happen before the next
command.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import terminal
from tests.support.cli import error_of, run_patched, start
from tests.support.compare import assert_whole
from tests.support.indexes import list_unfinished
from tests.support.long import crossed
from tests.support.repos import ENGINE_CLASS
from tests.support.terminal import Project
from vmrag_link import hints
from vmrag_link.git import staging
from vmrag_link.sync import apply
from vmrag_link.workspace.follow import follow_pin
from vmrag_link.workspace.follow.follow_pin import follow

template, project = terminal.template, terminal.project

STEPS = {
    "before the journal's entry": "import vmrag_link.journal as m; m.Journal.record_entry = die",
    "once the entry is durable": (f"from {ENGINE_CLASS} as m\nm.commit = die"),
    "once the knowledge base is committed": "import vmrag_link.workspace.pins.pinning as m; m.write_pin = die",
    "before the pin's rename": (
        "from pathlib import Path\nreplace = Path.replace\n"
        "Path.replace = lambda old, new: die() if Path(new).name == '.dolt-version' else replace(old, new)"
    ),
    "before the pin is staged": "from vmrag_link.git import staging as m; m.stage_path = die",
    "once the pin is staged": "import vmrag_link.journal as m; m.Journal.remove_entry = die",
    "while the index is derived": "from vmrag_link.index.draft import Draft as m; m._finish_segments = die",
    "between its segments and its view": "from vmrag_link.index import draft as m; m.seal_view = die",
    "before the view's rename": "from vmrag_link.index.views import Views as m; m.publish = die",
    "before workspace.json": "from vmrag_link.sync import binding as m; m.write_binding = die",
    "between workspace.json and applied": "from vmrag_link.sync import binding as m; m.note_applied = die",
    "before the spares are removed": "from vmrag_link.sync import apply as m; m.remove_leftovers = die",
}
"""Function that is patched to kill the process there."""

COMMITTED = list(STEPS)[2:]
"""Steps after which the knowledge base has the revision: the next command has to pin it."""

PINNED = list(STEPS)[4:]

NEXT = {
    "status, then sync": [("status",), ("sync",)],
    "sync": [("sync",)],
    "commit": [("commit", "-m", "again")],
    "query": [("query", "uv")],
    "list": [("list",), ("sync",)],  # `list` needs no index, and makes none
}


def dies(project: Project, step: str, *, message: str = "note") -> None:
    result = run_patched(project, STEPS[step], "commit", "-m", message)
    assert result.code == -signal.SIGKILL, result
    assert result.out == ""


@pytest.fixture
def noted(project: Project) -> Project:
    """With one uncommitted document on `main`."""
    project.put("note.md", "A note about zebras.")
    return project


def finished(project: Project, scratch: Path, before: str) -> None:
    """Committed, pinned, staged, indexed, and nothing is left to do."""
    assert project.pinned != before
    assert project.ask("log")["revisions"][0]["revision"] == project.pinned
    assert project.ask("log")["revisions"][0]["parents"] == [before]
    assert project.git("status", "--porcelain") == "M  .dolt-version"
    assert project.status()["state"] == "in_sync"
    assert project.marks()["note.md"] is None
    assert ("handbook", "note.md") in assert_whole(project, scratch)
    settled(project)


def settled(project: Project) -> None:
    project.vmrag("sync")
    assert [path.name for path in (project.shared / "journal").iterdir()] == []
    assert list_unfinished(project) == []
    assert not list(project.top.glob(".*.tmp"))


@pytest.mark.parametrize(("step", "then"), crossed(COMMITTED, NEXT))
@pytest.mark.sample(4)
def test_next_command_finishes_a_killed_commit(noted, tmp_path, step, then):
    before = noted.pinned
    (tmp_path / "scratch").mkdir()
    dies(noted, step)
    assert (noted.pinned != before) == (step in PINNED)
    for command in NEXT[then]:
        result = noted.run_quietly(*command, "--json")
        if command[0] == "commit":
            assert (result.code, error_of(result)["code"]) == (1, "NO_CHANGES")
        elif command[0] == "status":
            unfinished = step != "before the spares are removed"
            assert result.code == int(unfinished)
            assert ("not finished" in result.out) == (
                list(STEPS).index(step) <= list(STEPS).index("once the pin is staged")
            )
        else:
            assert result.code == 0, result
    finished(noted, tmp_path / "scratch", before)


@pytest.mark.parametrize(
    ("step", "then"), crossed([step for step in STEPS if step not in COMMITTED], ["sync", "query", "list", "commit"])
)
@pytest.mark.sample(2)
def test_kill_before_the_knowledge_base_is_committed_leaves_the_documents_uncommitted(noted, tmp_path, step, then):
    before = noted.pinned
    (tmp_path / "scratch").mkdir()
    dies(noted, step)
    assert noted.pinned == before
    for command in NEXT[then]:
        noted.vmrag(*command)
    if then == "commit":
        finished(noted, tmp_path / "scratch", before)
        return
    assert noted.pinned == before
    assert noted.marks()["note.md"] == "added"
    assert ("handbook", "note.md") in assert_whole(noted, tmp_path / "scratch")
    settled(noted)


@pytest.mark.parametrize("step", COMMITTED)
@pytest.mark.sample(2)
def test_checkout_elsewhere_and_back_finishes_the_commit(noted, tmp_path, step):
    before = noted.pinned
    (tmp_path / "scratch").mkdir()
    dies(noted, step)
    # If the pin was written, git refuses to overwrite it. The test stashes it, as git advises.
    if step in PINNED:
        noted.git("stash", "-q")
    said = noted.run("switch", "feature")
    assert said.returncode == 0
    assert len(said.stderr.splitlines()) <= 2  # git's own line and one line of vmrag
    assert noted.status()["state"] == "in_sync"
    assert "uv.md" in noted.texts()
    assert "note.md" not in noted.texts()
    back = noted.run("switch", "main")
    assert back.returncode == 0
    if step in PINNED:
        noted.git("stash", "pop", "-q", "--index")
        noted.vmrag("sync")
    finished(noted, tmp_path / "scratch", before)


def test_next_command_on_another_branch_reports_an_unpinned_revision(noted, tmp_path):
    before = noted.pinned
    (tmp_path / "scratch").mkdir()
    dies(noted, "once the knowledge base is committed")
    revision = noted.ask("branch")["branches"][-1]["revision"]
    noted.git("switch", "-q", "feature", env={"VMRAG": "0"})
    for _ in range(2):  # until it is repaired
        said = noted.vmrag("query", "zebra").err
        assert "UNPINNED_REVISION" in said
        assert f"git switch main && vmrag pin {revision}" in said
    noted.git("switch", "-q", "main", env={"VMRAG": "0"})
    assert "Finished an interrupted commit" in noted.vmrag("sync").err
    finished(noted, tmp_path / "scratch", before)
    assert noted.pinned == revision


def test_checkout_hook_also_reports_it(noted):
    dies(noted, "once the knowledge base is committed")
    said = noted.run("switch", "feature").stderr
    assert "UNPINNED_REVISION" in said
    assert len([line for line in said.splitlines() if line.startswith("vmrag:")]) == 1
    assert "Finished an interrupted commit" in noted.run("switch", "main").stderr


def test_other_worktree_on_the_branch_finishes_the_commit(noted, tmp_path):
    before = noted.pinned
    (tmp_path / "scratch").mkdir()
    dies(noted, "once the knowledge base is committed")
    noted.git("switch", "-q", "feature", env={"VMRAG": "0"})
    noted.git("worktree", "add", "-q", str(tmp_path / "second"), "main", env={"VMRAG": "0"})
    second = Project(tmp_path / "second")
    assert "Finished an interrupted commit" in second.vmrag("query", "zebra").err
    finished(second, tmp_path / "scratch", before)
    assert noted.run_quietly("query", "uv").err == ""
    settled(noted)


def test_entry_of_a_removed_worktree_is_finished_on_its_branch(project, tmp_path):
    project.git("worktree", "add", "-q", "-b", "third", str(tmp_path / "third"), "main")
    third = Project(tmp_path / "third")
    third.put("note.md", "A note about zebras.")
    before = third.pinned
    dies(third, "once the knowledge base is committed")
    project.git("worktree", "remove", "--force", str(tmp_path / "third"))
    assert project.run_quietly("sync").err == ""  # not this work tree's branch
    assert "Finished an interrupted commit" in project.run("switch", "third").stderr
    assert project.pinned != before
    assert "note.md" in project.texts()
    settled(project)


def test_recovery_keeps_pin_changed_by_hand_and_prints_the_unpinned_revision(noted, tmp_path):
    (tmp_path / "scratch").mkdir()
    dies(noted, "once the knowledge base is committed")
    revision = noted.ask("branch")["branches"][-1]["revision"]
    by_hand = noted.git("show", "feature:.dolt-version") + "\n"
    noted.write(".dolt-version", by_hand)
    said = noted.vmrag("sync").err
    assert "UNPINNED_REVISION" in said
    assert f"To pin it: vmrag pin {revision}" in said
    assert (noted.top / ".dolt-version").read_text() == by_hand
    assert "uv.md" in noted.texts()
    assert "UNPINNED" not in noted.vmrag("sync").err  # printed once: nothing remains to finish
    noted.vmrag("gc", "--apply")
    noted.vmrag("pin", revision)
    assert noted.texts()["note.md"] == "A note about zebras."
    assert_whole(noted, tmp_path / "scratch")


def test_commit_is_not_finished_in_the_middle_of_a_merge(noted, tmp_path):
    noted.git("switch", "-q", "-c", "side")
    noted.commit("side", **{"code.py": "1\n"})
    noted.git("switch", "-q", "main")
    noted.commit("main", **{"code.py": "2\n"})
    dies(noted, "once the knowledge base is committed")
    before = noted.pinned
    assert noted.run("merge", "side").returncode == 1
    assert "UNPINNED_REVISION" in noted.vmrag("query", "zebra").err
    assert noted.pinned == before
    noted.git("merge", "--abort")
    assert "Finished" in noted.vmrag("query", "zebra").err
    assert noted.pinned != before


FAILURES = {
    "Ctrl-C": "raise KeyboardInterrupt",
    "a disk that is full for a moment": "raise OSError(28, 'No space left on device')",
}


@pytest.mark.parametrize("failure", FAILURES)
def test_error_is_finished_as_a_kill_is(noted, tmp_path, failure):
    before = noted.pinned
    (tmp_path / "scratch").mkdir()
    fails = (
        f"def fails(*_, **__): {FAILURES[failure]}\nimport vmrag_link.workspace.pins.pinning as m; m.write_pin = fails"
    )
    assert run_patched(noted, fails, "commit", "-m", "note").code != 0
    assert noted.pinned == before
    assert "Finished an interrupted commit" in noted.vmrag("query", "zebra").err
    finished(noted, tmp_path / "scratch", before)


LOCKED = (
    "from pathlib import Path\nfrom vmrag_link.git import staging as m\nstage = m.stage_path\n"
    "def then(*a, **k):\n    Path('.git/index.lock').touch()\n    return stage(*a, **k)\nm.stage_path = then"
)
"""Another git command takes the index between the pin and `git add`, and keeps it."""


def test_commit_under_index_lock_writes_the_pin_without_staging_it(noted, tmp_path):
    before = noted.pinned
    (tmp_path / "scratch").mkdir()
    result = run_patched(noted, LOCKED, "commit", "-m", "note", "--json")
    assert result.code == 1
    assert result.json["staged"] is False
    assert "index.lock" in result.json["pending"]
    assert result.json["pin"]["dolt_commit"] == result.json["revision"] == noted.pinned != before
    (noted.top / ".git" / "index.lock").unlink()
    assert noted.git("status", "--porcelain") == "M .dolt-version"  # stripped: not in the index
    noted.vmrag("sync")
    noted.git("add", ".dolt-version")
    finished(noted, tmp_path / "scratch", before)


def test_index_lock_error_explains_the_remaining_steps(noted):
    result = run_patched(noted, LOCKED, "commit", "-m", "note")
    assert result.code == 1
    assert "hint: run 'git add .dolt-version'" in result.out


def test_commit_fails_and_query_answers_while_git_holds_the_index(noted):
    before = noted.pinned
    (noted.top / ".git" / "index.lock").touch()
    result = noted.vmrag("commit", "-m", "note", "--json", code=3)
    assert error_of(result)["code"] == "GIT_BUSY"
    hint = error_of(result)["hint"]
    assert f"{noted.top}/.git/index.lock" in hint
    assert "rm " not in hint
    assert "note.md" in noted.vmrag("query", "zebra").out
    (noted.top / ".git" / "index.lock").unlink()
    assert noted.pinned == before
    noted.vmrag("commit", "-m", "note")


@pytest.mark.parametrize("moment", ["before the pin", "after the pin", "with the pin"])
@pytest.mark.sample(2)
def test_commit_notices_a_concurrent_checkout_and_finishes_after_return(noted, tmp_path, moment):
    """Another terminal switches branches between the knowledge base's commit and the end of `git
    add`.
    """
    before = noted.pinned
    (tmp_path / "scratch").mkdir()
    noted.git("branch", "twin")  # pins the same, so that git carries the new pin along
    way = "'twin'" if moment == "with the pin" else "'-f', 'feature'"
    switch = f"subprocess.run(['git', 'switch', '-q', {way}], env=os.environ | {{'VMRAG': '0'}}, check=True)"
    body = {
        "before the pin": (
            f"import subprocess\nfrom {ENGINE_CLASS} as m\ncommit = m.commit\n"
            f"def then(*a, **k):\n    made = commit(*a, **k)\n    {switch}\n    return made\nm.commit = then"
        ),
        "after the pin": (
            "import subprocess\nfrom vmrag_link.git import staging as m\nstage = m.stage_path\n"
            f"def then(*a, **k):\n    {switch}\n    return stage(*a, **k)\nm.stage_path = then"
        ),
    }
    body["with the pin"] = body["after the pin"]
    result = run_patched(noted, body[moment], "commit", "-m", "note", "--json")
    error = error_of(result)
    assert (result.code, error["code"]) == (1, "UNPINNED_REVISION")
    assert error["hint"] == f"run 'git switch main && vmrag pin {error['details']['revision']}'"
    assert noted.git("status", "--porcelain") == ("M  .dolt-version" if moment == "with the pin" else "")
    subprocess.run(
        *hints.list_commands(error["hint"]),
        shell=True,
        cwd=noted.top,
        check=True,
        env=os.environ | {"PATH": f"{Path(terminal.SCRIPT).parent}:{os.environ['PATH']}"},
    )
    finished(noted, tmp_path / "scratch", before)


def test_lock_of_a_killed_git_is_reported_until_it_is_removed(noted, tmp_path, monkeypatch):
    for module in (apply, staging):
        monkeypatch.setattr(module, "INDEX_LOCK_SECONDS", 0.1)
    before = noted.pinned
    (tmp_path / "scratch").mkdir()
    dies(noted, "before the pin is staged")
    lock = noted.top / ".git" / "index.lock"
    lock.touch()
    for _ in range(2):
        err = noted.run_quietly("query", "zebra").err
        assert str(lock) in err
        assert "rm " not in err
    assert noted.pinned != before
    # A query waits for git when it finishes the commit and when it follows the pin, and goes on.
    waits = []
    monkeypatch.setattr(follow_pin, "follow", lambda ws, **options: waits.append(ws) or follow(ws, **options))
    noted.run_quietly("query", "zebra")
    assert len(waits) == 1
    lock.unlink()
    assert "Finished an interrupted commit" in noted.vmrag("sync").err
    finished(noted, tmp_path / "scratch", before)


def test_invalid_entry_is_renamed_and_reported_once(noted, tmp_path):
    (tmp_path / "scratch").mkdir()
    folder = noted.shared / "journal"
    folder.mkdir(exist_ok=True)
    garbage = {
        "a": b"",
        "b": b"\0\0\0\0",
        "c": b'{"type": "commit"}',
        "d": b'{"type":"merge","git_dir":1}',
        "e": b"\xff\xfe",
    }
    for name, content in garbage.items():
        (folder / f"commit-{name}.json").write_bytes(content)
    assert noted.status()["state"] == "in_sync"
    said = noted.vmrag("query", "zebra").err
    assert said.count("cannot be read") == len(garbage)
    assert noted.vmrag("query", "zebra").err == ""
    assert sorted(path.name for path in folder.iterdir()) == [f"commit-{name}.damaged" for name in garbage]
    assert {path.read_bytes() for path in folder.iterdir()} == set(garbage.values())
    noted.vmrag("commit", "-m", "note")
    assert_whole(noted, tmp_path / "scratch")


def test_commit_with_a_damaged_entry_is_drift_that_pin_repairs(noted):
    before = noted.pinned
    dies(noted, "once the knowledge base is committed")
    for path in (noted.shared / "journal").iterdir():
        path.write_bytes(b"garbage")
    said = noted.vmrag("query", "zebra").err
    assert "'vmrag status' shows drift, and 'vmrag pin' finishes the commit" in said
    report = noted.status()
    assert (report["state"], report["hint"]) == ("drift", "run 'vmrag pin' to move the pin there")
    noted.vmrag("pin")
    assert noted.pinned != before
    assert noted.texts()["note.md"] == "A note about zebras."


def test_killed_switch_is_not_taken_for_done_when_head_goes_back(project, tmp_path):
    """Between workspace.json and `applied`: the one names the new revision already, the other still
    the old pair.
    """
    (tmp_path / "scratch").mkdir()
    project.git("switch", "-q", "feature", env={"VMRAG": "0"})
    result = run_patched(project, STEPS["between workspace.json and applied"], "sync")
    assert result.code == -signal.SIGKILL
    project.git("switch", "-q", "main", env={"VMRAG": "0"})
    assert "faq.md" in project.texts()
    assert_whole(project, tmp_path / "scratch")


def test_kill_with_auto_pin_off_needs_no_journal(noted):
    noted.write(".vmrag.yaml", "embedding:\n  model: hash\nauto_pin: false\n")
    before = noted.pinned
    body = f"from {ENGINE_CLASS} as m\ncommit = m.commit\ndef then(*a, **k):\n    commit(*a, **k)\n    die()\nm.commit = then"
    assert run_patched(noted, body, "commit", "-m", "note").code == -signal.SIGKILL
    assert noted.pinned == before
    report = noted.status()
    assert (report["state"], report["hint"]) == ("drift", "run 'vmrag pin' to move the pin there")
    noted.vmrag("pin")
    assert noted.texts()["note.md"] == "A note about zebras."


def test_command_waits_for_running_commit_and_finds_it_done(noted):
    body = (
        "import time\nimport vmrag_link.workspace.pins.pinning as m\nwrite = m.write_pin\n"
        "def slow(*a):\n    open('reached', 'w').close()\n    time.sleep(1)\n    return write(*a)\nm.write_pin = slow"
    )
    script = f"import sys\n{body}\nfrom vmrag_link.cli.main import run\nsys.exit(run(['commit', '-m', 'note']))"
    running = start(noted, program=(sys.executable, "-c", script))
    while not (noted.top / "reached").exists():
        time.sleep(0.01)
    holder = json.loads(noted.run_quietly("status", "--json").out)["reasons"]
    assert f"process {running.process.pid} is running" in " ".join(holder)
    assert noted.vmrag("query", "zebra").err == ""
    assert running.done().code == 0
    assert noted.status()["state"] == "in_sync"
