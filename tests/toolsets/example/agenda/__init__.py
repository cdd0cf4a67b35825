"""Calendars as documents, and the events of a day: an external toolset."""

from vmrag_link.toolset import Toolset, ToolsetCommand

TOOLSET = Toolset(
    "agenda",
    "calendars as documents, and what is on a day",
    __name__,
    tools=(".tools",),
    commands={"agenda": ToolsetCommand("Search", "Show what calendars hold for a day.", ".command:command")},
    documents={".ics": ".calendar:markdown"},
)
