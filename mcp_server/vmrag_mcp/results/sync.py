"""Results of the tools that bring the vector index up to date."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from vmrag_link.models import Record
from vmrag_link.ops.index.index_status import Status
from vmrag_link.ops.index.index_sync import Synced
from vmrag_link.sync.chroma_state import ChromaState
from vmrag_mcp.results.base import ToolResult


class SyncCollectionResult(ToolResult, frozen=True):
    """Numbers of documents, and of the chunks that were put into the index."""

    collection: str
    snapshot: str
    branch: str | None
    commit: str
    added: int
    modified: int
    deleted: int
    chunks: int
    sync_status: Status


class SyncTotals(Record, frozen=True):
    """Sums over all collections."""

    added: int
    modified: int
    deleted: int
    chunks: int


class SyncFailure(Record, frozen=True):
    """A collection that could not be indexed. `error`: the code."""

    collection: str
    error: str
    message: str


class SyncAllResult(ToolResult, frozen=True):
    collections: list[Synced]
    totals: SyncTotals
    failed: list[SyncFailure]


class CollectionSyncStatus(Record, frozen=True):
    """`last_sync_commit`: the revision at which the index stands. `last_sync_at`: ISO 8601 UTC."""

    collection_name: str
    snapshot: str | None
    last_sync_commit: str | None
    last_sync_at: str | None
    document_count: int
    chunk_count: int
    sync_status: Status
    error_message: str | None
    embedding_model: str
    pending_documents: int


class GetSyncStatusResult(ToolResult, frozen=True):
    """`commit`: what the index should stand at. `chroma`: the store for Chroma's own clients, which
    follows the index.
    """

    branch: str | None
    commit: str
    collections: list[CollectionSyncStatus]
    in_sync: bool
    chroma: ChromaState


class ForceFullResyncResult(SyncCollectionResult, frozen=True):
    """As of a collection that is called `all`, if all were asked for."""

    rebuilt: Annotated[bool, Meta(extra_json_schema={"const": True})]
    seconds: float
