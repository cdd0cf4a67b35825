"""The contract of toolsets: what a package may add to the core, and where those that are installed
are found.

A toolset is a leaf. It imports the core; the core knows it by an entry point of the group
`vmrag.toolsets` alone, whose object is a `Toolset`. Ours are registered like anybody's. Nothing is
looked for until something is asked that the core does not have: hooks, `vmrag --version` and a
plain query never do. docs/toolsets.md explains it with an example.
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
below the toolset's own package.
"""


class ToolsetCommand(Record, frozen=True):
    """A command of `vmrag`: the heading that it stands under in `vmrag help`, its line there, and
    the click command, as `cli.base.command` makes it.
    """

    topic: str
    about: str
    command: Reference


class Toolset(Record, frozen=True):
    """What an entry point of the group gives. Everything but the first three may be left out.

    `package`: `__name__` of the package that declares it. `tools`: modules with functions that
    `vmrag_mcp.registry.tool` marks; `tools.json` in the package lists them for clients, and is
    written by `python -m vmrag_mcp.reference PACKAGE`. `settings`: sections of `.vmrag.yaml`, each
    a frozen `Record` declared as those of `vmrag_link.settings` are. `imports`: by the scheme of an
    address, what `vmrag import` calls with it (`cli.import_.ImportRequest`). `documents`: by the
    suffix of a file, such as `.ics`, a function that makes Markdown of its bytes; the confined
    child imports its module, which therefore imports nothing of the core. `checks`: a `Topic` of
    `vmrag doctor` each. `instructions`: what the server tells its clients of these tools, where it
    has all of them.
    """

    name: str
    about: str
    package: str
    contract: int = CONTRACT
    tools: tuple[str, ...] = ()
    """Modules with functions that `vmrag_mcp.registry.tool` marks.

    `tools.json` in the package lists the functions for clients.
    `python -m vmrag_mcp.reference PACKAGE` writes it.
    """
    commands: Mapping[str, ToolsetCommand] = MappingProxyType({})
    settings: Mapping[str, Reference] = MappingProxyType({})
    imports: Mapping[str, Reference] = MappingProxyType({})
    documents: Mapping[str, Reference] = MappingProxyType({})
    checks: tuple[Reference, ...] = ()
    instructions: str = ""

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of its tools, by their full names."""
        return tuple(resolve_name(tool, self.package) for tool in self.tools)

    def absolute(self, reference: Reference) -> Reference:
        """The same reference, for whoever does not know whose it is."""
        module, _, name = reference.partition(":")
        return f"{resolve_name(module, self.package)}:{name}"

    def load(self, reference: Reference) -> Any:
        """Import what a reference of this toolset names."""
        module, _, name = self.absolute(reference).partition(":")
        return getattr(importlib.import_module(module), name)


class InstalledToolsets(Record, frozen=True):
    """By name, in the order of the names; `problems`: sentences about those that cannot be used."""

    toolsets: Mapping[str, Toolset]
    problems: tuple[str, ...]

    def commands(self) -> Iterator[tuple[Toolset, str, ToolsetCommand]]:
        for toolset in self.toolsets.values():
            for name, command in toolset.commands.items():
                yield toolset, name, command

    def schemas(self) -> list[Schema]:
        """The settings of each toolset that has some."""
        from vmrag_link.settings.keys import build_schema  # most callers do not need them

        return [
            build_schema({section: toolset.load(reference) for section, reference in toolset.settings.items()})
            for toolset in self.toolsets.values()
            if toolset.settings
        ]


@cache
def installed() -> InstalledToolsets:
    """Those of this environment. One that fails to load is left out, and never stops another."""
    from importlib.metadata import entry_points  # a tenth of a start, and most have no use for it

    found: dict[str, Toolset] = {}
    problems: list[str] = []
    for point in sorted(entry_points(group=GROUP), key=lambda entry_point: entry_point.name):
        try:
            toolset = _declared(point)
        except Exception as error:  # noqa: BLE001  another program's code, of whatever quality
            problems.append(f"The toolset {point.name!r} cannot be loaded ({point.value}): {error}")
            continue
        if point.name in found:
            problems.append(f"The toolset {point.name!r} is there twice; {point.value} is left out.")
        else:
            found[point.name] = toolset
    return InstalledToolsets(MappingProxyType(found), tuple(problems))


def _declared(point: EntryPoint) -> Toolset:
    toolset = point.load()
    if not isinstance(toolset, Toolset):
        raise TypeError(f"it is no {Toolset.__name__}")
    if toolset.name != point.name:
        raise ValueError(f"it calls itself {toolset.name!r}")
    if toolset.contract != CONTRACT:
        raise ValueError(f"it was written for contract {toolset.contract}, and this program has {CONTRACT}")
    return toolset


def folder(package: str) -> Path:
    """Where a toolset's package lies."""
    return Path(str(importlib.import_module(package).__file__)).parent
