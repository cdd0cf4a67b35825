"""The table of all tools: name, toolset, effect, parameters, function.

A tool is a function in a module of a toolset. `tools.json` beside its modules is the same table for
clients. It is generated (`python -m vmrag_mcp.reference`) and read at the start, so that listing
the tools imports none of what they do.
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
    each.name: each
    for each in (
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
"""The server's own toolsets, which are those of a server that was told nothing else."""

RESOURCES = {
    "status": ("dolt_status",),
    "collections": ("chroma_list_collections",),
    "collection": ("chroma_get_collection_info", "chroma_get_documents"),
    "document": ("chroma_get_documents",),
}
"""By the name of a resource: the tools that show the same. It follows their exclusions."""

CATALOGUE = "tools.json"
"""In the package that declares a toolset."""

CLEARING = {"if_uncommitted=commit_first": "dolt_commit", "if_uncommitted=reset_first": "dolt_reset"}
"""`by_argument` of the tools that can make room for what they do."""

P = ParamSpec("P")
R = TypeVar("R")


class ToolInfo(Record, frozen=True, omit_defaults=True):
    """A tool as clients see it.

    `effect`: letters. R reads, W changes the working set or the index, V changes history, branches
    or refs, N may use the network, F writes files outside the knowledge base, D discards something,
    O replaces what exists.
    `on_read_only`: on a read-only server it changes no documents. `alias_of`: the tool of which it
    is another name, or a form for one case. `includes`: tools whose work it does as well.
    `same_effect`: those of them that have its effect on the same kind of data, so that to exclude
    it excludes them.
    `by_argument`: those whose work it does where an argument has a value, by `name=value`. `short`:
    what clients call it where no other tool of the server has that name.
    """

    name: str
    toolsets: tuple[str, ...]
    module: str
    effect: str
    description: str
    schema: dict[str, Any]
    idempotent: bool = False
    on_read_only: bool = False
    alias_of: str = ""
    includes: tuple[str, ...] = ()
    same_effect: tuple[str, ...] = ()
    by_argument: dict[str, str] = msgspec.field(default_factory=dict)
    short: str = ""
    plain_text: bool = False
    """Whether the tool answers with text alone (`results.TextResult`)."""
    title: str = ""
    """Empty in tables that earlier versions wrote."""

    @property
    def shown_title(self) -> str:
        """The title, or the words of the tool's name without the name of its family."""
        return self.title or re.sub(r"^(?:chroma|dolt|learning)_", "", self.name).replace("_", " ").capitalize()

    @property
    def reads(self) -> bool:
        return set(self.effect) <= {"R", "N"}

    @property
    def needs_consent(self) -> bool:
        """Whether a person is asked before an agent may switch it on."""
        return bool(set(self.effect) & {"N", "D"})

    def is_available(self, *, read_only: bool) -> bool:
        return self.reads or self.on_read_only or not read_only

    @property
    def annotations(self) -> dict[str, bool]:
        """Return the hints that clients do not assume anyway.

        A tool that only reads has one of them. Some clients assume that a tool does not delete.
        """
        hints = {"readOnlyHint": True} if self.reads else {"destructiveHint": not {"D", "O"}.isdisjoint(self.effect)}
        if self.idempotent and not self.reads:
            hints["idempotentHint"] = True
        return hints if "N" in self.effect else hints | {"openWorldHint": False}


class ToolDeclaration(Record, frozen=True):
    """What `tool` says of a function.

    `founds`: the tool works where there is no knowledge base yet; `of_files`: there it answers from
    the files of sources, if there are any; `of_git`: there it answers from git. `on_read_only`: a
    server that is read-only has it, too, and it changes no documents then. `of_server`: it is about
    the server itself, works in any place, and takes the `EnabledTools` and what the person agreed
    to instead of a `Call`. More is as in `ToolInfo`.
    """

    effect: str
    title: str = ""
    """Shown to people instead of the name. Default: the words of the name."""
    idempotent: bool = False
    founds: bool = False
    of_files: bool = False
    of_git: bool = False
    on_read_only: bool = False
    of_server: bool = False
    alias_of: str = ""
    includes: tuple[str, ...] = ()
    same_effect: tuple[str, ...] = ()
    by_argument: dict[str, str] = msgspec.field(default_factory=dict)
    short: str = ""


def tool(effect: str, **more: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function a tool of its module's toolsets. Its docstring is what clients read.

    The function takes the `Call`, and its parameters as keywords (`arguments`); it returns a record
    of `results`. `more`: as in `ToolDeclaration`.
    """
    declared = ToolDeclaration(effect, **more)

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        function.__dict__["declared"] = declared
        return function

    return mark


@cache
def list_toolsets() -> Mapping[str, Toolset]:
    """Every toolset by its name: the server's own first, whose names no other one takes."""
    return CORE | {name: each for name, each in toolset.installed().toolsets.items() if name not in CORE}


@cache
def load_catalogue() -> Mapping[str, ToolInfo]:
    """Every tool by its name, in the order in which clients see them.

    Of two tools of one name that are not the same function, the first one stays: no package takes
    the place of another one's tool.
    """
    found: dict[str, ToolInfo] = {}
    for each in _listed():
        first = found.setdefault(each.name, each)
        if first.module == each.module:
            names = tuple(dict.fromkeys((*first.toolsets, *each.toolsets)))
            found[each.name] = msgspec.structs.replace(first, toolsets=names)
    return found


def _listed() -> Iterator[ToolInfo]:
    """What the packages list. One whose list cannot be read has no tools here, and is told of."""
    for package in dict.fromkeys(each.package for each in list_toolsets().values() if each.tools):
        try:
            content = (toolset.folder(package) / CATALOGUE).read_bytes()
            rows = msgspec.json.decode(content, type=list[ToolInfo])
        except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
            log(f"The tools of {package} cannot be listed: {error}. `python -m vmrag_mcp.reference {package}` does.")
            continue
        yield from (row for row in rows if not list_toolsets().keys().isdisjoint(row.toolsets))


def canonical_name(name: str) -> str:
    """The name of the tool that this one is an alias of; its own if it is none."""
    alias_of = load_catalogue()[name].alias_of
    return canonical_name(alias_of) if alias_of else name


def tools_within(name: str) -> frozenset[str]:
    """The tools whose work a tool does, by canonical names: itself, and those that it includes."""
    tool = load_catalogue()[name]
    return frozenset({canonical_name(name)}).union(*map(tools_within, tool.includes))


def import_function(listed: ToolInfo) -> Callable[..., ToolResult]:
    """Imports what the tool needs, which takes a moment the first time."""
    found: Callable[..., ToolResult] = getattr(importlib.import_module(listed.module), listed.name)
    return found
