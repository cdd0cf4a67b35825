"""Calendars as documents, and what is on a day: a toolset of somebody else's."""

from vmrag_link.toolset import Toolset, ToolsetCommand

TOOLSET = Toolset(
    "agenda",
    "calendars as documents, and what is on a day",
    __name__,
    tools=(".tools",),
    commands={"agenda": ToolsetCommand("Search", "Show what calendars hold for a day.", ".command:command")},
    documents={".ics": ".calendar:markdown"},
)
