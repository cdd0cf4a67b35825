"""A store with a missing end is never treated as an older store; a store that is shorter for a
valid reason is not damaged.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support import dolt, terminal
from tests.support.cli import VMRAG
from tests.support.mcp import Tools
from tests.support.terminal import Project
from vmrag_link import hints
from vmrag_link.engines.doltlite import extent
from vmrag_link.engines.doltlite.engine import DoltliteEngine

template, project = terminal.template, terminal.project

pytestmark = [pytest.mark.hooks("off"), dolt.embedded]


def cut(path: Path, share: float) -> None:
    os.truncate(path, int(path.stat().st_size * share))


def doctor(project: Project) -> str:
    """Return doctor's findings: messages and commands."""
    topics = project.vmrag("doctor", "--json", code=None).json["topics"]
    findings = [finding for topic in topics for finding in topic["findings"] if finding["level"] == "error"]
    return "\n".join(f"{finding['message']} {finding['fix']}" for finding in findings)


def obey(project: Project, hint: str) -> None:
    [command] = hints.list_commands(hint)
    subprocess.run(["sh", "-c", command], cwd=project.top, check=True)


@pytest.mark.parametrize("share", [0.99, 0.75, 0.3, 0.001, 0])
@pytest.mark.sample(2)
def test_cut_knowledge_base_is_an_error_that_names_the_way_out(project, share):
    project.put("draft.md", "A draft that is nowhere else.\n" * 50)
    file = project.shared / "kb" / "kb.doltlite"
    before = file.stat().st_size
    cut(file, share)
    for command in (["status"], ["list"], ["query", "draft"], ["commit", "-m", "x"]):
        result = project.vmrag(*command, "--json", code=None)
        assert result.error["code"] == "DATABASE_ERROR", command
        assert f"of {before:,} bytes" in result.error["message"]
        assert str(file) in result.error["message"]
    assert " bytes. " in doctor(project)
    if share > 0.9:
        obey(project, result.error["hint"])
        assert "draft.md" not in project.marks()
        project.put("again.md", "Again.\n")
        assert "of the" not in doctor(project)


def test_cut_local_store_is_an_error_with_a_repair_command(project):
    project.git("config", "vmrag.system.versioned", "false")
    tools = Tools(project.top)
    for number in range(1, 5):
        thought = f"Thought {number}: " + "rivers rise in spring. " * 20
        tools("chroma_sequential_thinking", thought=thought, thought_number=number, total_thoughts=4, session_id="plan")
    file = project.shared / "local" / "kb" / "kb.doltlite"
    cut(file, 0.75)
    assert str(file) in doctor(project)
    error = Tools(project.top).error("DATABASE_ERROR", "chroma_get_session_summary", session_id="plan")
    [way_out] = error["suggestions"]
    assert f"mv {file.with_name(extent.EXTENT_NAME)} " in way_out


def test_store_changed_by_other_means_is_accepted_as_whole(project, tmp_path):
    file, note = project.shared / "kb" / "kb.doltlite", project.shared / "kb" / extent.EXTENT_NAME
    for number in range(5):
        project.put(f"page-{number}.md", f"Page {number}.\n" * 200)
        project.vmrag("commit", "-m", f"{number}")
    older = note.read_bytes()
    before = file.stat().st_size
    with contextlib.closing(DoltliteEngine.open(file.parent)) as engine:
        engine.collect_garbage()
    assert file.stat().st_size < before
    project.vmrag("list")
    note.write_bytes(older)  # an older program collected, and knows no note
    project.vmrag("list")
    project.put("more.md", "More.\n")
    copy = tmp_path / "copy"
    shutil.copytree(project.top, copy, symlinks=True)
    Project(copy).vmrag("list")
    cut(copy / ".git" / "vmrag" / "kb" / "kb.doltlite", 0.99)
    assert Project(copy).vmrag("list", "--json", code=None).error["code"] == "DATABASE_ERROR"
    note.write_text("nonsense")
    project.vmrag("list")
    note.unlink()
    project.vmrag("list")


@pytest.mark.parametrize("seconds", [0.2, 0.4, 0.5, 0.6, 0.7])
@pytest.mark.sample(2)
def test_kill_at_any_moment_records_no_excessive_length(project, seconds):
    for number in range(60):
        project.write(f"docs/page-{number}.md", f"Page {number}.\n" * 400)
    running = subprocess.Popen(
        [*VMRAG, "import", "docs", "--collection", "handbook", "--copy"],
        cwd=project.top,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        running.wait(seconds)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGKILL)
        running.wait()
    project.vmrag("list")
    project.put("after.md", "After.\n")
    project.vmrag("list")


def test_leftovers_of_a_killed_writer_are_cut_off_silently(project):
    file = project.shared / "kb" / "kb.doltlite"
    project.put("one.md", "One.\n")
    with file.open("ab") as torn:
        torn.write(b"\1" * 5000)
    project.vmrag("list")
    with contextlib.closing(DoltliteEngine.open(file.parent)) as engine, engine.write_lock("look, and write nothing"):
        pass
    project.put("two.md", "Two.\n")
    project.vmrag("list")
    assert {"one.md", "two.md"} <= set(project.marks())
