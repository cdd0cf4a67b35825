"""Select the tools of a server, and describe them for its clients.

Toolsets, single tools, exclusions and read-only mode select the tools (`ToolChoice`). A flag has
priority over the environment, the environment over the settings, and the settings over the default.
Restrictions add up: one exclusion is enough.

A tool has a name in the *catalogue*, the table of all tools (`registry`). Its name for clients can
be shorter, and can begin with a prefix that the user sets.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from vmrag_link.errors import (
    AccessDenied,
    ToolDisabled,
    ToolMissing,
    UsageInvalid,
    enumerated,
    nearest,
    shortened,
)
from vmrag_link.models import LONGEST_NAME, LONGEST_QUERY, Record
from vmrag_link.settings import McpSettings
from vmrag_mcp import advice
from vmrag_mcp.registry import CORE, ToolInfo, canonical_name, list_toolsets, load_catalogue, tools_within

KEYWORDS = ("default", "all")
_MAX_ENUM_VALUES = 40
"""The schema for clients lists the values of a parameter if it has at most this number."""

_USUAL_LIMIT = 100
"""The schema for clients has neither a maximum of this number or more, nor a minimum up to it."""

SWITCH = "enable_toolset"
"""The tool that enables toolsets."""

SERVER_NAME = "vmrag"
SERVER_TITLE = "Knowledge of this repository"
"""The server's name in the protocol, and its name for people."""

_ABOUT_SERVER = (
    "Knowledge of this repository at the checked-out commit: its documentation and code, as they are in the working tree, and stored "
    "documents such as notes, decisions and issue logs. "
    "Before you answer a question about the project or edit its code, call chroma_query_documents, which searches all collections by "
    "words and by meaning. "
    "chroma_query_documents finds definitions with symbol=X, and returns whole passages with path and lines with max_tokens. "
    "Store with chroma_add_documents what the user wants to know later; dolt_commit commits it. "
    "Ask the user before you create a knowledge base with dolt_init."
)
_ABOUT_ORIGIN = (
    "The block 'kb' of an answer names its commit and its revision; in_sync is true if the revision is the pinned one. "
    "dolt_commit stages the pin .dolt-version: commit it with git."
)

_ABOUT_FILES = (
    "Documents of collections of kind 'source' are files in the working tree. "
    "To change one, edit its file; the next query uses it."
)


class ToolChoice(Record, frozen=True):
    """The tools that a person asked for. Names in lists are separated by commas."""

    toolsets: str = "default"
    tools: str = ""
    exclude_tools: str = ""
    read_only: bool = False
    prefix: str = ""


class Flags(Record, frozen=True):
    """The options of the command line; None: not given."""

    toolsets: str | None = None
    tools: str | None = None
    exclude_tools: str | None = None
    read_only: bool = False
    default_ef: str | None = None
    default_toolsets: str | None = None
    """Toolsets of the server if no option, variable or setting selects others."""


def resolve_choice(flags: Flags, settings: McpSettings, *, stated: Container[str] = ()) -> ToolChoice:
    """Return the choice of flags and settings. The settings include the environment.

    A flag has priority; the restrictions of both apply. `stated` has the names of the settings that
    are set.
    """
    is_default = flags.default_toolsets is not None and "mcp.toolsets" not in stated
    toolsets = flags.default_toolsets if is_default else settings.toolsets
    return ToolChoice(
        toolsets=(toolsets or "") if flags.toolsets is None else flags.toolsets,
        tools=settings.tools if flags.tools is None else flags.tools,
        exclude_tools=",".join(filter(None, (flags.exclude_tools, settings.exclude_tools))),
        read_only=flags.read_only or settings.read_only,
        prefix=settings.tool_prefix,
    )


class ToolsetState(Record, frozen=True):
    """A toolset of a server. `tools` are the names for clients."""

    name: str
    tools: tuple[str, ...]
    enabled: bool
    about: str


class ToolSelection(Record, frozen=True):
    """The tools of a server, by their names for clients, and the choice that selects them."""

    tools: Mapping[str, ToolInfo]
    toolsets: tuple[str, ...]
    """Toolsets that are completely enabled."""
    choice: ToolChoice
    names: Mapping[str, str]
    """The names for clients, without the prefix, by names in the catalogue. A tool keeps its name
    until the client disconnects.
    """

    def require_tool(self, name: str) -> ToolInfo:
        """Return a tool by its name for clients.

        Raises `ToolMissing`, and `ToolDisabled` or `AccessDenied` for a tool that is not selected.
        """
        for candidate in (name, f"{self.choice.prefix}{name}"):
            if candidate in self.tools:
                return self.tools[candidate]
        info = _find_tool(name.removeprefix(self.choice.prefix))
        if info and self.has_tool(info.name):
            return info
        if info is None:
            name = shortened(name)
            similar = nearest(name, self.tools)
            hint = f"call {similar}" if similar else "call tools/list for the names of the tools"
            raise ToolMissing(f"no such tool: {name!r}.", hint=hint, tool=name)
        if not info.is_available(read_only=self.choice.read_only):
            raise AccessDenied(
                f"{info.name} changes something, and this server is read-only.",
                hint="start the server without --read-only and without the setting mcp.read_only",
                tool=info.name,
            )
        self._require_not_excluded(info.name, info.name)
        flag = self.start_option(info.toolsets[0])
        hint = f"start the server with '{flag}'"
        if self.has_tool(SWITCH):
            hint = f"call {self.choice.prefix}{SWITCH} with the toolset {info.toolsets[0]!r}, or {hint}"
        toolsets = f"the toolset{'s' if info.toolsets[1:] else ''} {enumerated([repr(name) for name in info.toolsets])}"
        raise ToolDisabled(
            f"{info.short or info.name} is switched off: it is part of {toolsets}.",
            hint=hint,
            tool=info.name,
            toolset=info.toolsets[0],
            enable_with=flag,
        )

    def require_arguments(self, tool: ToolInfo, arguments: Mapping[str, Any]) -> None:
        """Raise `ToolDisabled` if an argument makes the tool do the work of an excluded tool."""
        for condition, other in tool.by_argument.items():
            name, _, value = condition.partition("=")
            argument = arguments.get(name)
            if (str(argument).lower() if isinstance(argument, bool) else argument) == value:
                self._require_not_excluded(f"{tool.name} with {condition}", other)

    def require_reachable(self, subject: str, *tools: str) -> None:
        """Require that clients can call all these tools, now or after `enable_toolset`.

        `subject` names the resource or prompt that shows the data of these tools. Raises
        `ToolDisabled` and `AccessDenied`.
        """
        for name in tools:
            self._require_not_excluded(subject, name)
            if not self.has_tool(name) and not self.has_tool(SWITCH):
                self.require_tool(f"{self.choice.prefix}{name}")

    def is_reachable(self, *tools: str) -> bool:
        """Return whether clients can call all these tools (`require_reachable`)."""
        try:
            self.require_reachable("", *tools)
        except (AccessDenied, ToolDisabled):
            return False
        return True

    def _require_not_excluded(self, subject: str, tool: str) -> None:
        """Raise `ToolDisabled` if an exclusion excludes a tool, by its own name or another name.

        `subject` is the tool, resource or prompt that does the work of the tool.
        """
        included = tools_within(tool)
        exclusions = _split_names(self.choice.exclude_tools)
        matching = [name for name in exclusions if not included.isdisjoint(_list_excluded_with(name))]
        if matching:
            others = [name for name in matching if name != subject]
            reason = f": it does the work of {enumerated(others)}" if others else ""
            flag = f"--exclude-tools without {','.join(matching)}"
            raise ToolDisabled(
                f"{subject} is excluded from this server{reason}.",
                hint=f"start the server with '{flag}'",
                tool=tool,
                toolset=load_catalogue()[tool].toolsets[0],
                enable_with=flag,
            )

    def list_toolsets(self) -> list[ToolsetState]:
        """Return every toolset, with the tools of it that this server can have."""
        return [
            ToolsetState(
                name, tuple(self.with_toolset(name).list_tools_of(name)), name in self.toolsets, declared.about
            )
            for name, declared in list_toolsets().items()
        ]

    def list_tools_of(self, toolset: str) -> dict[str, ToolInfo]:
        """Return the selected tools of a toolset, or of all toolsets for `all`, by their names for
        clients.
        """
        members = {*_require_toolsets([toolset])}
        return {name: tool for name, tool in self.tools.items() if not members.isdisjoint(tool.toolsets)}

    def list_ruled_out(self, toolset: str) -> list[str]:
        """Return the tools of a toolset that clients cannot enable: the server was started without
        them.
        """
        selection = self.with_toolset(toolset)
        members = {*_require_toolsets([toolset])}
        return [
            name
            for name, tool in load_catalogue().items()
            if not members.isdisjoint(tool.toolsets) and not selection.has_tool(name)
        ]

    def with_toolset(self, name: str, *, confirmed: bool = True) -> ToolSelection:
        """Return the selection with one more toolset. Tools that are enabled keep their names.

        With `confirmed=False`, tools that need the user's consent are left out. Raises
        `UsageInvalid` for an unknown name.
        """
        wider = self.replace_toolsets(",".join((*self.toolsets, name)))
        tools = self.list_by_name()
        for key, tool in wider.list_by_name().items():
            if key not in tools and (confirmed or not tool.needs_consent):
                tools[key] = tool
        is_complete = tools.keys() >= wider.list_by_name().keys()
        return _name_tools(tools, wider.toolsets if is_complete else self.toolsets, wider.choice, self.names)

    def keep_names(self, earlier: ToolSelection) -> ToolSelection:
        """Return the selection in which each tool has the name that it had before."""
        return _name_tools(self.list_by_name(), self.toolsets, self.choice, earlier.names)

    def replace_toolsets(self, names: str) -> ToolSelection:
        """Return the selection with other toolsets. Raises `UsageInvalid` for an unknown name."""
        return select_tools(msgspec.structs.replace(self.choice, toolsets=names))

    def start_option(self, toolset: str) -> str:
        """Return the option that starts a server with one more toolset."""
        names = _require_toolsets([*self.toolsets, toolset])
        return f"--toolsets={'all' if len(names) == len(list_toolsets()) else ','.join(names)}"

    def build_schema(self, tool: ToolInfo) -> dict[str, Any]:
        """Return the JSON Schema of a tool's parameters, with texts that name only tools of this
        server.
        """
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
        lines = [self.adapt_text(_ABOUT_SERVER), *self._list_instructions()]
        if not all(tool.plain_text for tool in self.tools.values()):  # only answers in JSON have the block
            lines += [self.adapt_text(_ABOUT_ORIGIN), self.adapt_text(_ABOUT_FILES)]
        if self.choice.read_only:
            lines.append("This server is read-only.")
        disabled = [state for state in self.list_toolsets() if state.tools and not state.enabled]
        if disabled and self.has_tool(SWITCH):
            names = ", ".join(state.name for state in disabled)
            lines.append(f"{self.choice.prefix}{SWITCH} switches on more tools: {names}.")
        elif disabled:
            names = "; ".join(f"{state.name} ({state.about})" for state in disabled)
            lines.append(f"Switched off: {names}. The server option --toolsets=all switches them on.")
        return " ".join(lines)

    def _list_instructions(self) -> Iterator[str]:
        """Yield the instructions of toolsets, if the server has all tools of the toolset."""
        enabled = self.list_by_name()
        for name in self.toolsets:
            about = list_toolsets()[name].instructions
            if about and all(tool.name in enabled for tool in load_catalogue().values() if name in tool.toolsets):
                yield about

    def list_by_name(self) -> dict[str, ToolInfo]:
        """Return the tools by their names in the catalogue."""
        return {tool.name: tool for tool in self.tools.values()}

    def has_tool(self, name: str) -> bool:
        """Return whether the server has a tool, by its name in the catalogue."""
        return any(tool.name == name for tool in self.tools.values())

    def adapt_text(self, text: str) -> str:
        """Return a text without the parts that name tools which this server lacks."""
        return advice.adapt_text(text, self.tools, self.choice.prefix)


def build_tool_entries(server: ToolSelection) -> list[dict[str, Any]]:
    """Return the entries of `tools/list`, with keys in the order of the SDK's."""
    return [
        {
            "annotations": dict(sorted(tool.annotations.items())),
            "description": server.adapt_text(tool.description),
            "inputSchema": server.build_schema(tool),
            "name": name,
            "title": tool.shown_title,
        }
        for name, tool in server.tools.items()
    ]


def _shorten_schema(schema: Any) -> Any:
    """Return a schema without usual limits and long lists of values, because clients pay for them
    with every conversation. The error for a wrong argument names them.
    """
    if isinstance(schema, list):
        return [_shorten_schema(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {keyword: _shorten_schema(value) for keyword, value in schema.items() if not _is_usual(keyword, value)}


def _is_usual(keyword: str, value: Any) -> bool:
    match keyword:
        case "default":
            is_usual = not value
        case "minimum":
            is_usual = 0 <= value <= _USUAL_LIMIT
        case "maximum":
            is_usual = value >= _USUAL_LIMIT
        case "maxLength":
            is_usual = value == LONGEST_NAME or value > LONGEST_QUERY
        case _:
            is_usual = keyword == "enum" and len(value) > _MAX_ENUM_VALUES
    return bool(is_usual)


def select_tools(choice: ToolChoice) -> ToolSelection:
    """Return the selection of a choice.

    Raises `UsageInvalid` for an unknown name, with all valid names.
    """
    toolsets = _require_toolsets(_split_names(choice.toolsets))
    tools = _require_tools(_split_names(choice.tools), "--tools")
    return _name_tools(_list_allowed(choice, toolsets, tools), toolsets, choice, {})


def _list_allowed(choice: ToolChoice, toolsets: Sequence[str], names: Sequence[str]) -> dict[str, ToolInfo]:
    """Return the tools of these toolsets, and single tools, that no restriction excludes."""
    excluded: set[str] = set()
    for name in _require_tools(_split_names(choice.exclude_tools), "--exclude-tools"):
        excluded |= _list_excluded_with(name)
    return {
        name: tool
        for name, tool in load_catalogue().items()
        if (any(toolset in toolsets for toolset in tool.toolsets) or name in names)
        and not excluded & tools_within(name)
        and tool.is_available(read_only=choice.read_only)
    }


def _name_tools(
    tools: Mapping[str, ToolInfo], toolsets: tuple[str, ...], choice: ToolChoice, earlier_names: Mapping[str, str]
) -> ToolSelection:
    """Return the selection of these tools.

    A tool keeps its earlier name. A new tool gets its short name, or else its name in the
    catalogue, or else its qualified name, whichever no other tool has.
    """
    names = dict(earlier_names)
    for name, tool in tools.items():
        preferred = name if tool.short in tools else tool.short or name
        free_names = [free for free in (preferred, name) if free not in names.values()]
        names.setdefault(name, free_names[0] if free_names else _qualified_name(tool))
    client_tools = {f"{choice.prefix}{names[name]}": tool for name, tool in tools.items()}
    return ToolSelection(client_tools, toolsets, choice, names)


def _qualified_name(tool: ToolInfo) -> str:
    """Return the name of a tool whose usual name another tool has, such as `libraries_search`."""
    return f"{list_toolsets()[tool.toolsets[0]].package.rpartition('.')[2]}_{tool.name}"


def _find_tool(name: str) -> ToolInfo | None:
    """Return the tool with this short name, name or qualified name.

    A short name is first: a client that calls `search` means the essential tool.
    """
    tools = load_catalogue().values()
    short = next((tool for tool in tools if tool.short == name), None)
    return short or load_catalogue().get(name) or next((tool for tool in tools if _qualified_name(tool) == name), None)


def _list_excluded_with(name: str) -> set[str]:
    """Return the canonical names of the tools that an exclusion by this name excludes.

    These are the tools with this name for clients, and tools with the same effect on the same kind
    of data.
    """
    catalogue = load_catalogue()
    excluded = {canonical_name(tool.name) for tool in catalogue.values() if name in (tool.name, tool.short)}
    for tool in list(excluded):
        excluded.update(map(canonical_name, catalogue[tool].same_effect))
    return excluded


def _split_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _require_toolsets(names: Sequence[str]) -> tuple[str, ...]:
    """Return the toolsets with these names, in which `all` and `default` mean several toolsets.

    Raises `UsageInvalid` for an unknown name.
    """
    valid_names = (*list_toolsets(), *KEYWORDS)
    for name in names:
        if name not in valid_names:
            raise UsageInvalid(
                f"no such toolset: {name!r}.", hint=f"use one of {', '.join(valid_names)}", toolsets=list(valid_names)
            )
    selected = {*names}
    if "default" in selected:
        selected |= {*CORE}
    return tuple(name for name in list_toolsets() if "all" in selected or name in selected)


def _require_tools(names: Sequence[str], flag: str) -> list[str]:
    """Return the names. Raises `UsageInvalid` if the catalogue lacks one."""
    for name in names:
        if name not in load_catalogue():
            suggestion = nearest(name, load_catalogue())
            raise UsageInvalid(
                f"no such tool: {name!r}." + (f" Did you mean {suggestion!r}?" if suggestion else ""),
                hint=f"use names of tools for {flag}: {', '.join(load_catalogue())}",
                tools=list(load_catalogue()),
            )
    return list(names)
