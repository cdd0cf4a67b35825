"""SIGKILL at random moments: nothing acknowledged is lost, and the next command finds, or makes, an
index like one built afresh.

The moments are drawn from 0 to 1.1 times what an unharmed run takes. VMRAG_TEST_SEED repeats a run
whose seed was printed.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import cli
from tests.support.cli import error_of, measure_duration, pages, run_killed, start, text_of
from tests.support.compare import assert_whole
from tests.support.indexes import list_unfinished
from tests.support.long import LONG
from tests.support.repos import isolate
from tests.support.terminal import Done, Project, new_project, opened
from vmrag_link import pin as pins
from vmrag_link.progress import QUIET
from vmrag_link.workspace import Workspace

library, stocked = cli.library, cli.stocked

SEED = int(os.environ.get("VMRAG_TEST_SEED") or random.SystemRandom().randrange(10**6))
KILLED = -signal.SIGKILL
BRANCHES = ("main", "edited", "other")


class Dice:
    """Draws moments until as many kills as asked for have hit a process that was alive."""

    def __init__(self, name: str, kills: int) -> None:
        print(f"VMRAG_TEST_SEED={SEED}")
        self.random = random.Random(f"{SEED} {name}")
        self.left = kills if LONG else 2

    def rounds(self) -> Iterator[int]:
        number = 0
        while self.left:
            number += 1
            assert number < 200, "the moments of the kills are not drawn from what a run takes"
            yield number

    def moment(self, duration: float) -> float:
        return self.random.uniform(0, 1.1 * duration)

    def count(self, result: Done) -> bool:
        """Return whether the kill hit."""
        self.left -= result.code == KILLED
        return result.code == KILLED


def documents(project: Project) -> dict[str, str]:
    """Texts by id, straight from the knowledge base."""
    workspace = Workspace.open(project.top, QUIET)
    try:
        return {
            document.doc_id: document.content
            for document in workspace.engine.read_documents(workspace.locate_documents())
        }
    finally:
        workspace.close()


def recovered(project: Project, scratch: Path, dice: Dice) -> None:
    """Check the state after a kill and the next ordinary command."""
    command = dice.random.choice([("sync",), ("query", "garden kettle"), ("list",)])
    lock = project.top / ".git" / "index.lock"
    if lock.exists():  # the kill hit our `git add`, which leaves it behind
        assert f"remove {lock} only if that command died" in project.run_quietly("sync").err
        lock.unlink()
    project.vmrag(*command)
    scratch.mkdir()
    assert_whole(project, scratch)
    pin = pins.parse_pin((project.top / ".dolt-version").read_bytes())
    assert project.git("status", "--porcelain", "--", ".").replace("M  .dolt-version", "") == ""
    report = project.status()
    assert report["state"] == "in_sync"
    assert report["pin"]["dolt_commit"] == pin.dolt_commit == report["index"]["revision"]
    if command == ("sync",):
        assert list_unfinished(project) == []
    assert not list((project.shared / "journal").glob("*.json"))


@pytest.mark.parametrize("part", range(8))
@pytest.mark.sample(1)
def test_killed_sync_leaves_the_old_index_or_the_new_one(stocked, tmp_path, part):
    dice = Dice(f"sync {part}", 4)
    # Spares are evicted at once: every sync builds, binds and evicts.
    stocked.git("config", "vmrag.index.keep-mb", "0")
    stocked.git("switch", "-q", BRANCHES[-1])
    stocked.put("note.md", "An uncommitted note on the last branch.")
    kept, duration = BRANCHES[-1], 0.0
    for number in dice.rounds():
        branch_before = stocked.git("branch", "--show-current")
        branch_after = dice.random.choice([branch for branch in BRANCHES if branch != branch_before])
        stocked.git("switch", "-q", branch_after, env={"VMRAG": "0"})
        if not duration:
            duration = measure_duration(stocked, "sync")
            continue
        result = run_killed(stocked, dice.moment(duration), "sync")
        if dice.count(result) and dice.left and dice.random.random() < 0.3:
            dice.count(run_killed(stocked, dice.moment(duration), "sync"))  # a second one on top of the first
        recovered(stocked, tmp_path / f"scratch-{number}", dice)
        assert ("note.md" in documents(stocked)) == (branch_after == kept)


@pytest.mark.parametrize("part", range(8))
@pytest.mark.sample(1)
def test_killed_commit_is_whole_after_the_next_command_or_never_began(stocked, tmp_path, part):
    dice = Dice(f"commit {part}", 3)
    expected = documents(stocked)
    acknowledged = [stocked.pinned]
    duration = 0.0
    for number in dice.rounds():
        name, text = f"new-{number}.md", text_of(10_000 * (part + 1) + number)
        stocked.put(name, text)
        expected[name] = text
        before = stocked.pinned
        if not duration:
            duration = measure_duration(stocked, "commit", "-m", "whole")
            continue
        result = run_killed(stocked, dice.moment(duration), "commit", "-m", f"round {number}", "--json")
        dice.count(result)
        recovered(stocked, tmp_path / f"scratch-{number}", dice)
        report = stocked.status()
        history = [revision["revision"] for revision in stocked.ask("log", "-n", "1000")["revisions"]]
        if result.out:
            acknowledged.append(result.json["revision"])
        assert set(acknowledged) <= set(history)
        assert documents(stocked) == expected
        # Committed and pinned, or neither.
        assert report["kb"]["dirty"] == (stocked.pinned == before)
        assert history[0] == stocked.pinned


@pytest.mark.parametrize("part", range(4))
@pytest.mark.sample(1)
def test_killed_import_stored_all_of_its_documents_or_none(stocked, tmp_path, part):
    dice = Dice(f"import {part}", 3)
    expected = documents(stocked)
    duration = 0.0
    for number in dice.rounds():
        first = 1000 * (part + 1) + number * 20
        pages(stocked, range(first, first + 12), folder="more")
        new = {path.name: path.read_text() for path in (stocked.top / "more").iterdir()}
        command = ("import", "more", "--collection", "handbook", "--base", "more")
        if not duration:
            duration = measure_duration(stocked, *command)
            expected |= new
            continue
        result = run_killed(stocked, dice.moment(duration), *command)
        dice.count(result)
        recovered(stocked, tmp_path / f"scratch-{number}", dice)
        found_values = documents(stocked)
        assert found_values == expected | new or (found_values == expected and not result.out)
        expected = found_values


@pytest.mark.parametrize("part", range(2))
@pytest.mark.sample(1)
def test_killed_add_or_rm_stored_its_change_or_nothing(stocked, tmp_path, part):
    dice = Dice(f"add and rm {part}", 4)
    expected = documents(stocked)
    duration = 0.0
    for number in dice.rounds():
        name = f"note-{number}.md"
        stocked.write(f"more/{name}", text_of(20_000 + number))
        gone = dice.random.choice(sorted(expected))
        adding = dice.random.random() < 0.5 or not duration
        command = (
            ("add", f"more/{name}", "--collection", "handbook", "--id", name)
            if adding
            else ("rm", gone, "--collection", "handbook")
        )
        changed = dict(expected)
        if adding:
            changed[name] = text_of(20_000 + number)
        else:
            del changed[gone]
        if not duration:
            duration = measure_duration(stocked, *command)
            expected = changed
            continue
        result = run_killed(stocked, dice.moment(duration), *command)
        dice.count(result)
        recovered(stocked, tmp_path / f"scratch-{number}", dice)
        found_values = documents(stocked)
        assert found_values == changed or (found_values == expected and not result.out)
        expected = found_values


@pytest.mark.parametrize("part", range(4))
@pytest.mark.sample(1)
def test_killed_library_import_leaves_all_old_or_all_new_versions(stocked, tmp_path, part):
    """Replace or remove documents of a new or existing library, as a whole."""
    dice = Dice(f"library {part}", 4)
    others = documents(stocked)
    command = ("import", "more", "--library", "shelf")
    expected: dict[str, str] = {}
    duration = 0.0
    for number in dice.rounds():
        first = 1000 * (part + 1)
        pages(stocked, range(first, first + 6), folder="more", edition=number)
        new = {path.read_text() for path in (stocked.top / "more").iterdir()}
        if not duration:
            duration = measure_duration(stocked, *command)
            stocked.vmrag("rm", *documents(stocked).keys() - others.keys(), "--collection", "shelf")
            continue
        result = run_killed(stocked, dice.moment(duration), *command)
        dice.count(result)
        recovered(stocked, tmp_path / f"scratch-{number}", dice)
        now = {name: text for name, text in documents(stocked).items() if name not in others}
        assert {*now.values()} == new or (now == expected and not result.out)
        assert not expected or now.keys() == expected.keys(), "a new version is no new document"
        if now and dice.random.random() < 0.3:
            stocked.vmrag("rm", *now, "--collection", "shelf")
            now = {}
        expected = now


@pytest.mark.parametrize("part", range(4))
@pytest.mark.sample(1)
def test_killed_write_of_issue_log_or_tool_document_is_atomic(stocked, tmp_path, part):
    """The row, its collection and its project, of which the last two may be new."""
    dice = Dice(f"issue {part}", 4)
    duration, logs = 0.0, 0
    for number in dice.rounds():
        before, text = documents(stocked), f"{text_of(30_000 + number)} of round {number}"
        command = dice.random.choice(
            [
                ("issue", "add", f"birds-{number}#7"),
                ("issue", "add", f"birds#{number}"),
                ("doc", "add", "git", "--category", "api"),
                *([("issue", "edit", f"first#{logs}")] if logs else []),
            ]
        )
        if not duration:
            command, logs = ("issue", "add", f"first#{number}"), number
            duration = measure_duration(stocked, *command, "-m", text)
            continue
        result = run_killed(stocked, dice.moment(duration), *command, "-m", text)
        dice.count(result)
        recovered(stocked, tmp_path / f"scratch-{number}", dice)
        now = documents(stocked)
        changed = {doc_id: value for doc_id, value in now.items() if before.get(doc_id) != value}
        assert now.keys() >= before.keys()
        assert [*changed.values()] == [text] or (not changed and not result.out)
        named = {
            document["metadata"]["project_id"]
            for document in stocked.ask("list")["documents"]
            if "issues_" in document["collection"]
        }
        assert {log["project_id"] for log in stocked.ask("issue", "list")["logs"]} == named
        with opened(stocked) as ws:
            assert {project.project_id for project in ws.engine.read_projects(ws.locate_documents())} == named
            held = {collection.name for collection in ws.engine.list_collections(ws.locate_documents())}
        assert {document["collection"] for document in stocked.ask("list")["documents"]} == held


@pytest.mark.parametrize("part", range(2))
@pytest.mark.sample(1)
def test_killed_init_continues_on_the_next_run(tmp_path, monkeypatch, part):
    isolate(monkeypatch, tmp_path / "home")
    dice = Dice(f"init {part}", 3)
    duration = measure_duration(new_project(tmp_path / "measured"), "init", "--knowledge-base", "--no-sources")
    for number in dice.rounds():
        project = new_project(tmp_path / f"project-{number}")
        dice.count(run_killed(project, dice.moment(duration), "init", "--knowledge-base", "--no-sources"))
        again = project.run_quietly("init", "--knowledge-base", "--no-sources", "--json")
        # git was killed, too, while it staged the pin or wrote a setting.
        for lock in [project.top / ".git" / name for name in ("index.lock", "config.lock")]:
            if lock.exists():
                assert f"remove {lock} only if that command died" in error_of(again)["hint"]
                lock.unlink()
                again = project.run_quietly("init", "--knowledge-base", "--no-sources", "--json")
        assert again.code == 0 or error_of(again)["code"] == "ALREADY_INITIALIZED"
        project.put("note.md", "A note about zebras.")
        project.vmrag("commit", "-m", "note")
        project.git("commit", "-q", "-m", "note")
        (tmp_path / f"scratch-{number}").mkdir()
        assert assert_whole(project, tmp_path / f"scratch-{number}") == {("handbook", "note.md")}


@pytest.mark.parametrize("part", range(4))
@pytest.mark.sample(1)
def test_checkout_succeeds_after_its_hook_is_killed(stocked, tmp_path, part):
    dice = Dice(f"checkout {part}", 3)
    stocked.git("config", "vmrag.index.keep-mb", "0")
    stocked.git("switch", "-q", BRANCHES[-1])
    duration = 0.0
    for number in dice.rounds():
        branch_before = stocked.git("branch", "--show-current")
        branch_after = dice.random.choice([branch for branch in BRANCHES if branch != branch_before])
        if not duration:
            duration = measure_duration(stocked, branch_after, program=("git", "checkout"))
            continue
        running = start(stocked, branch_after, program=("git", "checkout"))
        hit = kill_the_hook(running.process.pid, dice.moment(duration))
        dice.left -= hit
        result = running.done()
        assert result.code == 0
        assert stocked.git("branch", "--show-current") == branch_after
        recovered(stocked, tmp_path / f"scratch-{number}", dice)


def kill_the_hook(git: int, seconds: float) -> bool:
    """SIGKILL to the Python that a hook of this git has started, that long after its start; whether
    there was one.
    """
    time.sleep(seconds)
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and is_below(int(process.name), git) and b"-m\0vmrag_hooks\0" in said(process):
            os.kill(int(process.name), signal.SIGKILL)
            return True
    return False


def is_below(process: int, ancestor: int) -> bool:
    while process > 1 and process != ancestor:
        status = said(Path(f"/proc/{process}"), "status").decode()
        parents = [line.split()[1] for line in status.splitlines() if line.startswith("PPid:")]
        process = int(parents[0]) if parents else 0
    return process == ancestor


def said(process: Path, file: str = "cmdline") -> bytes:
    try:
        return (process / file).read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
