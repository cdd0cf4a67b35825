"""Results of the tools for one document of any table."""

from __future__ import annotations

from typing import Any, Literal

from vmrag_mcp.results.base import ToolResult

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
