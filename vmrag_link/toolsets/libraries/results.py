"""Results of the tools for libraries."""

from __future__ import annotations

from typing import Literal

from vmrag_link.toolsets.libraries.listing import LibrarySize, ListedDocument
from vmrag_link.toolsets.libraries.search import LibraryPassage
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
