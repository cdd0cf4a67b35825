"""Times in the form in which vmrag stores and shows them: ISO 8601, in UTC, to the second."""

from __future__ import annotations

import datetime as dt


def now() -> str:
    return format_time(dt.datetime.now(dt.UTC))


def format_file_time(seconds: float) -> str:
    """Format the time of a file, which is in seconds since 1970."""
    return format_time(dt.datetime.fromtimestamp(seconds, dt.UTC))


def format_time(moment: dt.datetime) -> str:
    """Format a time in UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str, *, end: bool = False) -> dt.datetime:
    """Parse a time in ISO 8601, by default in UTC.

    A day without a time is its beginning, or with `end` its end. Raises `ValueError`, also for a
    time before or after all days in UTC.
    """
    try:
        parsed = dt.datetime.combine(dt.date.fromisoformat(text), dt.time.max if end else dt.time.min)
    except ValueError:
        parsed = dt.datetime.fromisoformat(text)
    try:
        return parsed.astimezone(dt.UTC) if parsed.tzinfo else parsed.replace(tzinfo=dt.UTC)
    except OverflowError:
        raise ValueError(text) from None
