"""Results of the tools for libraries, and of those for one document of any table."""

from __future__ import annotations

from typing import Any, Literal

from vmrag_link.ops.libraries.listing import LibrarySize, ListedDocument
from vmrag_link.ops.libraries.search import LibraryPassage
from vmrag_mcp.results.base import ToolResult


class IngestResult(ToolResult, frozen=True):
    """`source`: the absolute path of the file, or the page's URL without credentials."""

    status: Literal["indexed", "replaced", "skipped"]
    doc_id: str
    source: str
    library: str
    chunk_count: int


class SearchResult(ToolResult, frozen=True):
    """Best first."""

    results: list[LibraryPassage]


class ListDocumentsResult(ToolResult, frozen=True):
    """`count`: of this page; `total`: of all."""

    documents: list[ListedDocument]
    count: int
    total: int


class ListLibrariesResult(ToolResult, frozen=True):
    """By name."""

    libraries: list[LibrarySize]


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
