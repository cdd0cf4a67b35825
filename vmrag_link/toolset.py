"""The contract of toolsets: what a package can add to the core, and how installed toolsets are
found.

A toolset imports the core. The core knows it only by an entry point of the group `vmrag.toolsets`,
whose object is a `Toolset`. The toolsets of vmrag are registered like all others. They are only
looked for if a command needs something that the core does not have. Hooks, `vmrag --version` and a
plain query never need them. docs/toolsets.md explains toolsets with an example.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from vmrag_link.models import Record

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from vmrag_link.settings.keys import Schema

CONTRACT = 1
"""Number of the contract. It grows if toolsets for an earlier contract no longer work."""

GROUP = "vmrag.toolsets"

Reference = str
"""`module:name` of an object that is imported when it is needed. A module that begins with a dot is
in the package of the toolset.
"""


class ToolsetCommand(Record, frozen=True):
    """A command of `vmrag`: its heading and its line in `vmrag help`, and the click command that
    `cli.base.command` makes.
    """

    topic: str
    about: str
    command: Reference


class Toolset(Record, frozen=True):
    """The object of an entry point. Only the first three fields are required."""

    name: str
    about: str
    package: str
    """`__name__` of the package that declares it."""
    contract: int = CONTRACT
    tools: tuple[str, ...] = ()
    """Modules with functions that `vmrag_mcp.registry.tool` marks.

    `tools.json` in the package lists the functions for clients.
    `python -m vmrag_mcp.reference PACKAGE` writes it.
    """
    commands: Mapping[str, ToolsetCommand] = MappingProxyType({})
    settings: Mapping[str, Reference] = MappingProxyType({})
    """Sections of `.vmrag.yaml`. Each is a frozen `Record`, declared like those of
    `vmrag_link.settings`.
    """
    imports: Mapping[str, Reference] = MappingProxyType({})
    """By the scheme of an address, the function that `vmrag import` calls with it
    (`cli.import_.ImportRequest`).
    """
    documents: Mapping[str, Reference] = MappingProxyType({})
    """By the suffix of a file, such as `.ics`, a function that converts its bytes to Markdown.

    The confined child process imports the module of the function, so the module imports nothing of
    the core.
    """
    checks: tuple[Reference, ...] = ()
    """A `Topic` of `vmrag doctor` each."""
    instructions: str = ""
    """Text about these tools that the server sends to its clients, if it has all of them."""

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of its tools, by their full names."""
        return tuple(resolve_name(tool, self.package) for tool in self.tools)

    def absolute(self, reference: Reference) -> Reference:
        """Return the reference with a full module name, which does not depend on the toolset."""
        module, _, name = reference.partition(":")
        return f"{resolve_name(module, self.package)}:{name}"

    def load(self, reference: Reference) -> Any:
        """Import the object of a reference."""
        module, _, name = self.absolute(reference).partition(":")
        return getattr(importlib.import_module(module), name)


class InstalledToolsets(Record, frozen=True):
    """The toolsets by name, in the order of the names.

    `problems` has a sentence about each toolset that cannot be used.
    """

    toolsets: Mapping[str, Toolset]
    problems: tuple[str, ...]

    def commands(self) -> Iterator[tuple[Toolset, str, ToolsetCommand]]:
        for toolset in self.toolsets.values():
            for name, command in toolset.commands.items():
                yield toolset, name, command

    def schemas(self) -> list[Schema]:
        """Return the settings of each toolset that has some."""
        from vmrag_link.settings.keys import build_schema  # most callers do not need them

        return [
            build_schema({section: toolset.load(reference) for section, reference in toolset.settings.items()})
            for toolset in self.toolsets.values()
            if toolset.settings
        ]


@cache
def installed() -> InstalledToolsets:
    """Return the toolsets of this environment.

    A toolset that fails to load is left out, and does not affect the others.
    """
    from importlib.metadata import entry_points  # a tenth of a start, and most have no use for it

    toolsets: dict[str, Toolset] = {}
    problems: list[str] = []
    for point in sorted(entry_points(group=GROUP), key=lambda entry_point: entry_point.name):
        try:
            toolset = _declared(point)
        except Exception as error:  # noqa: BLE001  another program's code, of whatever quality
            problems.append(f"The toolset {point.name!r} cannot be loaded ({point.value}): {error}")
            continue
        if point.name in toolsets:
            problems.append(f"The toolset {point.name!r} is installed twice; ignoring {point.value}.")
        else:
            toolsets[point.name] = toolset
    return InstalledToolsets(MappingProxyType(toolsets), tuple(problems))


def _declared(point: EntryPoint) -> Toolset:
    toolset = point.load()
    if not isinstance(toolset, Toolset):
        raise TypeError(f"it is not a {Toolset.__name__}")
    if toolset.name != point.name:
        raise ValueError(f"its name is {toolset.name!r}")
    if toolset.contract != CONTRACT:
        raise ValueError(f"it was written for contract {toolset.contract}, and this program has {CONTRACT}")
    return toolset


def folder(package: str) -> Path:
    """Return the folder of a toolset's package."""
    return Path(str(importlib.import_module(package).__file__)).parent
