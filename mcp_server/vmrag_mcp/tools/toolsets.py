"""Toolsets that are off, within reach of a client that is running."""

from __future__ import annotations

from collections.abc import Collection

from vmrag_link.errors import enumerated, plural
from vmrag_link.models import Record
from vmrag_mcp.options import EnabledTools
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


class EnableToolsetResult(ServerResult, frozen=True):
    """`enabled`: all toolsets that are on; `tools`: those that the call added."""

    enabled: list[str]
    tools: list[str]


CALL_ANYWAY = "A client whose list does not show them yet can call them all the same."


@tool("R", of_server=True)
def list_toolsets(tools: EnabledTools, _agreed: Collection[str]) -> ListToolsetsResult:
    """List the groups of tools that this server has, and which are on: issue logs, files and
    web pages in libraries, shorter forms, and more. Look here when no tool fits. enable_toolset
    switches one on.
    """
    found = [
        ListedToolset(each.name, [*each.tools], each.enabled, each.about) for each in tools.selection.toolsets_listed()
    ]
    off = [each.name for each in found if not each.enabled]
    more = f" Off: {enumerated(off)}." if off else ""
    return ListToolsetsResult(toolsets=found, message=f"{plural(len(found), 'toolset')}.{more}")


@tool("W", idempotent=True, on_read_only=True, of_server=True)
def enable_toolset(tools: EnabledTools, agreed: Collection[str], *, toolset: str) -> EnableToolsetResult:
    """Switch on a toolset of list_toolsets, until the server ends, when a tool of it is needed.
    Nothing that is excluded comes back; the user is asked before tools come that use the network
    or delete.
    """
    before, now = tools.selection, tools.enable(toolset, agreed=agreed)
    added = [name for name in now.tools if name not in before.tools]
    said = f"{toolset} is on: {plural(len(added), 'tool')} more. {CALL_ANYWAY}" if added else f"{toolset} was on."
    return EnableToolsetResult(enabled=[*now.toolsets], tools=added, message=said)
