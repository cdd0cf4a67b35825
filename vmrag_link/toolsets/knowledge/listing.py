"""Lists of issue logs and documents about tools, and single ones with their texts.

A list has the documents that a filter selects, page by page, last changed first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from vmrag_link import clock
from vmrag_link.engines import logical
from vmrag_link.errors import FilterInvalid
from vmrag_link.models import ISSUES, At, Document, DocumentTable, Record, parse_metadata
from vmrag_link.toolsets.knowledge import knowledge_docs, rows
from vmrag_link.toolsets.knowledge.issue_logs import TABLE
from vmrag_link.toolsets.knowledge.records import (
    LOG_TYPES,
    IssueLog,
    KnowledgeDoc,
    ListedDoc,
    ListedLog,
    cut_excerpt,
    doc_fields,
    log_fields,
)
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.follow_pin import read_consistently
from vmrag_link.workspace.follow.provenance import AnswerOrigin, find_origin


class LogPage(Record, frozen=True):
    """A page of logs. `total_count` counts all logs that the filter selects."""

    logs: list[ListedLog]
    total_count: int
    has_more: bool


class DocPage(Record, frozen=True):
    """A page of documents. `total_count` counts all documents of the list."""

    docs: list[ListedDoc]
    total_count: int
    has_more: bool


def issue_logs(
    ws: Workspace,
    *,
    project_id: str | None = None,
    filters: Mapping[str, Any] | None = None,
    limit: int = 50,
    offset: int = 0,
) -> tuple[LogPage, AnswerOrigin]:
    """Return a page of logs; none for an unknown project. Raises `FilterInvalid`."""
    filter_values = parse_filter(filters or {})

    def read_page() -> tuple[LogPage, AnswerOrigin]:
        origin = find_origin(ws)
        rows = filter_logs(ws, origin.at, project_id, filter_values)
        page, total = _build_page(ws, origin.at, rows, table=TABLE, limit=limit, offset=offset)
        logs = [ListedLog(**log_fields(row), excerpt=cut_excerpt(row)) for row in page]
        return LogPage(logs, total, offset + len(logs) < total), origin

    return read_consistently(ws, read_page, index=False)


def knowledge_documents(
    ws: Workspace, *, tool_name: str | None = None, category: str | None = None, limit: int = 50, offset: int = 0
) -> tuple[DocPage, AnswerOrigin]:
    """Return a page of documents; none for an unknown tool."""

    def read_page() -> tuple[DocPage, AnswerOrigin]:
        origin = find_origin(ws)
        rows = knowledge_docs.list_about(ws, origin.at, tool_name, category)
        page, total = _build_page(ws, origin.at, rows, table=knowledge_docs.TABLE, limit=limit, offset=offset)
        docs = [ListedDoc(**doc_fields(row), excerpt=cut_excerpt(row)) for row in page]
        return DocPage(docs, total, offset + len(docs) < total), origin

    return read_consistently(ws, read_page, index=False)


def issue_log(ws: Workspace, log_id: str) -> tuple[IssueLog, AnswerOrigin]:
    """Return a log with its text. Raises `DocumentMissing`."""
    row, origin = _read_one(ws, TABLE, log_id)
    return IssueLog(**log_fields(row), content=row.content), origin


def knowledge_document(ws: Workspace, doc_id: str) -> tuple[KnowledgeDoc, AnswerOrigin]:
    """Return a document with its text. Raises `DocumentMissing`."""
    row, origin = _read_one(ws, knowledge_docs.TABLE, doc_id)
    return KnowledgeDoc(**doc_fields(row), content=row.content), origin


def _read_one(ws: Workspace, table: DocumentTable, name: str) -> tuple[Document, AnswerOrigin]:
    def read_page() -> tuple[Document, AnswerOrigin]:
        origin = find_origin(ws)
        return rows.find_row(ws, origin.at, table, name), origin

    return read_consistently(ws, read_page, index=False)


def _build_page(
    ws: Workspace, at: At, documents: Iterable[Document], *, table: DocumentTable, limit: int, offset: int
) -> tuple[list[Document], int]:
    """Return a page of the rows, last changed first, then by id; and the number of all rows.

    Only the texts of the page are kept in memory.
    """
    keys = sorted((document.doc_id, document.updated_at) for document in documents)
    keys.sort(key=lambda key: key[1], reverse=True)
    ids = [doc_id for doc_id, _ in keys[offset:][:limit]]
    rows_of_page = ws.engine.read_documents(at, ids=ids, table=table) if ids else ()
    by_id = {document.doc_id: document for document in rows_of_page}
    return [by_id[doc_id] for doc_id in ids if doc_id in by_id], len(keys)


KEYS = ("issue_number", "log_type", "since", "until", "author", "tag", "title_contains")
"""Keys of a filter. `since` and `until` limit the time of the last change. `author` is a key of the
metadata, and `tag` is one of its `tags`.
"""

LogFilter = Mapping[str, Any]


def parse_filter(given: Mapping[str, Any]) -> LogFilter:
    """Return the filter with values for comparison.

    Raises `FilterInvalid` for a key outside `KEYS`, and for an invalid value.
    """
    return {key: _check_value(key, value) for key, value in given.items() if value not in (None, "")}


def filter_logs(ws: Workspace, at: At, project_id: str | None, filter_values: LogFilter) -> Iterator[Document]:
    """Yield the logs that match, of one project or of all. Each is read when it is requested."""
    collection = None if project_id is None else logical.collection_name(ISSUES, project_id)
    for document in ws.engine.read_documents(at, collection=collection, table=TABLE):
        if _matches_filter(document, filter_values):
            yield document


def _check_value(key: str, value: Any) -> Any:
    match key:
        case "issue_number":
            number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
            if isinstance(number, int) and not isinstance(number, bool):
                return number
        case "log_type":
            if value in LOG_TYPES:
                return value
        case "since" | "until":
            return _parse_time(key, value)
        case "author" | "tag" | "title_contains":
            if isinstance(value, str):
                return value
        case _:
            raise FilterInvalid(
                f"issue logs cannot be filtered by {key!r}.",
                hint=f"use these keys: {', '.join(KEYS)}",
                key=key,
                allowed=list(KEYS),
            )
    expected = {"issue_number": "a whole number", "log_type": f"one of {', '.join(LOG_TYPES)}"}.get(key, "a text")
    raise FilterInvalid(
        f"{key} in the filter must be {expected}, not {json.dumps(value)[:80]}.",
        hint='pass an object, such as \'{"issue_number": 42, "log_type": "resolution", "since": "2026-01-31"}\'',
        key=key,
    )


def _parse_time(key: str, value: Any) -> str:
    try:
        return clock.format_time(clock.parse_time(value, end=key == "until"))
    except (TypeError, ValueError):
        raise FilterInvalid(
            f"{key} in the filter must be a time in ISO 8601, not {json.dumps(value)[:80]}.",
            hint="write a date, such as 2026-01-31 or 2026-01-31T12:00:00Z",
            key=key,
        ) from None


def _matches_filter(document: Document, filter_values: LogFilter) -> bool:
    if not filter_values:
        return True
    metadata = parse_metadata(document)
    tags = metadata.get("tags", [])
    tests: dict[str, Callable[[Any], bool]] = {
        "issue_number": lambda value: bool(metadata["issue_number"] == value),
        "log_type": lambda value: bool(metadata["log_type"] == value),
        "since": lambda value: bool(document.updated_at >= value),
        "until": lambda value: bool(document.updated_at <= value),
        "author": lambda value: bool(metadata.get("author") == value),
        "tag": lambda value: value in (tags if isinstance(tags, list) else [tags]),
        "title_contains": lambda value: value.casefold() in document.title.casefold(),
    }
    return all(tests[key](value) for key, value in filter_values.items())
