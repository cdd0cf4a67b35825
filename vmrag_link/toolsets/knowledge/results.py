"""Results of the tools for issue logs and documents about tools."""

from __future__ import annotations

from typing import Any

from vmrag_link.toolsets.knowledge.records import ListedLog
from vmrag_link.toolsets.knowledge.search import DocHit, EitherHit, IssueHit
from vmrag_mcp.results.base import ToolResult


class AddIssueLogResult(ToolResult, frozen=True):
    """`log_id` is the same on every branch that adds this log."""

    log_id: str
    content_hash: str
    collection: str
    chunks_created: int


class LogResult(ToolResult, frozen=True):
    log_id: str
    project_id: str
    issue_number: int
    title: str
    content_hash: str
    log_type: str
    created_at: str
    updated_at: str
    metadata: dict[str, Any]


class UpdateIssueLogResult(LogResult, frozen=True):
    """`changed` False: it was like that already."""

    changed: bool
    chunks_created: int


class GetIssueLogResult(LogResult, frozen=True):
    content: str


class ListIssueLogsResult(ToolResult, frozen=True):
    """The latest change first. `total_count`: of all that pass the filter."""

    logs: list[ListedLog]
    total_count: int
    has_more: bool


class AddKnowledgeDocResult(ToolResult, frozen=True):
    doc_id: str
    content_hash: str
    collection: str
    chunks_created: int


class UpdateKnowledgeDocResult(ToolResult, frozen=True):
    """`changed` False: it was like that already."""

    doc_id: str
    category: str
    tool_name: str
    tool_version: str
    title: str
    content_hash: str
    created_at: str
    updated_at: str
    metadata: dict[str, Any]
    changed: bool
    chunks_created: int


class SearchIssuesResult(ToolResult, frozen=True):
    """Best first. `searched`: the collections that were asked."""

    results: list[IssueHit]
    searched: list[str]


class SearchKnowledgeResult(ToolResult, frozen=True):
    """Best first. `searched`: the collections that were asked."""

    results: list[DocHit]
    searched: list[str]


class SearchAllResult(ToolResult, frozen=True):
    """Best first. `searched`: the collections that were asked."""

    results: list[EitherHit]
    searched: list[str]
