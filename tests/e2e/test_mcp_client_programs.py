"""The clients' own programs read what `vmrag mcp install` wrote, and start the server that it
names. `tests/support/client_programs.py` installs them.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support import client_programs, npm, terminal
from tests.support.terminal import Project

template, project, programs = terminal.template, terminal.project, client_programs.programs

pytestmark = [pytest.mark.long, pytest.mark.hooks("off")]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def client(programs, project: Project, monkeypatch):
    """Runs a program of a client in the project, with the home that the project has."""
    monkeypatch.delenv("XDG_CONFIG_HOME")  # as it is for most
    monkeypatch.delenv("CODEX_HOME", raising=False)
    home = Path(os.environ["HOME"])
    for folder in (".codex", ".gemini", ".config/opencode", ".config/goose"):
        (home / folder).mkdir(parents=True)

    def run(name: str, *arguments: str, top: Path = project.top) -> str:
        if name not in programs:
            pytest.skip(f"there is no {name} for this kind of machine")
        environ = os.environ | {
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "PATH": f"{npm.node().parent}:{os.environ['PATH']}",
        }
        argv = [*programs[name], *arguments]
        result = subprocess.run(argv, cwd=top, env=environ, capture_output=True, text=True, check=False, timeout=120)
        assert result.returncode == 0, result
        return result.stdout + result.stderr

    return run


def listed_by_codex(client):
    """It writes warnings behind the list."""
    return json.JSONDecoder().raw_decode(client("codex", "mcp", "list", "--json"))[0]


def test_codex_reads_its_table(project: Project, client):
    report = project.ask("mcp", "install", "--client", "codex", "--user", "--read-only")
    (server,) = listed_by_codex(client)
    assert (server["name"], server["enabled"]) == ("vmrag", True)
    assert server["transport"]["command"] == report["server"]["command"]
    assert server["transport"]["args"] == report["server"]["args"]
    project.ask("mcp", "uninstall", "--client", "codex", "--user")
    assert listed_by_codex(client) == []


@pytest.mark.parametrize("options", [(), ("--user",)])
def test_gemini_connects(project: Project, client, options):
    project.ask("mcp", "install", "--client", "gemini", *options)
    said = client("gemini", "mcp", "list")
    assert "vmrag" in said
    assert "Connected" in said
    project.ask("mcp", "uninstall", "--client", "gemini", *options)
    assert "vmrag" not in client("gemini", "mcp", "list")


@pytest.mark.parametrize("options", [(), ("--user",)])
def test_opencode_connects(project: Project, client, options):
    project.write("opencode.jsonc", '// mine\n{"mcp": {}, }\n')
    project.ask("mcp", "install", "--client", "opencode", *options)
    said = client("opencode", "mcp", "list")
    assert "vmrag" in said
    assert "connected" in said
    project.ask("mcp", "uninstall", "--client", "opencode", *options)
    assert "vmrag" not in client("opencode", "mcp", "list")


def test_goose_lists_the_extension(project: Project, client):
    report = project.ask("mcp", "install", "--client", "goose")
    assert f"cmd: {report['server']['cmd']}" in client("goose", "info", "-v")
    project.ask("mcp", "uninstall", "--client", "goose")
    assert report["server"]["cmd"] not in client("goose", "info", "-v")


def test_bundle_is_valid_to_the_program_of_its_makers(client, tmp_path: Path):
    assert "passes" in client("mcpb", "validate", str(ROOT / "clients" / "mcpb" / "manifest.json"))
    client("mcpb", "pack", str(ROOT / "clients" / "mcpb"), str(tmp_path / "made.mcpb"))
    assert "made.mcpb" in client("mcpb", "info", str(tmp_path / "made.mcpb"))
