"""Acknowledged changes survive a power cut: they are synced to disk before the command ends, and
the journal's entry stays until then.

`strace` shows the order. The tests do not cover disks that lose synced data.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.support import terminal, traced
from tests.support.compounding import CONFIG, CONFIGURATION, FILES, SCHEMA
from tests.support.repos import isolate
from tests.support.terminal import Project, new_project
from tests.support.traced import Event, list_unsynced, trace, trace_tool

template, project = terminal.template, terminal.project

pytestmark = pytest.mark.hooks("on")

DERIVED = re.compile(
    r"/__pycache__/|/\.git/vmrag/(views|segments|uncommitted|chroma|builder|remotes|remotes\.git|local/index|local/segments|leases|embeddings\.sqlite|workspace\.json$"
    r"|applied$|settings$|index-failures\.json$|pushed$)"
)
"""Names of what is made again when it is missing or empty."""


@pytest.fixture(autouse=True)
def _traceable() -> None:
    traced.require()


def promised(events: list[Event]) -> list[str]:
    return [path for path in list_unsynced(events) if not DERIVED.search(path)]


def run(project: Project, *arguments: str) -> list[Event]:
    result, events = trace(project, *arguments)
    assert result.code == 0, result
    assert promised(events) == [], arguments
    return events


def renamed(events: list[Event], top: Path) -> set[str]:
    """Onto which names, without what can be made again and what git does itself."""
    targets = [event.target for event in events if event.what == "rename" and not event.by_git]
    return {os.path.relpath(target, top) for target in targets if not DERIVED.search(target)}


def assert_rows_written_through(project: Project, events: list[Event]) -> None:
    path = str(project.shared / "kb" / "kb.doltlite")
    of_it = [event.what for event in events if event.path == path]
    assert of_it, "nothing was written"
    assert of_it[-1] == "sync"


def assert_journal_waits(project: Project, events: list[Event]) -> None:
    """The entry goes after the pin, and its name, are written through; git's index, too."""
    entries = [
        at
        for at, event in enumerate(events)
        if event.what == "remove" and re.search(r"/journal/[^/]*\.json$", event.path)
    ]
    assert entries, "there was no entry"
    before = events[: entries[-1]]
    pinned = [at for at, event in enumerate(before) if event.target == str(project.top / ".dolt-version")]
    assert pinned, "no pin was written"
    assert Event("sync", str(project.top)) in before[pinned[-1] :]
    index = str(project.top / ".git" / "index")
    assert any(file.what == "sync" and file.path in (index, f"{index}.lock") for file in before)


def test_every_file_of_the_loop_is_written_through_before_it_counts(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "project")
    project.write("docs/setup.md", "# Setup\n\nInstall the program with pip.\n")

    made = renamed(run(project, "init", "--knowledge-base", "--no-sources"), project.top)
    assert {".dolt-version", ".gitattributes", ".git/hooks/post-checkout", ".git/vmrag/interpreter"} <= made

    assert_rows_written_through(project, run(project, "import", "docs", "--collection", "handbook", "--copy"))
    events = run(project, "commit", "-m", "first")
    assert ".dolt-version" in renamed(events, project.top)
    assert_rows_written_through(project, events)
    assert_journal_waits(project, events)
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "first")

    first = project.pinned
    page = str(project.write("notes.txt", "A note.\n"))
    assert_rows_written_through(project, run(project, "add", page, "--collection", "handbook"))
    assert_journal_waits(project, run(project, "commit", "-m", "second"))
    assert ".dolt-version" in renamed(run(project, "pin", first), project.top)


def test_killed_commit_with_a_renamed_pin_is_finished_once_durable(project):
    before = project.pinned
    project.put("more.md", "More.\n")
    program = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom vmrag_link import file_access\n"
        "fsync = file_access.sync_to_disk\n"
        "def dies(path): os.kill(os.getpid(), signal.SIGKILL) if Path(path) == Path.cwd() else fsync(path)\n"
        "file_access.sync_to_disk = dies\n"
        "from vmrag_link.cli.main import run\nsys.exit(run(sys.argv[1:]))\n"
    )
    result, _ = trace(project, "-c", program, "commit", "-m", "more", program=(sys.executable,))
    assert result.code != 0
    assert list((project.shared / "journal").glob("*.json"))
    assert project.pinned != before

    result, events = trace(project, "sync")
    assert not list((project.shared / "journal").glob("*.json")), result
    entry = next(at for at, event in enumerate(events) if event.what == "remove" and "/journal/" in event.path)
    assert Event("sync", str(project.top / ".dolt-version")) in events[:entry]
    assert Event("sync", str(project.top)) in events[:entry]


def test_merges_resolutions_and_agreements_are_written_through(project):
    project.put("rest.md", "# Rest\n\nAlways rest.\n")
    project.vmrag("commit", "-m", "ours")
    project.git("commit", "-q", "-m", "ours")
    _, events = trace(project, "merge", "feature")
    assert promised(events) == []
    assert ".git/vmrag/merge.json" in renamed(events, project.top)
    assert promised(run(project, "resolve", "--ours")) == []
    assert ".dolt-version" in renamed(run(project, "merge", "--continue"), project.top)

    settings = (project.top / ".vmrag.yaml").read_text()
    project.write(".vmrag.yaml", f"{settings}\nhooks:\n  on_dirty: commit\n")
    made = renamed(run(project, "trust", "--yes"), project.top)
    assert any("agreed" in engine or "trust" in engine for engine in made), made


def test_files_of_the_work_tree_that_tools_edit_are_written_through(tmp_path, monkeypatch):
    isolate(monkeypatch, tmp_path / "home")
    project = new_project(tmp_path / "project")
    for name, text in {**FILES, CONFIG: json.dumps(CONFIGURATION)}.items():
        project.write(name, text)
    project.write(".river-docs/schemas/api-contract.yaml", SCHEMA)
    project.vmrag("init", "--knowledge-base", "--no-sources")
    arguments = json.dumps({"document_path": "problems/flood.md", "promotion_level": "critical"})
    result, events = trace_tool(project, "update_promotion_level", arguments, project.top / CONFIG)
    assert result.code == 0, result
    assert promised(events) == []
    assert "river-docs/problems/flood.md" in renamed(events, project.top)


def test_command_without_work_does_not_sync_the_disk(project):
    project.vmrag("sync")
    for program in (("git", "checkout", "-q", "HEAD"), ("git", "switch", "-q", "main")):
        _, events = trace(project, program=program)
        assert [event for event in events if event.what == "sync" and not event.by_git] == []
    for command in ("sync", "status", "list"):
        _, events = trace(project, command)
        assert [event for event in events if event.what == "sync"] == [], command
