"""Results of the tools for one document or one filter."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, UnsetType

from vmrag_link.models import Record
from vmrag_mcp.results import ToolResult
from vmrag_mcp.tools.document_results import (
    DocumentColumns,
    FileMatch,
    Truncated,
    Weak,
    WithDocuments,
    WithEmbeddings,
    WithMetadatas,
)


class ChromaGetCollectionResult(ToolResult, frozen=True):
    """A collection. `metadata` has the user's own keys, and `settings` has keys of the index."""

    name: str
    id: str
    metadata: dict[str, Any]
    count: int
    sample_entries: DocumentColumns


class ChromaAddDocumentResult(ToolResult, frozen=True):
    """The result of all tools that add one document."""

    status: Literal["success"]
    documents_added: Literal[1]
    ids: list[str]
    added_id: str


class FilteredMatch(FileMatch, frozen=True):
    """A chunk. Its `id` is the id of its document if the document has no other chunk."""

    id: str
    document: str
    metadata: dict[str, Any]
    distance: float
    similarity: float
    truncated: Truncated = UNSET


class FilteredMatches(Record, frozen=True):
    """The matches of one text, best first."""

    query: str
    matches: list[FilteredMatch]
    weak: Annotated[Literal[True] | UnsetType, Weak] = UNSET


class FilteredQueryResult(ToolResult, frozen=True):
    """The result of tools that search with one filter.

    `ids` and `distances` contain the matches of `results`, in their order.
    """

    results: list[FilteredMatches]
    ids: list[list[str]]
    distances: list[list[float]]


class DocumentsResult(ToolResult, frozen=True):
    """Documents as lists of equal length."""

    ids: list[str]
    total_matching: int
    documents: Annotated[list[str] | UnsetType, WithDocuments] = UNSET
    metadatas: Annotated[list[dict[str, Any]] | UnsetType, WithMetadatas] = UNSET
    embeddings: Annotated[list[list[list[float]]] | UnsetType, WithEmbeddings] = UNSET


class ChromaGetDocumentsByIdsResult(ToolResult, frozen=True):
    """Documents as lists of equal length. `missing_ids` are ids without a document."""

    ids: list[str]
    total_matching: int
    documents: list[str]
    metadatas: list[dict[str, Any]]
    missing_ids: list[str]


class ChromaGetAllDocumentsResult(DocumentsResult, frozen=True, kw_only=True):
    has_more: bool


class ChromaUpdateDocumentResult(ToolResult, frozen=True):
    """The result of all tools that change one document."""

    status: Literal["success"]
    documents_updated_request: Literal[1]
    updated_id: str


class ChromaDeleteDocumentByIdResult(ToolResult, frozen=True):
    status: Literal["success"]
    documents_deleted_request: Literal[1]
    documents_deleted: int


class ChromaDeleteDocumentsByFilterResult(ToolResult, frozen=True):
    """The result of all tools that delete by one filter."""

    status: Literal["success"]
    filter_used: dict[str, Any]
    documents_deleted: int
