"""How a client starts this server: the command in the entry of its file, and who wrote an entry."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vmrag_link import env
from vmrag_link.paths import Places
from vmrag_mcp.clients.table import EntryShape, McpClient, ProjectFile
from vmrag_mcp.options import Flags

SERVER = "vmrag"
SCRIPT = "vmrag-mcp"
MODULE = ("-P", "-m", "vmrag_link.cli.mcp")
"""Python's arguments if there is no script. `-P` keeps Python from importing files of
the project.
"""

_REPO = "--repo"

_MAX_VALUE_CHARACTERS = 300
"""Maximum length of a value in a message."""

FIRST = "essential"
"""The toolset of an agent if no variable or setting selects toolsets."""


class ServerCommand(NamedTuple):
    """A command that starts the server."""

    program: str
    arguments: tuple[str, ...] = ()
    portable: bool = True
    """Other computers have the program at the same path."""


class ServerEntry(NamedTuple):
    """An entry of a client's file. `command` is the command in its `value`."""

    name: str
    value: dict[str, Any]
    command: ServerCommand


def for_project(client: McpClient, file: ProjectFile, places: Places, flags: Flags) -> ServerEntry:
    """Return the entry for everyone who works in the project."""
    command = _find_shared(file, places)
    repository: tuple[str, ...] = (_REPO, file.folder_variable) if file.passes_folder and file.folder_variable else ()
    return _build_entry(client.shape, SERVER, command, (*repository, *format_options(flags)))


def for_person(client: McpClient | None, places: Places, flags: Flags) -> ServerEntry:
    """Return the entry for this computer; `client` None: for any client."""
    command = find_absolute()
    if client is None:
        repository: tuple[str, ...] = (_REPO, str(places.top))
        shape, name = EntryShape(fixed=(("type", "stdio"),)), SERVER
    elif client.serves_all_projects:
        shape, name, repository = client.shape, SERVER, ()
    else:
        shape, name, repository = client.shape, _name_server(places.top), (_REPO, str(places.top))
    return _build_entry(shape, name, command, (*repository, *format_options(flags)))


def format_options(flags: Flags) -> tuple[str, ...]:
    default_toolsets = flags.default_toolsets or (FIRST if flags.toolsets is None else None)
    values = {"--toolsets": flags.toolsets, "--default-toolsets": default_toolsets, "--tools": flags.tools}
    values |= {"--exclude-tools": flags.exclude_tools, "--default-ef": flags.default_ef}
    options = [part for name, value in values.items() if value is not None for part in (name, value)]
    return (*options, *(["--read-only"] if flags.read_only else []))


def is_ours(shape: EntryShape, entry: Mapping[str, Any]) -> bool:
    """Return whether an entry starts this server, with any options."""
    start = _read_start(shape, entry)
    if start is None:
        return False
    program, arguments = start
    return Path(program).name == SCRIPT or tuple(arguments[: len(MODULE)]) == MODULE


def serves_same_repository(shape: EntryShape, entry: Mapping[str, Any], expected: ServerEntry) -> bool:
    """Return whether our entry names the same repository as `expected`, or neither names one."""
    return _read_repository(shape, entry) == _read_repository(shape, expected.value)


def changed_values(shape: EntryShape, entry: Mapping[str, Any], expected: ServerEntry, flags: Flags) -> dict[str, Any]:
    """Return the values to change in our entry. Without flags, its options stay."""
    arguments = _read_arguments(shape, expected.value)
    if flags == Flags() and (shape.arguments is None or shape.arguments in entry):
        before = _read_arguments(shape, entry)
        options = before[len(MODULE) :] if tuple(before[: len(MODULE)]) == MODULE else before
        arguments = [*expected.command.arguments, *options]
    values = _start_values(shape, expected.command.program, arguments)
    return {key: value for key, value in values.items() if entry.get(key) != value}


def list_differences(entry: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    """Yield a description of each key in which an entry differs from the expected entry.

    Values of keys that the expected entry lacks are not shown: they can be keys of services.
    """
    for key in dict.fromkeys([*expected, *entry]):
        if key not in entry:
            yield f"{key} is missing"
        elif key not in expected:
            names = ", ".join(entry[key]) if isinstance(entry[key], dict) else ""
            yield _cut_value(f"{key} is added" + (f" ({names})" if names else ""))
        elif entry[key] != expected[key]:
            yield f"{key} is {_cut_value(_format_json(entry[key]))} instead of {_format_json(expected[key])}"


def as_installed(shape: EntryShape, entry: Mapping[str, Any], expected: ServerEntry) -> bool:
    """Return whether an installation wrote the entry, with options but without other changes."""
    if (
        entry.keys() != expected.value.keys()
        or not is_ours(shape, entry)
        or not serves_same_repository(shape, entry, expected)
    ):
        return False
    start = _start_values(shape, "", []).keys()
    return all(entry[key] == value for key, value in expected.value.items() if key not in start)


def find_absolute() -> ServerCommand:
    """Return the program of this installation, by its path on this computer."""
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if (folder / SCRIPT).is_file():
            return ServerCommand(str(folder / SCRIPT), portable=False)
    return ServerCommand(sys.executable, MODULE, portable=False)


def _find_shared(file: ProjectFile, places: Places) -> ServerCommand:
    """Return the script: by name if every shell finds it, or else by its path.

    The path is relative to the project if the script is in the project.
    """
    script = shutil.which(SCRIPT, path=env.path_without_environment())
    command = find_absolute()
    program = Path(command.program)
    if script and os.path.realpath(script) == os.path.realpath(program):
        return ServerCommand(SCRIPT)
    if file.folder_variable and program.is_relative_to(places.top):
        return ServerCommand(f"{file.folder_variable}/{program.relative_to(places.top).as_posix()}", command.arguments)
    return command


def _build_entry(shape: EntryShape, name: str, command: ServerCommand, options: tuple[str, ...]) -> ServerEntry:
    fixed = {key: value.format(name=name) if isinstance(value, str) else value for key, value in shape.fixed}
    start = _start_values(shape, command.program, [*command.arguments, *options])
    return ServerEntry(name, {**fixed, **start}, command)


def _start_values(shape: EntryShape, program: str, arguments: list[str]) -> dict[str, Any]:
    if shape.arguments is None:
        return {shape.program: [program, *arguments]}
    return {shape.program: program, shape.arguments: arguments}


def _read_start(shape: EntryShape, entry: Mapping[str, Any]) -> tuple[str, list[str]] | None:
    """Return the program and arguments of an entry; None if it has none."""
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


def _read_arguments(shape: EntryShape, entry: Mapping[str, Any]) -> list[str]:
    return (_read_start(shape, entry) or ("", []))[1]


def _read_repository(shape: EntryShape, entry: Mapping[str, Any]) -> str | None:
    arguments = _read_arguments(shape, entry)
    repositories = [value for option, value in itertools.pairwise(arguments) if option == _REPO]
    return repositories[-1] if repositories else None


def _name_server(top: Path) -> str:
    """Return the name of a server for one repository.

    All clients accept it, and no format quotes it.
    """
    word = re.sub(r"[^a-z0-9]+", "-", top.name.lower()).strip("-")
    return f"{SERVER}-{word}" if word else SERVER


def _cut_value(text: str) -> str:
    return text if len(text) <= _MAX_VALUE_CHARACTERS else f"{text[:_MAX_VALUE_CHARACTERS]}…"


def _format_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
