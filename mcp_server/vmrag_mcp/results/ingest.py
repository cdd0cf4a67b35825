"""Results of the tools for libraries, and of those for one document of any table."""

from __future__ import annotations

from typing import Any, Literal

from vmrag_link.models import Record
from vmrag_mcp.results.base import ToolResult


class IngestResult(ToolResult, frozen=True):
    """`source`: the absolute path of the file, or the page's URL without credentials."""

    status: Literal["indexed", "replaced", "skipped"]
    doc_id: str
    source: str
    library: str
    chunk_count: int


class SearchHit(Record, frozen=True):
    """A chunk, whole. `page` is 0 in a text without pages; `score` from 1 downwards."""

    doc_id: str
    source: str
    title: str
    library: str
    file_type: str
    last_modified: str
    page: int
    content: str
    chunk_index: int
    metadata: dict[str, Any]
    score: float


class SearchResult(ToolResult, frozen=True):
    """Best first."""

    results: list[SearchHit]


class LibraryDocument(Record, frozen=True):
    doc_id: str
    source: str
    title: str
    library: str
    content_hash: str
    created_at: str
    metadata: dict[str, Any]
    chunk_count: int


class ListDocumentsResult(ToolResult, frozen=True):
    """`count`: of this page; `total`: of all."""

    documents: list[LibraryDocument]
    count: int
    total: int


class LibraryEntry(Record, frozen=True):
    library: str
    document_count: int
    chunk_count: int


class ListLibrariesResult(ToolResult, frozen=True):
    """By name."""

    libraries: list[LibraryEntry]


Table = Literal["documents", "issue_logs", "knowledge_docs"]


class GetDocumentResult(ToolResult, frozen=True):
    """`content` is the whole text as it is stored; `library`: the collection."""

    doc_id: str
    source: str
    title: str
    library: str
    content: str
    chunk_count: int
    metadata: dict[str, Any]
    table: Table


class DeleteDocumentResult(ToolResult, frozen=True):
    status: Literal["deleted"]
    doc_id: str
    deleted_chunks: int
    table: Table
