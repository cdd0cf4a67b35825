"""The tools that a server has: by toolsets, single tools, exclusions and read-only; and texts that
name tools, as the server's clients read them.

A flag goes before the environment, that before the settings, those before the default. Restrictions
add up: a tool that any of them excludes is excluded. A sentence that names a tool which the server
lacks would send an agent into a refusal, so it is left out.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from vmrag_link import extras, toolset
from vmrag_link.errors import (
    AccessDenied,
    ToolDisabled,
    ToolMissing,
    UsageInvalid,
    enumerated,
    nearest,
    quoted,
    shortened,
)
from vmrag_link.models import LONGEST_NAME, LONGEST_QUERY, Record
from vmrag_link.settings import McpSettings
from vmrag_mcp.registry import CORE, ToolInfo, canonical_name, list_toolsets, load_catalogue, tools_within

KEYWORDS = ("default", "all")
_MOST_VALUES = 40
"""Values of a parameter that clients see."""

_LARGE = 100
"""From here on, clients do not see the maximum of a number. A minimum is smaller."""

SWITCH = "enable_toolset"
"""The tool that switches toolsets on."""

NAME = "vmrag"
TITLE = "Knowledge of this repository"
"""The server's name in the protocol, and what clients may show to people."""

_ABOUT = (
    "Knowledge of this repository at the checked-out commit: its documentation and code, as they are in the working tree, and stored "
    "documents such as notes, decisions and issue logs. "
    "Before you answer a question about the project or edit its code, call chroma_query_documents, which searches all collections by "
    "words and by meaning. "
    "chroma_query_documents finds definitions with symbol=X, and returns whole passages with path and lines with max_tokens. "
    "Store with chroma_add_documents what the user wants to know later; dolt_commit makes a revision of it. "
    "Ask the user before you create a knowledge base with dolt_init."
)
_TRUTH = (
    "The block 'kb' of an answer names the commit and the revision that it comes from; in_sync is true if the revision is the pinned one. "
    "dolt_commit stages the pin .dolt-version: commit it with git."
)

_FILES = (
    "Documents of collections of kind 'source' are files of this repository, as they are in the working tree: to change one, edit the "
    "file, and the next query sees it."
)


class ToolChoice(Record, frozen=True):
    """What somebody asked for; names in lists are separated by commas."""

    toolsets: str = "default"
    tools: str = ""
    exclude_tools: str = ""
    read_only: bool = False
    prefix: str = ""


class Flags(Record, frozen=True):
    """What the command line says; None: nothing. `default_toolsets`: those of a server of which
    nothing else says which it has.
    """

    toolsets: str | None = None
    tools: str | None = None
    exclude_tools: str | None = None
    read_only: bool = False
    default_ef: str | None = None
    default_toolsets: str | None = None


def resolve_choice(flags: Flags, settings: McpSettings, *, stated: Container[str] = ()) -> ToolChoice:
    """A flag goes before the settings, which include the environment. Restrictions of both hold.

    `stated`: the settings that somebody has made.
    """
    unsaid = flags.default_toolsets is not None and "mcp.toolsets" not in stated
    toolsets = flags.default_toolsets if unsaid else settings.toolsets
    return ToolChoice(
        toolsets=(toolsets or "") if flags.toolsets is None else flags.toolsets,
        tools=settings.tools if flags.tools is None else flags.tools,
        exclude_tools=",".join(filter(None, (flags.exclude_tools, settings.exclude_tools))),
        read_only=flags.read_only or settings.read_only,
        prefix=settings.tool_prefix,
    )


class ToolsetState(Record, frozen=True):
    """A toolset of a server; `tools` by the names that clients call."""

    name: str
    tools: tuple[str, ...]
    enabled: bool
    about: str


class ToolSelection(Record, frozen=True):
    """The tools of a server by the name that clients call, and the choice that they come from.

    `toolsets`: those that are on as a whole. `names`: what clients call a tool, without the prefix,
    by its name in the catalogue. A tool keeps that name until the client is gone.
    """

    tools: Mapping[str, ToolInfo]
    toolsets: tuple[str, ...]
    choice: ToolChoice
    names: Mapping[str, str]

    def require_tool(self, name: str) -> ToolInfo:
        """Raises `ToolMissing`; `ToolDisabled`, `AccessDenied` for one that is not selected."""
        for called in (name, f"{self.choice.prefix}{name}"):
            if called in self.tools:
                return self.tools[called]
        known = _find_tool(name.removeprefix(self.choice.prefix))
        if known and self.has_tool(known.name):
            return known
        if known is None:
            name = shortened(name)
            hint = nearest(name, self.tools) or "tools/list shows what there is"
            raise ToolMissing(f"There is no tool {name!r}.", hint=hint, tool=name)
        if not known.is_available(read_only=self.choice.read_only):
            raise AccessDenied(
                f"{known.name} changes something, and this server is read-only.",
                hint="Start the server without --read-only, and without mcp.read_only in its settings.",
                tool=known.name,
            )
        self._require_not_excluded(known.name, known.name)
        flag = self.start_option(known.toolsets[0])
        way = f"Start the server with {flag}"
        if self.has_tool(SWITCH):
            way = f"Call {self.choice.prefix}{SWITCH} with the toolset {known.toolsets[0]!r}, or: {way}"
        raise ToolDisabled(
            f"{known.name} is switched off: it is part of {_toolsets_named(known)}.",
            hint=way,
            tool=known.name,
            toolset=known.toolsets[0],
            enable_with=flag,
        )

    def require_arguments(self, tool: ToolInfo, arguments: Mapping[str, Any]) -> None:
        """Raise `ToolDisabled` where a value makes the tool do what an excluded tool does."""
        for each, does in tool.by_argument.items():
            name, _, value = each.partition("=")
            given = arguments.get(name)
            if (str(given).lower() if isinstance(given, bool) else given) == value:
                self._require_not_excluded(f"{tool.name} with {each}", does)

    def require_reachable(self, what: str, *needed: str) -> None:
        """Raise `ToolDisabled` or `AccessDenied` unless clients can call all these tools, at once
        or after `enable_toolset`: `what` shows the same as they do.
        """
        for name in needed:
            self._require_not_excluded(what, name)
            if not self.has_tool(name) and not self.has_tool(SWITCH):
                self.require_tool(f"{self.choice.prefix}{name}")

    def is_reachable(self, *needed: str) -> bool:
        """Whether `require_reachable` raises nothing."""
        try:
            self.require_reachable("", *needed)
        except (AccessDenied, ToolDisabled):
            return False
        return True

    def _require_not_excluded(self, what: str, tool: str) -> None:
        """Raise `ToolDisabled` for a tool that is excluded, by its own or another name."""
        does = tools_within(tool)
        names = [name for name in _names(self.choice.exclude_tools) if not does.isdisjoint(_excluded_with(name))]
        if names:
            others = [name for name in names if name != what]
            why = f": it does what {enumerated(others)} does" if others else ""
            flag = f"--exclude-tools without {','.join(names)}"
            raise ToolDisabled(
                f"{what} is excluded from this server{why}.",
                hint=f"Start the server with {flag}",
                tool=tool,
                toolset=load_catalogue()[tool].toolsets[0],
                enable_with=flag,
            )

    def list_toolsets(self) -> list[ToolsetState]:
        """Every toolset, with the tools that this server may have of it."""
        return [
            ToolsetState(name, tuple(self.with_toolset(name).list_tools_of(name)), name in self.toolsets, each.about)
            for name, each in list_toolsets().items()
        ]

    def list_tools_of(self, toolset: str) -> dict[str, ToolInfo]:
        """Return the tools of a toolset that are on, by the names that clients call."""
        members = {*_toolsets([toolset])}
        return {name: tool for name, tool in self.tools.items() if not members.isdisjoint(tool.toolsets)}

    def list_ruled_out(self, toolset: str) -> list[str]:
        """Return the tools of a toolset that this server was started without."""
        wider, members = self.with_toolset(toolset), {*_toolsets([toolset])}
        return [
            name
            for name, each in load_catalogue().items()
            if not members.isdisjoint(each.toolsets) and not wider.has_tool(name)
        ]

    def with_toolset(self, name: str, *, confirmed: bool = True) -> ToolSelection:
        """Return the selection with one more toolset; tools that are on keep their names.

        `confirmed` False: without the tools that only the user may switch on. Raises `UsageInvalid`
        for an unknown name.
        """
        wider = self.replace_toolsets(",".join((*self.toolsets, name)))
        on = {tool.name: tool for tool in self.tools.values()}
        more = {tool.name: tool for tool in wider.tools.values() if confirmed or not tool.needs_consent}
        tools = on | {key: each for key, each in more.items() if key not in on}
        whole = (
            wider.toolsets
            if len(tools) == len(on.keys() | {tool.name for tool in wider.tools.values()})
            else self.toolsets
        )
        return _named_selection(tools, whole, wider.choice, self.names)

    def keep_names(self, earlier: ToolSelection) -> ToolSelection:
        """Return the selection in which each tool has the name that it had before."""
        tools = {tool.name: tool for tool in self.tools.values()}
        return _named_selection(tools, self.toolsets, self.choice, earlier.names)

    def replace_toolsets(self, names: str) -> ToolSelection:
        """The same with other toolsets. Raises `UsageInvalid` for a name that is none."""
        return select_tools(msgspec.structs.replace(self.choice, toolsets=names))

    def start_option(self, toolset: str) -> str:
        """Return the option that starts a server with one more toolset."""
        names = _toolsets([*self.toolsets, toolset])
        return f"--toolsets={'all' if len(names) == len(list_toolsets()) else ','.join(names)}"

    def build_schema(self, tool: ToolInfo) -> dict[str, Any]:
        """Return the JSON Schema of a tool's parameters in the words of this server."""
        properties = {name: _shorten_schema(shape) for name, shape in tool.schema["properties"].items()}
        for shape in properties.values():
            shape["description"] = self.adapt_text(shape.get("description", ""))
        if tool.name == SWITCH:
            states = [state for state in self.list_toolsets() if state.tools]
            lines = "\n".join(f"{state.name}: {state.about}" for state in states)
            names = [*(state.name for state in states), "all"]
            properties["toolset"] = {"type": "string", "enum": names, "description": lines}
        return tool.schema | {"properties": properties}

    def write_instructions(self) -> str:
        """Return what a client tells its model about this server."""
        lines = [self.adapt_text(_ABOUT), *self._of_toolsets()]
        if not all(tool.plain_text for tool in self.tools.values()):  # only answers in JSON have the block
            lines += [self.adapt_text(_TRUTH), self.adapt_text(_FILES)]
        if self.choice.read_only:
            lines.append("This server is read-only.")
        off = [state for state in self.list_toolsets() if state.tools and not state.enabled]
        if off and self.has_tool(SWITCH):
            names = ", ".join(state.name for state in off)
            lines.append(f"{self.choice.prefix}{SWITCH} switches on more tools: {names}.")
        elif off:
            names = "; ".join(f"{state.name} ({state.about})" for state in off)
            lines.append(f"Switched off: {names}. The server option --toolsets=all switches them on.")
        return " ".join(lines)

    def _of_toolsets(self) -> Iterator[str]:
        """What toolsets say of themselves, where every tool is there that they may speak of."""
        there = {tool.name for tool in self.tools.values()}
        for name in self.toolsets:
            about = list_toolsets()[name].instructions
            if about and all(each.name in there for each in load_catalogue().values() if name in each.toolsets):
                yield about

    def has_tool(self, name: str) -> bool:
        """Whether it has a tool, by its name in the catalogue."""
        return any(tool.name == name for tool in self.tools.values())

    def adapt_text(self, text: str) -> str:
        """A text without what names a tool that this server does not have (`worded`)."""
        return adapt_text(text, self.tools, self.choice.prefix)


def tool_entries(server: ToolSelection) -> list[dict[str, Any]]:
    """Return the entries of `tools/list`, with keys in the order of the SDK's."""
    return [_tool_entry(name, tool, server) for name, tool in server.tools.items()]


def _tool_entry(name: str, tool: ToolInfo, server: ToolSelection) -> dict[str, Any]:
    return {
        "annotations": dict(sorted(tool.annotations.items())),
        "description": server.adapt_text(tool.description),
        "inputSchema": server.build_schema(tool),
        "name": name,
        "title": tool.shown_title,
    }


def _shorten_schema(shape: Any) -> Any:
    """Return a schema without what is usual, because clients pay for it with every conversation.

    The error for a wrong argument names the limits and the values.
    """
    if isinstance(shape, list):
        return [_shorten_schema(part) for part in shape]
    if not isinstance(shape, dict):
        return shape
    return {keyword: _shorten_schema(value) for keyword, value in shape.items() if not _is_usual(keyword, value)}


def _is_usual(keyword: str, value: Any) -> bool:
    match keyword:
        case "default":
            usual = not value
        case "minimum":
            usual = 0 <= value <= _LARGE
        case "maximum":
            usual = value >= _LARGE
        case "maxLength":
            usual = value == LONGEST_NAME or value > LONGEST_QUERY
        case _:
            usual = keyword == "enum" and len(value) > _MOST_VALUES
    return bool(usual)


def _toolsets_named(tool: ToolInfo) -> str:
    return f"the toolset{'s' if tool.toolsets[1:] else ''} {enumerated([repr(each) for each in tool.toolsets])}"


def select_tools(chosen: ToolChoice) -> ToolSelection:
    """Raises `UsageInvalid` for a name that is none, with all that are."""
    having = _toolsets(_names(chosen.toolsets))
    single = _tools(_names(chosen.tools), "--tools")
    return _named_selection(_allowed(chosen, having, single), having, chosen, {})


def _allowed(chosen: ToolChoice, having: Sequence[str], single: Sequence[str]) -> dict[str, ToolInfo]:
    """The tools of these toolsets, and single ones, that no restriction excludes."""
    excluded = {
        each for name in _tools(_names(chosen.exclude_tools), "--exclude-tools") for each in _excluded_with(name)
    }
    return {
        name: each
        for name, each in load_catalogue().items()
        if (any(toolset in having for toolset in each.toolsets) or name in single)
        and not excluded & tools_within(name)
        and each.is_available(read_only=chosen.read_only)
    }


def _named_selection(
    tools: Mapping[str, ToolInfo], having: tuple[str, ...], chosen: ToolChoice, earlier: Mapping[str, str]
) -> ToolSelection:
    """Return the selection of these tools. No tool gets a name that another tool had `earlier`."""
    names = dict(earlier)
    for name, tool in tools.items():
        usual = name if tool.short in tools else tool.short or name
        taken = {*names.values()}
        names.setdefault(name, next((free for free in (usual, name) if free not in taken), _qualified_name(tool)))
    called = {f"{chosen.prefix}{names[name]}": tool for name, tool in tools.items()}
    return ToolSelection(called, having, chosen, names)


def _qualified_name(tool: ToolInfo) -> str:
    """Return the name of a tool whose usual name another tool has: `libraries_search`."""
    return f"{list_toolsets()[tool.toolsets[0]].package.rpartition('.')[2]}_{tool.name}"


def _find_tool(name: str) -> ToolInfo | None:
    """Return the tool of that name, or of that qualified name."""
    return load_catalogue().get(name) or next(
        (each for each in load_catalogue().values() if _qualified_name(each) == name), None
    )


def _excluded_with(name: str) -> set[str]:
    """Return the canonical names of the tools that clients may know by this name, and of those with
    the same effect on the same kind of data.
    """
    meant = {canonical_name(tool.name) for tool in load_catalogue().values() if name in (tool.name, tool.short)}
    return meant.union(*({*map(canonical_name, load_catalogue()[tool].same_effect)} for tool in meant))


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _toolsets(names: Sequence[str]) -> tuple[str, ...]:
    known = (*list_toolsets(), *KEYWORDS)
    for name in names:
        if name not in known:
            raise UsageInvalid(
                f"no such toolset: {name!r}.", hint=f"use one of {', '.join(known)}", toolsets=list(known)
            )
    wanted = {*names}
    if "default" in wanted:
        wanted |= {*CORE}
    return tuple(name for name in list_toolsets() if "all" in wanted or name in wanted)


def _tools(names: Sequence[str], flag: str) -> list[str]:
    for name in names:
        if name not in load_catalogue():
            near = nearest(name, load_catalogue())
            raise UsageInvalid(
                f"There is no tool {name!r}." + (f" Is it {near!r}?" if near else ""),
                hint=f"{flag} takes: {', '.join(load_catalogue())}",
                tools=list(load_catalogue()),
            )
    return list(names)


_PARTS = re.compile(r"(?<=[.;])\s+")
"""Between sentences, and between the parts of one that a semicolon separates."""


@cache
def _tool_names() -> re.Pattern[str]:
    """Names of tools within a text.

    `commit` and `search` are words, too, and `create_branch` before `=` or ` (` is a parameter.
    """
    names = "|".join(name for name in load_catalogue() if "_" in name)
    return re.compile(rf"(?<![\w.])(?:{names})(?![\w=]| \()")


def find_mentioned(text: str) -> set[str]:
    """The tools that a text names, by their names in the catalogue."""
    return {*_tool_names().findall(text)}


def adapt_text(text: str, there: Container[str], prefix: str) -> str:
    """A text without what names a tool that is not there; other tools by the names that clients
    call. Empty if nothing is left.

    `there`: the tools of the server, by those names.
    """
    if not find_mentioned(text):
        return text
    kept: list[str] = []
    for part in _PARTS.split(text):
        if all(f"{prefix}{name}" in there for name in find_mentioned(part)):
            kept.append(part)
        elif kept and kept[-1].endswith(";"):
            kept[-1] = kept[-1][:-1] + (part[-1] if part.endswith((".", ";")) else "")
    return _tool_names().sub(lambda found: f"{prefix}{found[0]}", " ".join(kept))


COMMANDS = (
    "init clone demo trust add import export list show edit rm restore move sources query grep check status commit log diff report blame "
    "fingerprint pin sync branch merge resolve link links verify remote fetch pull push adopt mcp install uninstall doctor migrate gc path "
    "completion help"
).split()
"""The commands of `vmrag`, without those of toolsets."""


@cache
def _vmrag_commands() -> re.Pattern[str]:
    """Match the program's name in a command within a text."""
    names = [*COMMANDS, *(name for _, name, _ in toolset.installed().commands())]
    return re.compile(rf"(?<![\w./-])vmrag(?= (?:-[-\w]|(?:{'|'.join(names)})\b))")


_PIP = re.compile(r"(?<![\w./-])(?<!uv )(?<!-m )pip(?= install )")


def make_runnable(text: str) -> str:
    """Return a text whose commands of `vmrag` and `pip` are found by a shell of this process."""
    command = extras.find_shell_command() if "vmrag" in text else "vmrag"
    if command != "vmrag":
        text = _vmrag_commands().sub(lambda _: command, text)
    if "pip install" in text and not shutil.which("pip"):
        text = _PIP.sub(lambda _: f"{quoted(sys.executable)} -m pip", text)
    return text
