"""Times as everything says them that is stored or shown: ISO 8601, UTC, to the second."""

from __future__ import annotations

import datetime as dt


def now() -> str:
    return format_time(dt.datetime.now(dt.UTC))


def format_file_time(seconds: float) -> str:
    """Of a file's time: seconds since 1970."""
    return format_time(dt.datetime.fromtimestamp(seconds, dt.UTC))


def format_time(moment: dt.datetime) -> str:
    """Of a moment in UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str, *, end: bool = False) -> dt.datetime:
    """A time that somebody gave in ISO 8601, by default UTC; a day alone is its beginning, or its
    `end`.

    Raises `ValueError`, also for one that is before or after all days in UTC.
    """
    try:
        found = dt.datetime.combine(dt.date.fromisoformat(text), dt.time.max if end else dt.time.min)
    except ValueError:
        found = dt.datetime.fromisoformat(text)
    try:
        return found.astimezone(dt.UTC) if found.tzinfo else found.replace(tzinfo=dt.UTC)
    except OverflowError:
        raise ValueError(text) from None
