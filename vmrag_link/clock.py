"""Times as everything says them that is stored or shown: ISO 8601, UTC, to the second."""

from __future__ import annotations

import datetime as dt


def now() -> str:
    return _format(dt.datetime.now(dt.UTC))


def at(seconds: float) -> str:
    """Of a file's time: seconds since 1970."""
    return _format(dt.datetime.fromtimestamp(seconds, dt.UTC))


def _format(moment: dt.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
