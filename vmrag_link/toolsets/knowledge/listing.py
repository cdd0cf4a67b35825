"""Issue logs and documents about tools as people page through them: the latest change first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vmrag_link.models import At, Document, DocumentTable, Record
from vmrag_link.ops.follow.follow_pin import read_consistently
from vmrag_link.ops.follow.provenance import Standing, standing
from vmrag_link.toolsets.knowledge import issue_filter, knowledge_docs, rows
from vmrag_link.toolsets.knowledge.issue_logs import TABLE
from vmrag_link.toolsets.knowledge.records import (
    IssueLog,
    KnowledgeDoc,
    ListedDoc,
    ListedLog,
    doc_fields,
    excerpt,
    log_fields,
)
from vmrag_link.workspace import Workspace


class LogPage(Record, frozen=True):
    """`total_count`: of all that pass the filter."""

    logs: list[ListedLog]
    total_count: int
    has_more: bool


class DocPage(Record, frozen=True):
    """`total_count`: of all that are asked for."""

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
) -> tuple[LogPage, Standing]:
    """None for an unknown project. Raises `FilterInvalid`."""
    wanted = issue_filter.parse(filters or {})

    def look() -> tuple[LogPage, Standing]:
        here = standing(ws)
        found = issue_filter.logs(ws, here.at, project_id, wanted)
        page, total = _page(ws, here.at, found, table=TABLE, limit=limit, offset=offset)
        logs = [ListedLog(**log_fields(each), excerpt=excerpt(each)) for each in page]
        return LogPage(logs, total, offset + len(logs) < total), here

    return read_consistently(ws, look, index=False)


def knowledge_documents(
    ws: Workspace, *, tool_name: str | None = None, category: str | None = None, limit: int = 50, offset: int = 0
) -> tuple[DocPage, Standing]:
    """None for an unknown tool."""

    def look() -> tuple[DocPage, Standing]:
        here = standing(ws)
        found = knowledge_docs.about(ws, here.at, tool_name, category)
        page, total = _page(ws, here.at, found, table=knowledge_docs.TABLE, limit=limit, offset=offset)
        docs = [ListedDoc(**doc_fields(each), excerpt=excerpt(each)) for each in page]
        return DocPage(docs, total, offset + len(docs) < total), here

    return read_consistently(ws, look, index=False)


def issue_log(ws: Workspace, log_id: str) -> tuple[IssueLog, Standing]:
    """Raises `DocumentMissing`."""
    row, here = _one(ws, TABLE, log_id)
    return IssueLog(**log_fields(row), content=row.content), here


def knowledge_document(ws: Workspace, doc_id: str) -> tuple[KnowledgeDoc, Standing]:
    """Raises `DocumentMissing`."""
    row, here = _one(ws, knowledge_docs.TABLE, doc_id)
    return KnowledgeDoc(**doc_fields(row), content=row.content), here


def _one(ws: Workspace, table: DocumentTable, name: str) -> tuple[Document, Standing]:
    def look() -> tuple[Document, Standing]:
        here = standing(ws)
        return rows.find(ws, here.at, table, name), here

    return read_consistently(ws, look, index=False)


def _page(
    ws: Workspace, at: At, found: Iterable[Document], *, table: DocumentTable, limit: int, offset: int
) -> tuple[list[Document], int]:
    """A page of the rows, the latest change first, then by id; and the number of all.

    Texts of the page alone are kept in memory.
    """
    places = [(each.updated_at, each.doc_id) for each in found]
    places.sort(key=lambda place: place[1])
    places.sort(key=lambda place: place[0], reverse=True)
    ids = [doc_id for _, doc_id in places[offset:][:limit]]
    there = {each.doc_id: each for each in ws.engine.documents(at, ids=ids, table=table)} if ids else {}
    return [there[doc_id] for doc_id in ids if doc_id in there], len(places)
