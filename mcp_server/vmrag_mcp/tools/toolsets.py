"""Which toolsets there are, and which of them are on."""

from __future__ import annotations

from collections.abc import Collection

from vmrag_link.errors import enumerated, plural
from vmrag_link.models import Record
from vmrag_mcp.client_tools import EnabledTools
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ServerResult


class ListedToolset(Record, frozen=True):
    """`tools`: those that this server may have of it."""

    name: str
    tools: list[str]
    enabled: bool
    description: str


class ListToolsetsResult(ServerResult, frozen=True):
    toolsets: list[ListedToolset]


@tool("R", of_server=True)
def list_toolsets(tools: EnabledTools, _agreed: Collection[str]) -> ListToolsetsResult:
    """List toolsets, their tools, and which are on."""
    found = [
        ListedToolset(each.name, [*each.tools], each.enabled, each.about) for each in tools.selection.list_toolsets()
    ]
    off = [each.name for each in found if not each.enabled]
    more = f" Off: {enumerated(off)}." if off else ""
    return ListToolsetsResult(toolsets=found, message=f"{plural(len(found), 'toolset')}.{more}")
