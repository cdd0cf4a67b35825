"""Switching a toolset on that is off, for the client that is running."""

from __future__ import annotations

from collections.abc import Collection

from vmrag_link.errors import plural
from vmrag_mcp.client_tools import EnabledTools
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ServerResult


class EnableToolsetResult(ServerResult, frozen=True):
    """`enabled`: all toolsets that are on; `tools`: those that the call added."""

    enabled: list[str]
    tools: list[str]


CALL_ANYWAY = "A client whose list does not show them yet can call them all the same."


@tool("W", idempotent=True, on_read_only=True, of_server=True)
def enable_toolset(tools: EnabledTools, agreed: Collection[str], *, toolset: str) -> EnableToolsetResult:
    """Switch on one more toolset for this session, when no tool here does what is needed;
    list_toolsets shows them. Nothing that is excluded comes back; the user is asked before tools
    come that use the network or delete.
    """
    before, now = tools.selection, tools.enable(toolset, agreed=agreed)
    added = [name for name, each in now.tools.items() if before.tools.get(name) is not each]
    said = f"{toolset} is on: {plural(len(added), 'tool')} more. {CALL_ANYWAY}" if added else f"{toolset} was on."
    return EnableToolsetResult(enabled=[*now.toolsets], tools=added, message=said)
