"""The tools that a server has: by toolsets, single tools, exclusions and read-only.

A flag goes before the environment, that before the settings, those before the default. Restrictions
add up: a tool that any of them excludes is excluded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmrag_link.errors import AccessDenied, ToolDisabled, ToolMissing, UsageInvalid, enumerated
from vmrag_link.models import Record
from vmrag_link.settings import McpSettings
from vmrag_link.suggest import nearest
from vmrag_mcp.registry import DEFAULT, TOOLSETS, ToolInfo, catalogue

KEYWORDS = ("default", "all")

_ABOUT = (
    "Knowledge base of this git repository: documents, decisions, notes and issue logs, versioned together with the code. "
    "Search it by meaning (chroma_query_documents) before you answer questions about the project, and write down what should be known "
    "later (chroma_add_documents, then dolt_commit)."
)
_TRUTH = (
    "Every answer comes from the knowledge that the checked-out code commit pins; the block 'kb' says which revision that was, and in_sync "
    "whether it is the pinned one. dolt_commit stages the pin .dolt-version: commit it with git."
)


class Chosen(Record, frozen=True):
    """What somebody asked for; names in lists are separated by commas."""

    toolsets: str = "default"
    tools: str = ""
    exclude_tools: str = ""
    read_only: bool = False
    prefix: str = ""


class Flags(Record, frozen=True):
    """What the command line says; None: nothing."""

    toolsets: str | None = None
    tools: str | None = None
    exclude_tools: str | None = None
    read_only: bool = False


def chosen(flags: Flags, settings: McpSettings) -> Chosen:
    """A flag goes before the settings, which include the environment. Restrictions of both hold."""
    return Chosen(
        toolsets=settings.toolsets if flags.toolsets is None else flags.toolsets,
        tools=settings.tools if flags.tools is None else flags.tools,
        exclude_tools=",".join(filter(None, (flags.exclude_tools, settings.exclude_tools))),
        read_only=flags.read_only or settings.read_only,
        prefix=settings.tool_prefix,
    )


class ToolSelection(Record, frozen=True):
    """The tools of a server by the name that clients call, and the choice that they come from."""

    tools: Mapping[str, ToolInfo]
    toolsets: tuple[str, ...]
    chosen: Chosen

    def tool(self, name: str) -> ToolInfo:
        """Raises `ToolMissing`; `ToolDisabled`, `AccessDenied` for one that is not selected."""
        if name in self.tools:
            return self.tools[name]
        known = catalogue().get(name.removeprefix(self.chosen.prefix))
        if known is None:
            near = nearest(name, [*self.tools, *catalogue()])
            raise ToolMissing(f"There is no tool {name!r}.", hint=near or "tools/list shows what there is", tool=name)
        if self.chosen.read_only and not known.reads:
            raise AccessDenied(
                f"{known.name} changes something, and this server is read-only.",
                hint="Start the server without --read-only, and without mcp.read_only in its settings.",
                tool=known.name,
            )
        excluded = known.name in _names(self.chosen.exclude_tools)
        flag = (
            f"--exclude-tools without {known.name}"
            if excluded
            else f"--toolsets={','.join((*self.toolsets, known.toolsets[0]))}"
        )
        raise ToolDisabled(
            f"{known.name} is switched off: it is {'excluded' if excluded else f'part of {_toolsets_named(known)}'}.",
            hint=f"Start the server with {flag}",
            tool=known.name,
            toolset=known.toolsets[0],
            enable_with=flag,
        )

    def instructions(self) -> str:
        """What a client tells its model about this server, in the words that people use."""
        off = [f"{name} ({each.about})" for name, each in TOOLSETS.items() if name not in self.toolsets]
        lines = [_ABOUT, _TRUTH]
        if self.chosen.read_only:
            lines.append("This server is read-only.")
        if off:
            lines.append(
                f"Switched off: {'; '.join(off)}. They come with --toolsets=all or --toolsets=default,NAME at the start."
            )
        return " ".join(lines)


def _toolsets_named(tool: ToolInfo) -> str:
    return f"the toolset{'s' if tool.toolsets[1:] else ''} {enumerated([repr(each) for each in tool.toolsets])}"


def selection(chosen: Chosen) -> ToolSelection:
    """Raises `UsageInvalid` for a name that is none, with all that are."""
    toolsets = _toolsets(_names(chosen.toolsets))
    single, excluded = _tools(_names(chosen.tools), "--tools"), _tools(_names(chosen.exclude_tools), "--exclude-tools")
    tools = {
        f"{chosen.prefix}{name}": each
        for name, each in catalogue().items()
        if (any(toolset in toolsets for toolset in each.toolsets) or name in single)
        and name not in excluded
        and (each.reads or not chosen.read_only)
    }
    return ToolSelection(tools, toolsets, chosen)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _toolsets(names: Sequence[str]) -> tuple[str, ...]:
    known = (*TOOLSETS, *KEYWORDS)
    for name in names:
        if name not in known:
            raise UsageInvalid(
                f"There is no toolset {name!r}.", hint=f"--toolsets takes: {', '.join(known)}", toolsets=list(known)
            )
    wanted = {*names}
    if "default" in wanted:
        wanted |= {*DEFAULT}
    return tuple(name for name in TOOLSETS if "all" in wanted or name in wanted)


def _tools(names: Sequence[str], flag: str) -> list[str]:
    for name in names:
        if name not in catalogue():
            near = nearest(name, catalogue())
            raise UsageInvalid(
                f"There is no tool {name!r}." + (f" Is it {near!r}?" if near else ""),
                hint=f"{flag} takes: {', '.join(catalogue())}",
                tools=list(catalogue()),
            )
    return list(names)
