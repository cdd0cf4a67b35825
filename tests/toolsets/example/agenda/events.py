"""Events in calendars."""

from __future__ import annotations

from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents.grep import Pattern, grep_texts


def events(ws: Workspace, day: str) -> list[str]:
    """List the events of documents at the checked-out revision for a day (YYYYMMDD)."""
    result = grep_texts(ws, Pattern(f"* {day} ", fixed=True))
    return [line.text.removeprefix(f"* {day} ") for document in result.documents for line in document.lines]
