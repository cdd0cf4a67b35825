"""Which issue logs are meant: the filter of lists and searches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from vmrag_link import clock
from vmrag_link.engines import logical
from vmrag_link.errors import FilterInvalid
from vmrag_link.models import ISSUES, At, Document, metadata_of
from vmrag_link.toolsets.knowledge.issue_logs import TABLE
from vmrag_link.toolsets.knowledge.records import LOG_TYPES
from vmrag_link.workspace import Workspace

KEYS = ("issue_number", "log_type", "since", "until", "author", "tag", "title_contains")
"""`since` and `until`: of the last change. `author` is the metadata's, `tag` one of its `tags`."""

LogFilter = Mapping[str, Any]


def parse(given: Mapping[str, Any]) -> LogFilter:
    """The filter with its values as they are compared.

    Raises `FilterInvalid` for another key than `KEYS`, and for a value that cannot be.
    """
    return {key: _value(key, value) for key, value in given.items() if value not in (None, "")}


def logs(ws: Workspace, at: At, project_id: str | None, wanted: LogFilter) -> Iterator[Document]:
    """The logs that pass, of one project or of all; each is read when it is asked for."""
    collection = None if project_id is None else logical.collection_name(ISSUES, project_id)
    for each in ws.engine.documents(at, collection=collection, table=TABLE):
        if _passes(each, wanted):
            yield each


def _value(key: str, value: Any) -> Any:
    match key:
        case "issue_number":
            number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
            if isinstance(number, int) and not isinstance(number, bool):
                return number
        case "log_type":
            if value in LOG_TYPES:
                return value
        case "since" | "until":
            return _moment(key, value)
        case "author" | "tag" | "title_contains":
            if isinstance(value, str):
                return value
        case _:
            raise FilterInvalid(
                f"The filter asks for {key!r}, which issue logs cannot be filtered by.",
                hint=f"It takes {', '.join(KEYS)}.",
                key=key,
                allowed=list(KEYS),
            )
    expected = {"issue_number": "a whole number", "log_type": f"one of {', '.join(LOG_TYPES)}"}.get(key, "a text")
    raise FilterInvalid(
        f"{key} in the filter must be {expected}, not {json.dumps(value)[:80]}.",
        hint='For example: {"issue_number": 42, "log_type": "resolution", "since": "2026-01-31"}',
        key=key,
    )


def _moment(key: str, value: Any) -> str:
    try:
        return clock.text(clock.moment(value, end=key == "until"))
    except (TypeError, ValueError):
        raise FilterInvalid(
            f"{key} in the filter must be a time in ISO 8601, not {json.dumps(value)[:80]}.",
            hint="For example: 2026-01-31, or 2026-01-31T12:00:00Z",
            key=key,
        ) from None


def _passes(document: Document, wanted: LogFilter) -> bool:
    if not wanted:
        return True
    metadata = metadata_of(document)
    tags = metadata.get("tags", [])
    have: dict[str, Callable[[Any], bool]] = {
        "issue_number": lambda value: bool(metadata["issue_number"] == value),
        "log_type": lambda value: bool(metadata["log_type"] == value),
        "since": lambda value: bool(document.updated_at >= value),
        "until": lambda value: bool(document.updated_at <= value),
        "author": lambda value: bool(metadata.get("author") == value),
        "tag": lambda value: value in (tags if isinstance(tags, list) else [tags]),
        "title_contains": lambda value: value.casefold() in document.title.casefold(),
    }
    return all(have[key](value) for key, value in wanted.items())
