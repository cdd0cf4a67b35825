"""`vmrag mcp install`: a client's file in the project gets the server, and loses nothing."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import terminal
from vmrag_link import hints
from vmrag_link.settings import McpSettings
from vmrag_mcp.clients import server_command
from vmrag_mcp.clients.install import build_configuration
from vmrag_mcp.clients.table import CLIENTS
from vmrag_mcp.options import Flags, ToolChoice, resolve_choice, select_tools
from vmrag_mcp.repository import NamedDirectory, load_settings

template, project = terminal.template, terminal.project

FILES = {"claude-code": ".mcp.json", "cursor": ".cursor/mcp.json", "vscode": ".vscode/mcp.json"}
SECTIONS = {"claude-code": "mcpServers", "cursor": "mcpServers", "vscode": "servers"}


def install(project, client, *options):
    return project.ask("mcp", "install", "--client", client, *options)


def content(project, client):
    return json.loads((project.top / FILES[client]).read_text())


@pytest.fixture
def script(project, monkeypatch):
    """A `vmrag-mcp` of this installation at a place; the fixture makes it."""

    def make(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / "vmrag-mcp"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m vmrag_link.cli.mcp "$@"\n')
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(folder / "python"))
        return program

    return make


@pytest.mark.parametrize("client", FILES)
def test_file_is_written_and_the_second_time_nothing_changes(project, client):
    report = install(project, client)
    assert (report["client"], report["file"], report["changed"]) == (client, FILES[client], True)
    path = project.top / FILES[client]
    server = content(project, client)[SECTIONS[client]]["vmrag"]
    assert server == report["server"]
    assert path.read_text().endswith("}\n")
    before = path.read_bytes(), path.stat().st_mtime_ns
    assert install(project, client)["changed"] is False
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


@pytest.mark.parametrize("client", FILES)
@pytest.mark.sample(1)
def test_command_that_is_written_starts_the_server_of_this_project(project, client, tmp_path):
    """Start the server like the client: with its values of variables, from an unrelated
    directory.
    """
    server = install(project, client)["server"]
    project.write("where.md", "This project.\n")
    project.git("add", "where.md")
    (tmp_path / "elsewhere").mkdir()

    def filled(text: str) -> str:
        for variable in ("${workspaceFolder}", "${CLAUDE_PROJECT_DIR:-.}"):
            text = text.replace(variable, str(project.top))
        return text

    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    call = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "read", "arguments": {"name": "where.md"}},
    }
    environ = os.environ | ({"CLAUDE_PROJECT_DIR": str(project.top)} if client == "claude-code" else {})
    with subprocess.Popen(
        [filled(argument) for argument in (server["command"], *server["args"])],
        cwd=tmp_path / "elsewhere",
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        for message in (request, call):
            process.stdin.write(json.dumps(message).encode() + b"\n")
        process.stdin.flush()
        process.stdout.readline()
        answer = json.loads(process.stdout.readline())
    assert "This project." in answer["result"]["content"][0]["text"]


HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


def test_unrelated_servers_keys_order_and_layout_stay(project):
    path = project.write(
        ".cursor/mcp.json",
        '{\r\n\t"$schema": "x",\r\n\t"mcpServers": {\r\n\t\t"zulu": {"url": "https://é.example", "n": 1.5},\r\n\t\t"alpha": {}\r\n\t},\r\n'
        '\t"inputs": []\r\n}',
    )
    path.chmod(0o600)
    install(project, "cursor")
    result = content(project, "cursor")
    assert list(result) == ["$schema", "mcpServers", "inputs"]
    assert list(result["mcpServers"]) == ["zulu", "alpha", "vmrag"]
    assert result["mcpServers"]["zulu"] == {"url": "https://é.example", "n": 1.5}
    text = path.read_bytes()
    assert b"\r\n\t\t" in text
    assert b"\n" not in text.replace(b"\r\n", b"")
    assert not text.endswith(b"\n")
    assert "é".encode() in text
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("nothing", ["", "\n", "{}", '{"servers": {}}'])
def test_empty_file_is_filled(project, nothing):
    project.write(".vscode/mcp.json", nothing)
    assert install(project, "vscode")["changed"]
    assert "vmrag" in content(project, "vscode")["servers"]


@pytest.mark.parametrize(
    "text",
    [
        '{\n  // mine, and never closed\n  "servers": {}\n',
        '{"servers": {},,}',
        '{"servers": {}, "servers": {}}',
        '{"servers": []}',
        '{"servers": {"vmrag": "x"}}',
        "[]",
        "\ufeff{}",
        "[" * 100_000,
        b'{"a": "\xff"}',
    ],
)
def test_unsafe_file_is_kept_and_the_hint_shows_the_entry(project, text):
    path = project.write(".vscode/mcp.json", text)
    before = path.read_bytes()
    error = project.vmrag("mcp", "install", "--client", "vscode", "--json", code=2).error
    assert '"servers": {"vmrag": {' in error["hint"]
    assert path.read_bytes() == before


def test_link_is_not_followed_out_of_the_project(project, tmp_path):
    (tmp_path / "other.json").write_text("{}")
    (project.top / ".mcp.json").symlink_to(tmp_path / "other.json")
    project.vmrag("mcp", "install", "--client", "claude-code", code=2)
    (tmp_path / "folder").mkdir()
    (project.top / ".cursor").symlink_to(tmp_path / "folder")
    project.vmrag("mcp", "install", "--client", "cursor", code=2)
    assert (tmp_path / "other.json").read_text() == "{}"
    assert not any((tmp_path / "folder").iterdir())


def test_options_go_into_the_command_and_stay_when_none_are_given(project):
    install(project, "claude-code", "--toolsets", "default,vcs_aliases", "--read-only")
    tail = ["--toolsets", "default,vcs_aliases", "--read-only"]
    assert content(project, "claude-code")["mcpServers"]["vmrag"]["args"][-3:] == tail
    assert install(project, "claude-code")["changed"] is False
    assert install(project, "claude-code", "--tools", "commit")["changed"] is True
    tail = ["--default-toolsets", "essential", "--tools", "commit"]
    assert content(project, "claude-code")["mcpServers"]["vmrag"]["args"][-4:] == tail
    project.vmrag("mcp", "install", "--client", "cursor", "--toolsets", "nonsense", code=2)
    assert not (project.top / ".cursor").exists()


def test_new_entry_has_a_few_plain_tools_by_default(project, monkeypatch):
    arguments = install(project, "cursor")["server"]["args"]
    assert arguments[-2:] == ["--default-toolsets", "essential"]
    flags = Flags(default_toolsets="essential")

    def tools() -> set[str]:
        settings = load_settings(NamedDirectory(project.top))
        return {*select_tools(resolve_choice(flags, settings.config.mcp, stated=settings.stated)).tools}

    default = {*select_tools(ToolChoice()).tools}
    assert (len(tools()), tools() & default) == (8, {"enable_toolset"})
    project.write(".vmrag.yaml", "mcp.toolsets: default\n")
    assert len(tools()) == 8, "a clone has no say before `vmrag trust`"
    project.vmrag("trust", "--yes")
    assert tools() == default
    project.write(".vmrag.yaml", "")
    project.git("config", "vmrag.mcp.toolsets", "default")
    assert tools() == default
    project.git("config", "--unset", "vmrag.mcp.toolsets")
    monkeypatch.setenv("VMRAG_TOOLSETS", "dolt")
    assert tools() == {*select_tools(ToolChoice("dolt")).tools}
    assert {
        *select_tools(resolve_choice(Flags("default", default_toolsets="essential"), McpSettings())).tools
    } == default
    project.vmrag("mcp", "install", "--client", "zed", "--default-toolsets", "nonsense", code=2)


FOREIGN = {
    "environment": ({"env": {"PYTHONPATH": "./evil"}}, "env is added (PYTHONPATH)"),
    "settings": ({"env": {"VMRAG_TOOLSETS": "all"}}, "env is added (VMRAG_TOOLSETS)"),
    "file": ({"envFile": "${workspaceFolder}/.env"}, "envFile is added"),
    "toolsets": ({"args": ["--toolsets", "all"]}, 'args is ["--toolsets","all"] instead of'),
    "program": ({"command": "./evil/vmrag-mcp"}, 'command is "./evil/vmrag-mcp" instead of'),
    "folder": ({"cwd": "evil", "type": "http"}, 'type is "http" instead of "stdio"; cwd is added'),
}


@pytest.mark.parametrize("client", FILES)
@pytest.mark.parametrize("name", FOREIGN)
def test_install_names_differences_of_an_entry_that_it_did_not_write(project, client, name):
    expected = build_configuration(project.top, client, Flags()).configuration[SECTIONS[client]]["vmrag"]
    values, difference = FOREIGN[name]
    path = project.write(FILES[client], json.dumps({SECTIONS[client]: {"vmrag": {**expected, **values}}, "other": 1}))
    before = path.read_bytes()
    result = project.vmrag("mcp", "install", "--client", client, code=1)
    assert difference in result.out
    assert "already has the server" not in result.out
    assert "Wrote" not in result.out
    assert path.read_bytes() == before
    command = f"vmrag mcp install --client {client} --replace"
    assert hints.list_commands(result.out.splitlines()[-1]) == [command]
    assert project.ask(*command.split()[1:])["changed"]
    assert content(project, client) == {SECTIONS[client]: {"vmrag": expected}, "other": 1}
    assert project.ask("mcp", "install", "--client", client)["changed"] is False


def test_install_names_differences_in_a_toml_file_and_replaces_its_tables(project):
    path = project.write(".codex/config.toml", "# mine\n[mcp_servers.other]\ncommand = 'x'\n")
    project.ask("mcp", "install", "--client", "codex")
    ours = path.read_text()
    path.write_text(f'{ours}\n[mcp_servers.vmrag.env]\nPYTHONPATH = "./evil"\n\n[model]\na = 1\n')
    assert "env is added (PYTHONPATH)" in project.vmrag("mcp", "install", "--client", "codex", code=1).out
    project.ask("mcp", "install", "--client", "codex", "--replace")
    assert "PYTHONPATH" not in path.read_text()
    assert path.read_text().startswith("# mine\n[mcp_servers.other]\ncommand = 'x'\n")
    assert "[model]\na = 1\n" in path.read_text()


def test_install_for_all_fails_if_an_entry_differs(project):
    (Path(os.environ["HOME"]) / ".cursor").mkdir()
    project.write(
        ".cursor/mcp.json", json.dumps({"mcpServers": {"vmrag": {"command": "vmrag-mcp", "env": {"A": "b"}}}})
    )
    result = project.vmrag("mcp", "install", "--all", code=1)
    assert "env is added (A)" in result.out


def test_install_updates_the_program_of_an_entry_that_it_wrote(project, script, tmp_path):
    first = script(tmp_path / "first")
    install(project, "claude-code", "--read-only")
    second = script(tmp_path / "second")
    first.unlink()
    server = install(project, "claude-code")["server"]
    assert (server["command"], server["args"][-1]) == (str(second), "--read-only")


def test_foreign_server_of_that_name_is_kept(project):
    path = project.write(".mcp.json", '{"mcpServers": {"vmrag": {"command": "uvx", "args": ["vmrag-mcp"]}}}')
    before = path.read_bytes()
    report = install(project, "claude-code")
    assert (report["kept"], report["changed"], report["differs"]) == (True, False, [])
    assert path.read_bytes() == before
    assert install(project, "claude-code", "--replace")["changed"]


# -- names of the program


def test_program_that_every_shell_finds_is_named_only(project, script, tmp_path, monkeypatch):
    program = script(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    report = install(project, "claude-code")
    assert (report["server"]["command"], report["portable"]) == ("vmrag-mcp", True)


def test_program_in_an_activated_environment_is_named_by_its_path(project, script, tmp_path, monkeypatch):
    program = script(tmp_path / "venv" / "bin")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "venv"))
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    report = install(project, "claude-code")
    assert (report["server"]["command"], report["portable"]) == (str(program), False)


def test_different_installation_on_the_path_is_ignored(project, script, tmp_path, monkeypatch):
    program = script(tmp_path / "bin")
    other = shutil.copy(program, tmp_path / "other-vmrag-mcp")
    (tmp_path / "first").mkdir()
    shutil.move(other, tmp_path / "first" / "vmrag-mcp")
    monkeypatch.setenv("PATH", f"{tmp_path / 'first'}{os.pathsep}{os.environ['PATH']}")
    assert install(project, "cursor")["server"]["command"] == str(program)


@pytest.mark.parametrize(
    ("client", "in_project"),
    [("claude-code", "${CLAUDE_PROJECT_DIR:-.}"), ("cursor", "${workspaceFolder}"), ("vscode", "${workspaceFolder}")],
)
def test_program_in_the_project_is_named_relative_to_it(project, script, client, in_project):
    script(project.top / ".venv" / "bin")
    report = install(project, client)
    assert (report["server"]["command"], report["portable"]) == (f"{in_project}/.venv/bin/vmrag-mcp", True)


@pytest.mark.parametrize("client", FILES)
def test_module_of_the_project_is_not_imported_by_the_server(project, monkeypatch, client):
    python = project.top.parent / "bare" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(server_command.sysconfig, "get_path", lambda _: str(python.parent))
    server = build_configuration(project.top, client, Flags()).configuration[SECTIONS[client]]["vmrag"]
    assert (server["command"], server["args"][:3]) == (str(python), ["-P", "-m", "vmrag_link.cli.mcp"])


# -- printing


def test_print_option_writes_no_file(project):
    before = project.git("status", "--porcelain", "--ignored")
    printed = project.ask("mcp", "install", "--print", "--read-only")
    server = printed["configuration"]["mcpServers"]["vmrag"]
    assert Path(server["command"]).is_absolute()
    assert server["args"][-5:] == ["--repo", str(project.top), "--default-toolsets", "essential", "--read-only"]
    assert json.loads(project.vmrag("mcp", "install", "--print", "--read-only").out) == printed["configuration"]
    assert "servers" in project.ask("mcp", "install", "--print", "--client", "vscode")["configuration"]
    assert project.git("status", "--porcelain", "--ignored") == before


def test_missing_extra_error_suggests_the_installation(project, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "mcp" else real(name, *rest))
    for arguments in (("mcp",), ("mcp", "install", "--client", "cursor")):
        error = project.vmrag(*arguments, "--json", code=2).error
        assert (error["code"], error["hint"]) == (
            "MCP_EXTRA_MISSING",
            "run 'pip install \"vmrag-link[mcp]\"' to install it",
        )


def test_outside_of_a_repository_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = subprocess.run(
        [sys.executable, "-m", "vmrag_link.cli.mcp", "install", "--client", "cursor"], capture_output=True, check=False
    )
    assert result.returncode == 2
    assert not any(tmp_path.iterdir())


def test_every_client_that_the_command_offers_is_known():
    from vmrag_link.cli import mcp

    assert tuple(CLIENTS) == mcp.CLIENTS


@pytest.mark.parametrize("option", [("--repo", "."), ("--read-only",), ("--http", "127.0.0.1:0")])
def test_options_of_the_server_before_a_subcommand_are_refused(project, option):
    for subcommand in ("install", "uninstall"):
        refused = project.vmrag("mcp", *option, subcommand, "--client", "cursor", code=2).err
        assert f"vmrag mcp {subcommand} --help" in refused
    assert not (project.top / ".cursor").exists()
