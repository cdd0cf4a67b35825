"""The *catalogue*, the table of all tools: name, toolset, effect, parameters and function.

A tool is a function in a module of a toolset, with the decorator `tool`. `tools.json` next to these
modules has its row of the catalogue, which `python -m vmrag_mcp.reference` generates. The server
reads it at the start, so it can list the tools without importing them.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, ParamSpec, TypeVar

import msgspec

from vmrag_link import toolset
from vmrag_link.models import Record
from vmrag_link.toolset import Toolset
from vmrag_mcp.process import log
from vmrag_mcp.results import ToolResult

CORE = {
    core.name: core
    for core in (
        Toolset("chroma", "collections, documents", __package__, tools=(".tools.collections", ".tools.documents")),
        Toolset(
            "dolt",
            "commit, branches, fetch, push",
            __package__,
            tools=(".tools.history", ".tools.working", ".tools.remotes"),
        ),
        Toolset("link", "revision of a commit", __package__, tools=(".tools.link",)),
        Toolset("merge", "diff, conflicts", __package__, tools=(".tools.merging", ".tools.diff")),
        Toolset("sync", "index upkeep", __package__, tools=(".tools.sync",)),
        Toolset(
            "toolsets",
            "list them",
            __package__,
            tools=(".tools.toolsets", ".tools.enabling"),
        ),
    )
}
"""The server's own toolsets. A server has them by default."""

RESOURCES = {
    "status": ("dolt_status",),
    "collections": ("chroma_list_collections",),
    "collection": ("chroma_get_collection_info", "chroma_get_documents"),
    "document": ("chroma_get_documents",),
}
"""The tools that show the same data, by the name of a resource. Excluding them excludes the
resource.
"""

CATALOGUE = "tools.json"
"""Name of the file in each package that declares toolsets."""

CLEARING = {"if_uncommitted=commit_first": "dolt_commit", "if_uncommitted=reset_first": "dolt_reset"}
"""Value of `ToolDeclaration.by_argument` for tools that can commit or discard uncommitted documents
first.
"""

P = ParamSpec("P")
R = TypeVar("R")


class ToolInfo(Record, frozen=True, omit_defaults=True):
    """A tool in the form that clients see."""

    name: str
    toolsets: tuple[str, ...]
    module: str
    effect: str
    """Letters: R reads, W changes the working set or the index, V changes history, branches or
    refs, N may use the network, F writes files outside the knowledge base, D discards data, O
    replaces existing data.
    """
    description: str
    schema: dict[str, Any]
    idempotent: bool = False
    on_read_only: bool = False
    """On a read-only server, the tool is available and changes no documents."""
    alias_of: str = ""
    """The tool of which this is another name, or a form for one case."""
    includes: tuple[str, ...] = ()
    """Tools whose work this tool also does."""
    same_effect: tuple[str, ...] = ()
    """Tools of `includes` with the same effect on the same kind of data. To exclude this tool
    excludes them.
    """
    by_argument: dict[str, str] = msgspec.field(default_factory=dict)
    """Tools whose work this tool does if an argument has a value, by `name=value`."""
    short: str = ""
    """The name for clients, if no other tool of the server has that name."""
    plain_text: bool = False
    """True if the tool answers with text alone (`results.TextResult`)."""
    title: str = ""
    """Empty in tables of earlier versions."""

    @property
    def shown_title(self) -> str:
        """The title, or the words of the tool's name without the name of its family."""
        return self.title or re.sub(r"^(?:chroma|dolt|learning)_", "", self.name).replace("_", " ").capitalize()

    @property
    def reads(self) -> bool:
        return set(self.effect) <= {"R", "N"}

    @property
    def changes_history(self) -> bool:
        return "V" in self.effect

    @property
    def needs_consent(self) -> bool:
        """True if the user must agree before an agent can switch the tool on."""
        return bool(set(self.effect) & {"N", "D"})

    def is_available(self, *, read_only: bool) -> bool:
        return self.reads or self.on_read_only or not read_only

    @property
    def annotations(self) -> dict[str, bool]:
        """Return the hints that differ from what clients assume.

        A tool that only reads has one of them. Some clients assume that a tool does not delete.
        """
        hints = {"readOnlyHint": True} if self.reads else {"destructiveHint": not {"D", "O"}.isdisjoint(self.effect)}
        if self.idempotent and not self.reads:
            hints["idempotentHint"] = True
        return hints if "N" in self.effect else hints | {"openWorldHint": False}


class ToolDeclaration(Record, frozen=True):
    """The arguments of `tool` for one function. Fields without a text are as in `ToolInfo`."""

    effect: str
    title: str = ""
    """Name for people. Default: the words of the tool's name."""
    idempotent: bool = False
    without_kb: bool = False
    """The tool works without a knowledge base."""
    reads_files: bool = False
    """Without a knowledge base, the tool answers from the files of sources, if sources
    match any.
    """
    reads_git: bool = False
    """Without a knowledge base, the tool answers from git."""
    on_read_only: bool = False
    """A read-only server has the tool, and the tool changes no documents there."""
    about_server: bool = False
    """The tool is about the server and works everywhere. Instead of a `Call`, its function gets the
    `EnabledTools` and the names that the user confirmed.
    """
    alias_of: str = ""
    includes: tuple[str, ...] = ()
    same_effect: tuple[str, ...] = ()
    by_argument: dict[str, str] = msgspec.field(default_factory=dict)
    short: str = ""


def tool(effect: str, **more: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function a tool of the toolsets of its module.

    The function takes the `Call`, and its parameters as keywords (`arguments`). It returns a record
    of `results`. Its docstring is the description for clients. `effect` and `more` are fields of
    `ToolDeclaration`.
    """
    declaration = ToolDeclaration(effect, **more)

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        function.__dict__["declared"] = declaration
        return function

    return mark


@cache
def list_toolsets() -> Mapping[str, Toolset]:
    """Return every toolset by its name.

    Other packages cannot take the names of the server's toolsets.
    """
    return CORE | {name: declared for name, declared in toolset.installed().toolsets.items() if name not in CORE}


@cache
def load_catalogue() -> Mapping[str, ToolInfo]:
    """Return every tool by its name, in the order in which clients see them.

    If two different functions have one name, the first function stays. No package can replace a
    tool of another package.
    """
    by_name: dict[str, ToolInfo] = {}
    for tool in _read_catalogues():
        first = by_name.setdefault(tool.name, tool)
        if first.module == tool.module:
            names = tuple(dict.fromkeys((*first.toolsets, *tool.toolsets)))
            by_name[tool.name] = msgspec.structs.replace(first, toolsets=names)
    return by_name


def _read_catalogues() -> Iterator[ToolInfo]:
    """Yield the tools that the packages list.

    A package without a readable list is logged and skipped.
    """
    for package in dict.fromkeys(declared.package for declared in list_toolsets().values() if declared.tools):
        try:
            content = (toolset.folder(package) / CATALOGUE).read_bytes()
            rows = msgspec.json.decode(content, type=list[ToolInfo])
        except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
            log(f"cannot list the tools of {package}: {error} (run 'python -m vmrag_mcp.reference {package}')")
            continue
        yield from (row for row in rows if not list_toolsets().keys().isdisjoint(row.toolsets))


def canonical_name(name: str) -> str:
    """Return the name of the tool of which this is an alias, or the name itself."""
    alias_of = load_catalogue()[name].alias_of
    return canonical_name(alias_of) if alias_of else name


def tools_within(name: str) -> frozenset[str]:
    """Return the canonical names of a tool and of the tools that it includes."""
    tool = load_catalogue()[name]
    return frozenset({canonical_name(name)}).union(*map(tools_within, tool.includes))


def import_function(info: ToolInfo) -> Callable[..., ToolResult]:
    """Import and return the function of a tool. The first import takes a moment."""
    function: Callable[..., ToolResult] = getattr(importlib.import_module(info.module), info.name)
    return function
