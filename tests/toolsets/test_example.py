"""`example/` is an external toolset: a separate package, installed into a fresh environment, with a
tool, a command and a kind of document.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.support import terminal
from tests.support.terminal import Project
from vmrag_mcp.registry import CATALOGUE

EXAMPLE = Path(__file__).parent / "example"
CALENDAR = """BEGIN:VCALENDAR
BEGIN:VEVENT
DTSTART:20261201T090000Z
SUMMARY:Release of the kettle
END:VEVENT
BEGIN:VEVENT
DTSTART;VALUE=DATE:20261202
SUMMARY:Descaling
END:VEVENT
END:VCALENDAR
"""

template, project = terminal.template, terminal.project


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the Python of an environment with this program, its requirements, and the example."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    Path(packages, "all-of-ours.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    install = ["install", "-q", "--no-deps", "--no-build-isolation", "--no-index", str(EXAMPLE)]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), *install], check=True)
    return str(folder / "bin/python")


def test_example_adds_a_command_and_a_kind_of_document(project: Project, python: str) -> None:
    def vmrag(*arguments: str) -> str:
        argv = [python, "-m", "vmrag_link.cli.main", *arguments]
        result = subprocess.run(argv, cwd=project.top, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return result.stdout

    project.write("team.ics", CALENDAR)
    assert "notes: 1 document added" in vmrag("import", "team.ics", "--collection", "notes")
    assert vmrag("show", "notes/team.ics").count("\n* 2026") == 2
    assert vmrag("agenda", "20261202") == "Descaling\n"
    assert json.loads(vmrag("query", "when is the kettle released", "--json"))["results"][0]["doc_id"] == "team.ics"
    assert "  agenda " in vmrag("help", "--all")
    assert "its type .ics is not supported" in project.vmrag("import", "team.ics", "--collection", "other").out


def test_agent_finds_its_tool_next_to_a_toolset_without_a_table(project: Project, python: str, tmp_path: Path) -> None:
    beside = tmp_path / "bare"
    beside.mkdir()
    declared = (
        "from vmrag_link.toolset import Toolset\nTOOLSET = Toolset('bare', 'nothing', __name__, tools=('.no',))\n"
    )
    (beside / "__init__.py").write_text(declared)
    _register(tmp_path, "bare = bare:TOOLSET")

    async def ask() -> tuple[str, object]:
        server = StdioServerParameters(
            command=python,
            args=["-m", "vmrag_link.cli.main", "mcp", "--toolsets", "agenda,bare"],
            cwd=project.top,
            env=os.environ | {"PYTHONPATH": str(tmp_path)},
        )
        async with Client(server) as client:
            listed = await client.list_tools()
            answer = await client.call_tool("show_agenda", {"day": "20261201"})
            return ",".join(tool.name for tool in listed.tools), answer.structured_content

    names, answer = asyncio.run(ask())
    assert names == "show_agenda"
    assert isinstance(answer, dict)
    assert answer["success"] is True
    assert answer["events"] == []


def _register(folder: Path, line: str) -> None:
    """Register an entry point as an installed package's metadata does."""
    metadata = folder / "beside-1.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text(f"[vmrag.toolsets]\n{line}\n")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: beside\nVersion: 1\n")


def test_table_of_tools_equals_the_declared_tools(python: str) -> None:
    code = "import vmrag_mcp.reference as r; import sys; sys.stdout.buffer.write(r.build_catalogue('agenda'))"
    written = subprocess.run([python, "-c", code], capture_output=True, check=True).stdout
    assert written == (EXAMPLE / "agenda" / CATALOGUE).read_bytes(), "python -m vmrag_mcp.reference agenda"


def test_broken_toolset_is_reported_and_stops_nothing(project: Project, python: str, tmp_path: Path) -> None:
    _register(tmp_path, "nowhere = no_such_module:TOOLSET")
    argv = [python, "-m", "vmrag_link.cli.main", "doctor"]
    result = subprocess.run(
        argv,
        cwd=project.top,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert "The toolset 'nowhere' cannot be loaded (no_such_module:TOOLSET)" in result.stdout
    argv = [python, "-m", "vmrag_link.cli.main", "agenda", "20261202"]
    subprocess.run(argv, cwd=project.top, check=True, env=os.environ | {"PYTHONPATH": str(tmp_path)})
