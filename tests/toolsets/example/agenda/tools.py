"""The tool for agents."""

from __future__ import annotations

from typing import Annotated

from agenda.events import events
from vmrag_mcp.arguments import Given
from vmrag_mcp.call import Call
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ToolResult


class AgendaResult(ToolResult, frozen=True):
    events: list[str]


@tool("R")
def show_agenda(call: Call, *, day: Annotated[str, Given("YYYYMMDD")]) -> AgendaResult:
    """Show what calendars hold for a day."""
    result = events(call.ws, day)
    return AgendaResult(events=result, message=f"{len(result)} on {day}.")
