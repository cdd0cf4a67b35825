"""Upkeep of the vector index."""

from __future__ import annotations

import time
from typing import Annotated, Any

from vmrag_link.errors import TableMissing, plural
from vmrag_link.ops.commits.tables import DOCUMENTS, TABLES
from vmrag_link.ops.documents import collections
from vmrag_link.ops.follow.provenance import standing
from vmrag_link.ops.index import index_status, index_sync
from vmrag_link.ops.index.index_sync import Synced, SyncedAll
from vmrag_link.suggest import no_collection
from vmrag_mcp.arguments import Given
from vmrag_mcp.registry import tool
from vmrag_mcp.session import Call


@tool("W")
def sync_collection(
    call: Call,
    *,
    source_table: Annotated[str, Given(", ".join(TABLES))],
    identifier: Annotated[str, Given("of documents: the collection")],
) -> dict[str, Any]:
    """Bring the vector index of a collection up to date."""
    if source_table not in TABLES:
        raise TableMissing(
            f"There is no table {source_table!r} of documents.",
            hint=f"There are: {', '.join(TABLES)}.",
            table=source_table,
        )
    if source_table != DOCUMENTS:  # the others hold nothing
        raise no_collection(identifier, [])
    report = _brought(call)
    row = report.of(call.ws, identifier)
    if report.failure and report.failed == row.collection:
        raise report.failure
    return {**_shown(row), "message": _told(row)}


@tool("W", idempotent=True)
def sync_all(call: Call) -> dict[str, Any]:
    """Bring the whole vector index up to date, or make it again if it is missing."""
    report = _brought(call)
    whole = report.together
    failed = []
    if report.failure:
        failed = [{"collection": report.failed, "error": report.failure.code, "message": report.failure.message}]
    changed = whole.added + whole.modified + whole.deleted
    return {
        "collections": [_shown(each) for each in report.collections],
        "totals": {name: getattr(whole, name) for name in ("added", "modified", "deleted", "chunks")},
        "failed": failed,
        "message": f"The index could not be brought up to date: {report.failure.message}"
        if report.failure
        else f"In sync: {plural(len(report.collections), 'collection')}; {plural(changed, 'document')} brought.",
    }


@tool("R")
def get_sync_status(call: Call) -> dict[str, Any]:
    """Show for each collection whether the vector index is up to date; changes nothing."""
    call.stands(standing(call.ws))
    found = index_status.look(call.ws)
    rows = [
        {
            "collection_name": each.collection.name,
            "snapshot": each.snapshot,
            "last_sync_commit": each.last_sync_commit,
            "last_sync_at": each.last_sync_at,
            "document_count": each.documents,
            "chunk_count": each.chunks,
            "sync_status": each.status,
            "error_message": each.error,
            "embedding_model": each.collection.embedding_model,
            "pending_documents": each.pending,
        }
        for each in found.collections
    ]
    late = sum(each.status != "synced" for each in found.collections)
    return {
        "branch": found.branch,
        "commit": found.commit,
        "collections": rows,
        "in_sync": found.in_sync,
        "message": f"{late} of {len(rows)} collections are not up to date; sync_all brings them."
        if late
        else f"Up to date: {plural(len(rows), 'collection')}.",
    }


@tool("W")
def force_full_resync(call: Call, *, collection: Annotated[str, Given("or all")]) -> dict[str, Any]:
    """Build the vector index again from nothing; searches go on meanwhile. Seldom needed: sync_all finds what has changed."""
    started = time.monotonic()
    name = None
    if collection != "all":
        name = collections.find(call.ws, call.standing().at, collection).name
    report = index_sync.rebuild(call.ws)
    call.stands(report.standing)
    row = report.of(call.ws, name) if name else report.together
    return {
        **_shown(row),
        "rebuilt": True,
        "seconds": round(time.monotonic() - started, 3),
        "message": f"The index was built again: {plural(row.added, 'document')}, {plural(row.chunks, 'chunk')}.",
    }


def _brought(call: Call) -> SyncedAll:
    report = index_sync.bring(call.ws)
    call.stands(report.standing)
    if report.failure:
        call.warn("INDEX_PENDING", f"Collection {report.failed!r}: {report.failure.message}")
    return report


def _shown(row: Synced) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__}


def _told(row: Synced) -> str:
    if row.sync_status != "synced":
        return f"Collection {row.collection!r} waits for another one that cannot be indexed."
    return (
        f"Collection {row.collection!r} is in sync: {row.added} added, {row.modified} modified, {row.deleted} deleted."
    )
