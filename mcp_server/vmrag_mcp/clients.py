"""This server in the configuration of MCP clients: known clients' project files; a text for others.

The files belong to the project and are committed. So they name the server in a way that holds on
other computers, where there is one.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import sys
import sysconfig
from pathlib import Path
from typing import Any, NamedTuple

from vmrag_link import env
from vmrag_link.errors import UsageInvalid
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_link.paths import Places, read_regular, write_atomically
from vmrag_mcp.options import Flags

SERVER = "vmrag"
SCRIPT = "vmrag-mcp"
MODULE = ("-P", "-m", "vmrag_link.cli.mcp")
"""Python's arguments where there is no script. `-P`: it imports no file of the project."""

_LARGEST = 1024 * 1024


class Client(Record, frozen=True):
    """`section` of the project's `file` holds the servers.

    `here`: how the client writes the project's folder. `told`: the server gets that as an argument,
    because the client starts it anywhere and does not say.
    """

    file: str
    section: str
    here: str
    told: bool


CLIENTS = {
    "claude-code": Client(".mcp.json", "mcpServers", "${CLAUDE_PROJECT_DIR:-.}", told=False),
    "cursor": Client(".cursor/mcp.json", "mcpServers", "${workspaceFolder}", told=True),
    "vscode": Client(".vscode/mcp.json", "servers", "${workspaceFolder}", told=True),
}


class ClientInstallReport(Record, frozen=True):
    """`changed`: the file was written.

    `portable`: the command that it names exists on other computers.

    `kept`: the file holds a server of that name which is not ours, and was left as it is.
    """

    client: str
    file: str
    changed: bool
    portable: bool
    kept: bool
    server: dict[str, Any]


class ClientConfiguration(Record, frozen=True):
    """What belongs into a client's configuration, as a value and as its JSON text."""

    configuration: dict[str, Any]
    text: str


class _Command(NamedTuple):
    program: str
    arguments: tuple[str, ...] = ()
    portable: bool = True


def configuration(directory: Path, name: str | None, flags: Flags) -> ClientConfiguration:
    """For a known client, or for any other one on this computer. Raises `GitRepositoryMissing`."""
    places = plumbing.locate(directory)
    if name is None:
        command = _absolute()
        told = ("--repo", str(places.top))
        section, server = "mcpServers", _server(command, (*told, *_options(flags)))
    else:
        client = CLIENTS[name]
        section, server = client.section, _our_server(client, places, flags)[0]
    made = {section: {SERVER: server}}
    return ClientConfiguration(made, _text(made, "  "))


def install(directory: Path, name: str, flags: Flags) -> ClientInstallReport:
    """Write our server into a client's project file, and keep all else that is in it.

    Without flags, the options that our server has there stay as well. Raises
    `GitRepositoryMissing`, and `UsageInvalid` for a file that cannot be changed without a loss.
    """
    client, places = CLIENTS[name], plumbing.locate(directory)
    wanted, command = _our_server(client, places, flags)
    path = places.top / client.file
    before = _read(path, client, wanted)
    found = {} if before is None else _parse(before, client, wanted)
    servers = found.get(client.section, {})
    there = servers.get(SERVER) if isinstance(servers, dict) else None
    if not isinstance(servers, dict) or not isinstance(there, dict | None):
        raise _unsafe(client, wanted, "it is not built as that client's file is")
    kept = there is not None and not _is_ours(there)
    server = there if kept else _merge(there, wanted, command, flags)
    changed = server != there
    if changed:
        found[client.section] = {**servers, SERVER: server}
        _write(path, _text(found, _indent(before)), before)
    return ClientInstallReport(name, client.file, changed, kept or command.portable, kept, server or {})


# -- the server as a client starts it


def _our_server(client: Client, places: Places, flags: Flags) -> tuple[dict[str, Any], _Command]:
    command = _command(client, places)
    told = ("--repo", client.here) if client.told else ()
    return _server(command, (*told, *_options(flags))), command


def _server(command: _Command, options: tuple[str, ...]) -> dict[str, Any]:
    return {"type": "stdio", "command": command.program, "args": [*command.arguments, *options]}


def _options(flags: Flags) -> tuple[str, ...]:
    named = {"--toolsets": flags.toolsets, "--tools": flags.tools, "--exclude-tools": flags.exclude_tools}
    named["--default-ef"] = flags.default_ef
    given = [part for name, value in named.items() if value is not None for part in (name, value)]
    return (*given, *(["--read-only"] if flags.read_only else []))


def _command(client: Client, places: Places) -> _Command:
    """The script: by name if every shell finds it, else by path, in the project or absolute."""
    found = shutil.which(SCRIPT, path=env.lasting_path())
    own = _absolute()
    program = Path(own.program)
    if found and os.path.realpath(found) == os.path.realpath(program):
        return _Command(SCRIPT)
    top = places.top
    if program.is_relative_to(top):
        return _Command(f"{client.here}/{program.relative_to(top).as_posix()}", own.arguments)
    return own


def _absolute() -> _Command:
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if (folder / SCRIPT).is_file():
            return _Command(str(folder / SCRIPT), portable=False)
    return _Command(sys.executable, MODULE, portable=False)


def _is_ours(server: dict[str, Any]) -> bool:
    command, arguments = server.get("command"), server.get("args", [])
    if not isinstance(command, str) or not isinstance(arguments, list):
        return False
    return Path(command).name == SCRIPT or tuple(arguments[: len(MODULE)]) == MODULE


def _merge(there: dict[str, Any] | None, wanted: dict[str, Any], command: _Command, flags: Flags) -> dict[str, Any]:
    if there is None:
        return wanted
    arguments = wanted["args"]
    if flags == Flags() and "args" in there:
        before = there["args"]
        own = before[len(MODULE) :] if tuple(before[: len(MODULE)]) == MODULE else before
        arguments = [*command.arguments, *own]
    return {**there, "command": command.program, "args": arguments}


# -- the file


def _read(path: Path, client: Client, wanted: dict[str, Any]) -> bytes | None:
    """Links lead out of the project, where a stranger's repository may want us to write."""
    if path.parent.is_symlink():
        raise _unsafe(client, wanted, f"{path.parent.name} is a link")
    try:
        return read_regular(path, _LARGEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unsafe(client, wanted, f"{error.strerror}") from error


def _parse(content: bytes, client: Client, wanted: dict[str, Any]) -> dict[str, Any]:
    """JSON without comments, which some clients allow: they would be lost."""
    if not content.strip():
        return {}
    try:
        found = json.loads(content.decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _unsafe(client, wanted, f"it is not plain JSON: {error}") from None
    if not isinstance(found, dict):
        raise _unsafe(client, wanted, "it is not built as that client's file is")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _unsafe(client: Client, wanted: dict[str, Any], why: str) -> UsageInvalid:
    text = json.dumps({client.section: {SERVER: wanted}}, ensure_ascii=False)
    return UsageInvalid(
        f"{client.file} is left as it is: {why}.", hint=f"Write this into it: {text}", file=client.file, wanted=wanted
    )


def _indent(before: bytes | None) -> str:
    found = re.search(rb'\n([ \t]+)"', before or b"")
    return found[1].decode() if found else "  "


def _text(value: dict[str, Any], indent: str) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False)


def _write(path: Path, text: str, before: bytes | None) -> None:
    lines = text + "\n" * (before is None or before.endswith(b"\n"))
    if before and b"\r\n" in before:
        lines = lines.replace("\n", "\r\n")
    mode = stat.S_IMODE(path.stat().st_mode) if before is not None else None
    write_atomically(path, lines.encode())
    if mode is not None:
        path.chmod(mode)
