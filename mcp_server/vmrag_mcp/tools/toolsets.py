"""List the toolsets, and which of them are enabled."""

from __future__ import annotations

from collections.abc import Collection

from vmrag_link.errors import enumerated, plural
from vmrag_link.models import Record
from vmrag_mcp.client_tools import EnabledTools
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ServerResult


class ListedToolset(Record, frozen=True):
    """A toolset. `tools` are the tools of it that this server can have."""

    name: str
    tools: list[str]
    enabled: bool
    description: str


class ListToolsetsResult(ServerResult, frozen=True):
    toolsets: list[ListedToolset]


@tool("R", about_server=True)
def list_toolsets(tools: EnabledTools, _agreed: Collection[str]) -> ListToolsetsResult:
    """List toolsets, their tools, and which are on."""
    toolsets = [
        ListedToolset(state.name, [*state.tools], state.enabled, state.about)
        for state in tools.selection.list_toolsets()
    ]
    disabled = [listed.name for listed in toolsets if not listed.enabled]
    more = f" Off: {enumerated(disabled)}." if disabled else ""
    return ListToolsetsResult(toolsets=toolsets, message=f"{plural(len(toolsets), 'toolset')}.{more}")
