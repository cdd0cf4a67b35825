"""Updates of the vector index."""

from __future__ import annotations

import time
from typing import Annotated

from msgspec import Meta, structs

from vmrag_link.errors import plural
from vmrag_link.models import Record
from vmrag_link.ops import index_sync
from vmrag_link.ops.index_sync import SyncedAll, SyncedCollection
from vmrag_link.sync.chroma_state import ChromaState
from vmrag_link.workspace.answers import index_status
from vmrag_link.workspace.answers.index_status import CollectionStatus
from vmrag_link.workspace.documents import collections
from vmrag_link.workspace.documents.collections import TABLES
from vmrag_link.workspace.follow.provenance import find_origin
from vmrag_mcp.arguments import Given
from vmrag_mcp.call import Call
from vmrag_mcp.registry import tool
from vmrag_mcp.results import DerivedRecord, ToolAnswer, ToolResult


class SyncTotals(DerivedRecord, frozen=True):
    """Sums over all collections."""

    added: int
    modified: int
    deleted: int
    chunks: int


class SyncFailure(Record, frozen=True):
    """A collection that could not be indexed. `error` is the code."""

    collection: str
    error: str
    message: str


class SyncAllResult(ToolResult, frozen=True):
    collections: list[SyncedCollection]
    totals: SyncTotals
    failed: list[SyncFailure]


class GetSyncStatusResult(ToolResult, frozen=True):
    """The status of the index.

    `commit` is the revision that the index should have. `chroma` is the store for Chroma's own
    clients, which follows the index.
    """

    branch: str | None
    commit: str
    collections: list[CollectionStatus]
    in_sync: bool
    chroma: ChromaState


class Resynced(SyncedCollection, frozen=True):
    """The rebuilt index of a collection, or of all collections under the name `all`."""

    rebuilt: Annotated[bool, Meta(extra_json_schema={"const": True})]
    seconds: float


@tool("W", title="Update collection index", alias_of="sync_all")
def sync_collection(
    call: Call,
    *,
    source_table: Annotated[str, Given(", ".join(TABLES))],
    identifier: Annotated[str, Given("name of the collection, project or tool")],
) -> ToolAnswer[SyncedCollection]:
    """Update the vector index of a collection."""
    name = collections.collection_name(source_table, identifier)
    report = _synchronize_clone(call)
    row = report.find_row(call.ws, name)
    if report.failure and report.failed == row.collection:
        raise report.failure
    return ToolAnswer(row, message=_sync_message(row))


@tool("W", title="Update index", idempotent=True)
def sync_all(call: Call) -> SyncAllResult:
    """Update the whole vector index, or rebuild it if it is missing. Call it after the warning
    INDEX_PENDING.
    """
    report = _synchronize_clone(call)
    whole = report.total
    failed = []
    message = f"In sync: {plural(len(report.collections), 'collection')}; "
    message += f"{plural(whole.added + whole.modified + whole.deleted, 'document')} updated."
    if report.failure:
        failed = [SyncFailure(report.failed, report.failure.code, report.failure.message)]
        message = f"Could not update the index: {report.failure.message}"
    return SyncAllResult(
        collections=list(report.collections), totals=SyncTotals.from_report(whole), failed=failed, message=message
    )


@tool("R", title="Show index status")
def get_sync_status(call: Call) -> GetSyncStatusResult:
    """Show for each collection whether the vector index is up to date."""
    call.set_origin(find_origin(call.ws))
    status = index_status.read_status(call.ws)
    rows = status.collections
    late = sum(row.sync_status != "synced" for row in rows)
    message = f"Up to date: {plural(len(rows), 'collection')}."
    if late:
        message = f"{late} of {len(rows)} collections are not up to date{call.format_tail('sync_all updates them')}."
    return GetSyncStatusResult(
        branch=status.branch,
        commit=status.commit,
        collections=rows,
        in_sync=status.in_sync,
        chroma=call.ws.chroma.local.read_state(),
        message=message,
    )


@tool("W", title="Rebuild index", includes=("sync_all",))
def force_full_resync(call: Call, *, collection: Annotated[str, Given("collection, or all")]) -> ToolAnswer[Resynced]:
    """Rebuild the whole vector index while searches continue.

    Rarely needed: sync_all finds what changed.
    """
    started = time.monotonic()
    name = None
    if collection != "all":
        name = collections.find_collection(call.ws, call.find_origin().at, collection).name
    report = index_sync.rebuild_index(call.ws)
    call.set_origin(report.origin)
    row = report.find_row(call.ws, name) if name else report.total
    seconds = round(time.monotonic() - started, 3)
    return ToolAnswer(
        Resynced(**structs.asdict(row), rebuilt=True, seconds=seconds),
        message=f"Rebuilt the index: {plural(row.added, 'document')}, {plural(row.chunks, 'chunk')}.",
    )


def _synchronize_clone(call: Call) -> SyncedAll:
    report = index_sync.bring_index(call.ws)
    call.set_origin(report.origin)
    if report.failure:
        call.warn("INDEX_PENDING", f"Collection {report.failed!r}: {report.failure.message}")
    return report


def _sync_message(row: SyncedCollection) -> str:
    if row.sync_status != "synced":
        return f"Collection {row.collection!r} waits for another collection that cannot be indexed."
    return (
        f"Collection {row.collection!r} is in sync: {row.added} added, {row.modified} modified, {row.deleted} deleted."
    )
