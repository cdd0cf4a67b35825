"""How a client starts this server: the entry of its file (made, read, and made right again), and
links that put the server into an editor by a click.

`docs/mcp.md` has the links. They serve people who have not installed the server: uv fetches the
package, and the editor says which project is open.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from vmrag_link import env
from vmrag_link.paths import Places
from vmrag_mcp.clients.table import EntryShape, McpClient, ProjectFile
from vmrag_mcp.options import Flags

SERVER = "vmrag"
SCRIPT = "vmrag-mcp"
MODULE = ("-P", "-m", "vmrag_link.cli.mcp")
"""Python's arguments where there is no script. `-P`: it imports no file of the project."""

_REPO = "--repo"

_LONGEST = 300
"""Characters of a value that a message shows."""

FIRST = "essential"
"""The toolset of an agent of which neither the environment nor a setting says which ones it has."""


class ServerCommand(NamedTuple):
    """`portable`: other computers have the program at that place, too."""

    program: str
    arguments: tuple[str, ...] = ()
    portable: bool = True


class ServerEntry(NamedTuple):
    """What belongs into a client's file. `command`: how the server is started in `value`."""

    name: str
    value: dict[str, Any]
    command: ServerCommand


def for_project(client: McpClient, file: ProjectFile, places: Places, flags: Flags) -> ServerEntry:
    """The entry that is the same for everybody who works in the project."""
    command = _shared(file, places)
    told: tuple[str, ...] = (_REPO, file.here) if file.told and file.here else ()
    return _entry(client.shape, SERVER, command, (*told, *format_options(flags)))


def for_person(client: McpClient | None, places: Places, flags: Flags) -> ServerEntry:
    """The entry of this computer; None: for any client."""
    command = find_absolute()
    if client is None:
        told: tuple[str, ...] = (_REPO, str(places.top))
        shape, name = EntryShape(fixed=(("type", "stdio"),)), SERVER
    elif client.personal and client.personal.finds:
        shape, name, told = client.shape, SERVER, ()
    else:
        shape, name, told = client.shape, _name_after(places.top), (_REPO, str(places.top))
    return _entry(shape, name, command, (*told, *format_options(flags)))


def format_options(flags: Flags) -> tuple[str, ...]:
    first = flags.default_toolsets or (FIRST if flags.toolsets is None else None)
    named = {"--toolsets": flags.toolsets, "--default-toolsets": first, "--tools": flags.tools}
    named |= {"--exclude-tools": flags.exclude_tools, "--default-ef": flags.default_ef}
    given = [part for name, value in named.items() if value is not None for part in (name, value)]
    return (*given, *(["--read-only"] if flags.read_only else []))


def is_ours(shape: EntryShape, entry: Mapping[str, Any]) -> bool:
    """Whether an entry starts this server, with whatever options."""
    found = _started(shape, entry)
    return found is not None and (Path(found[0]).name == SCRIPT or tuple(found[1][: len(MODULE)]) == MODULE)


def serves_same_repository(shape: EntryShape, entry: Mapping[str, Any], wanted: ServerEntry) -> bool:
    """Whether an entry of ours names the same repository as the wanted one; or none, as that."""
    return _repository(shape, entry) == _repository(shape, wanted.value)


def changed_values(shape: EntryShape, there: Mapping[str, Any], wanted: ServerEntry, flags: Flags) -> dict[str, Any]:
    """What has to be changed in an entry of ours. Without flags, the options that it has stay."""
    arguments = _arguments(shape, wanted.value)
    if flags == Flags() and (shape.arguments is None or shape.arguments in there):
        before = _arguments(shape, there)
        own = before[len(MODULE) :] if tuple(before[: len(MODULE)]) == MODULE else before
        arguments = [*wanted.command.arguments, *own]
    values = _start_values(shape, wanted.command.program, arguments)
    return {key: value for key, value in values.items() if there.get(key) != value}


def list_differences(entry: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """Name each key in which an entry differs from the wanted one.

    Values that are not in the wanted entry are not shown: they can be keys of services.
    """
    for key in dict.fromkeys([*wanted, *entry]):
        if key not in entry:
            yield f"{key} is missing"
        elif key not in wanted:
            names = ", ".join(entry[key]) if isinstance(entry[key], dict) else ""
            yield _cut_value(f"{key} is added" + (f" ({names})" if names else ""))
        elif entry[key] != wanted[key]:
            yield f"{key} is {_cut_value(_json(entry[key]))} instead of {_json(wanted[key])}"


def as_installed(shape: EntryShape, entry: Mapping[str, Any], wanted: ServerEntry) -> bool:
    """Whether an entry is what an installation somewhere wrote, with options and nothing else."""
    if (
        entry.keys() != wanted.value.keys()
        or not is_ours(shape, entry)
        or not serves_same_repository(shape, entry, wanted)
    ):
        return False
    start = _start_values(shape, "", []).keys()
    return all(entry[key] == value for key, value in wanted.value.items() if key not in start)


def find_absolute() -> ServerCommand:
    """The program of this installation, by its place on this computer."""
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if (folder / SCRIPT).is_file():
            return ServerCommand(str(folder / SCRIPT), portable=False)
    return ServerCommand(sys.executable, MODULE, portable=False)


def _shared(file: ProjectFile, places: Places) -> ServerCommand:
    """The script: by name if every shell finds it, else by path, in the project or absolute."""
    found = shutil.which(SCRIPT, path=env.path_without_environment())
    own = find_absolute()
    program = Path(own.program)
    if found and os.path.realpath(found) == os.path.realpath(program):
        return ServerCommand(SCRIPT)
    if file.here and program.is_relative_to(places.top):
        return ServerCommand(f"{file.here}/{program.relative_to(places.top).as_posix()}", own.arguments)
    return own


def _entry(shape: EntryShape, name: str, command: ServerCommand, options: tuple[str, ...]) -> ServerEntry:
    fixed = {key: value.format(name=name) if isinstance(value, str) else value for key, value in shape.fixed}
    start = _start_values(shape, command.program, [*command.arguments, *options])
    return ServerEntry(name, {**fixed, **start}, command)


def _start_values(shape: EntryShape, program: str, arguments: list[str]) -> dict[str, Any]:
    if shape.arguments is None:
        return {shape.program: [program, *arguments]}
    return {shape.program: program, shape.arguments: arguments}


def _started(shape: EntryShape, entry: Mapping[str, Any]) -> tuple[str, list[str]] | None:
    """Program and arguments of an entry, if it is one."""
    program = entry.get(shape.program)
    arguments = entry.get(shape.arguments, []) if shape.arguments else []
    if shape.arguments is None and isinstance(program, list) and program:
        program, arguments = program[0], program[1:]
    if (
        isinstance(program, str)
        and isinstance(arguments, list)
        and all(isinstance(argument, str) for argument in arguments)
    ):
        return program, arguments
    return None


def _arguments(shape: EntryShape, entry: Mapping[str, Any]) -> list[str]:
    return (_started(shape, entry) or ("", []))[1]


def _repository(shape: EntryShape, entry: Mapping[str, Any]) -> str | None:
    arguments = _arguments(shape, entry)
    places = [number for number, argument in enumerate(arguments[:-1]) if argument == _REPO]
    return arguments[places[-1] + 1] if places else None


def _name_after(top: Path) -> str:
    """The name of a server for one repository, which every client takes and no format quotes."""
    word = re.sub(r"[^a-z0-9]+", "-", top.name.lower()).strip("-")
    return f"{SERVER}-{word}" if word else SERVER


LINK_COMMAND = "uvx"
LINK_ARGUMENTS = ("--with", "vmrag-link[mcp]", "vmrag-link", *format_options(Flags()))


def cursor_link() -> str:
    """https://cursor.com/docs/context/mcp/install-links; by the web, as pages show no other."""
    config = base64.b64encode(_json({"command": LINK_COMMAND, "args": [*LINK_ARGUMENTS]}).encode()).decode()
    return f"https://cursor.com/en/install-mcp?name={SERVER}&config={quote(config, safe='')}"


def vscode_link() -> str:
    """https://code.visualstudio.com/api/extension-guides/ai/mcp: `vscode:mcp/install?` and JSON."""
    return f"vscode:mcp/install?{quote(_json({'name': SERVER, 'command': LINK_COMMAND, 'args': [*LINK_ARGUMENTS]}), safe='')}"


def vscode_page_link() -> str:
    """The same through a page of its makers, for pages that show no other links."""
    config = quote(_json({"command": LINK_COMMAND, "args": [*LINK_ARGUMENTS]}), safe="")
    return f"https://insiders.vscode.dev/redirect/mcp/install?name={SERVER}&config={config}"


def _cut_value(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
