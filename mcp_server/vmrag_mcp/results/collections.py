"""Results of the tools for collections."""

from __future__ import annotations

from typing import Any, Literal

from vmrag_link.models import Chunking, Record
from vmrag_link.ops.index.index_status import Status
from vmrag_mcp.results.base import ToolResult

CollectionKind = Literal["chroma", "issues", "knowledge", "library", "compounding", "external", "system", "source"]


class CollectionEntry(Record, frozen=True):
    """`tenant` and `database` are Chroma's."""

    name: str
    metadata: dict[str, Any]
    tenant: str
    database: str
    document_count: int
    kind: CollectionKind


class ChromaListCollectionsResult(ToolResult, frozen=True):
    """`total_count` counts all that match, not the page."""

    collections: list[CollectionEntry]
    total_count: int
    has_more: bool
    limit: int
    offset: int


class ChromaGetCollectionInfoResult(ToolResult, frozen=True):
    """`metadata`: the user's own keys, and those that say how the index is made.

    `id`: a UUID made of the name; Chroma's own differs in every store.
    """

    name: str
    id: str
    metadata: dict[str, Any]
    tenant: str
    database: str
    document_count: int
    chunk_count: int
    snapshot: str
    embedding_function: str
    embedding_dimensions: int
    chunking: Chunking
    index_status: Status


class ChromaGetCollectionCountResult(ToolResult, frozen=True):
    collection_name: str
    count: int
    chunk_count: int


class CreatedCollection(Record, frozen=True):
    """`created` is false for one that was there."""

    name: str
    id: str
    created: bool


class ChromaCreateCollectionResult(ToolResult, frozen=True):
    collection: CreatedCollection
    name: str
    id: str
    metadata: dict[str, Any]


class DescribedCollection(Record, frozen=True):
    name: str
    metadata: dict[str, Any]


class CollectionChanges(Record, frozen=True):
    name_changed: bool
    metadata_changed: bool


class ChromaModifyCollectionResult(ToolResult, frozen=True):
    collection: DescribedCollection
    changes: CollectionChanges


class ChromaDeleteCollectionResult(ToolResult, frozen=True):
    deleted_collection: str
    documents_deleted: int
    status: Literal["success"]
