"""iCalendar files as Markdown. The confined child imports this, and nothing of the core."""

from __future__ import annotations


def markdown(data: bytes) -> str:
    """Return a heading, and a line for each event.

    The file is untrusted: all its content is text.
    """
    events: list[dict[str, str]] = []
    for line in data.decode(errors="replace").splitlines():
        key, _, value = line.partition(":")
        if (key, value) == ("BEGIN", "VEVENT"):
            events.append({})
        elif events:
            events[-1].setdefault(key.partition(";")[0], value)
    lines = [f"* {event.get('DTSTART', '')[:8]} {event.get('SUMMARY', '')}" for event in events]
    return "\n".join(["# Calendar", "", *lines]) + "\n"
