"""Tools for issue logs and documents about tools, and their results."""

from __future__ import annotations

from collections.abc import Sized
from typing import Annotated, Any, TypeVar

from msgspec import structs

from vmrag_link.errors import plural
from vmrag_link.ops.documents.writing import Landed
from vmrag_link.toolsets.knowledge import issue_logs, knowledge_docs, listing, records
from vmrag_link.toolsets.knowledge import search as searching
from vmrag_link.toolsets.knowledge.issue_logs import LogChange, NewLog
from vmrag_link.toolsets.knowledge.knowledge_docs import DocChange, NewDoc
from vmrag_link.toolsets.knowledge.records import ListedLog, LogType
from vmrag_link.toolsets.knowledge.search import DocHit, EitherHit, IssueHit
from vmrag_mcp.arguments import Given
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ToolResult
from vmrag_mcp.session import Call


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


R = TypeVar("R")

Project = Annotated[str, Given(aliases=("project",))]
AnyProject = Annotated[str | None, Given("left out: all", aliases=("project",))]
Tool = Annotated[str, Given(aliases=("tool",))]
Metadata = Annotated[dict[str, Any] | None, Given('e.g. {"author": "Ada", "tags": ["cache"]}')]
NewMetadata = Annotated[dict[str, Any] | None, Given("replaces what was given")]
Filters = Annotated[
    dict[str, Any] | None,
    Given('e.g. {"issue_number": 7}; log_type, since, until (of the last change), author, tag, title_contains'),
]
Hits = Annotated[int, Given(low=1, high=100, clamped=True)]


@tool("W")
def add_issue_log(
    call: Call,
    *,
    project_id: Project,
    issue_number: Annotated[int, Given(low=0, aliases=("issue",))],
    content: str,
    title: str = "",
    log_type: Annotated[LogType, Given(aliases=("type",))] = "implementation",
    metadata: Metadata = None,
) -> AddIssueLogResult:
    """Write down what was found out about an issue, or done: one log of each type for an issue.

    Keep it with dolt_commit.
    """
    new = NewLog(project_id, issue_number, content, title, log_type, metadata or {})
    done = _landed(call, issue_logs.add(call.ws, new))
    row = records.added_log(done)
    message = f"{done.report.title!r} is logged for {project_id}#{issue_number}{call.tail('dolt_commit keeps it')}."
    return AddIssueLogResult(**structs.asdict(row), message=message)


@tool("W")
def update_issue_log(
    call: Call,
    *,
    log_id: str,
    content: str | None = None,
    title: str | None = None,
    log_type: Annotated[LogType | None, Given(aliases=("type",))] = None,
    metadata: NewMetadata = None,
) -> UpdateIssueLogResult:
    """Change an issue log: its text, title, type or metadata."""
    done = _landed(call, issue_logs.update(call.ws, log_id, LogChange(content, title, log_type, metadata)))
    row = records.updated_log(done)
    return UpdateIssueLogResult(**structs.asdict(row), message=_changed(call, row.title, changed=row.changed))


@tool("R")
def get_issue_log(call: Call, *, log_id: str) -> GetIssueLogResult:
    """Get a whole issue log."""
    row, here = listing.issue_log(call.ws, log_id)
    call.stands(here)
    message = f"{row.title!r}, {row.log_type} of {row.project_id}#{row.issue_number}."
    return GetIssueLogResult(**structs.asdict(row), message=message)


@tool("R")
def list_issue_logs(
    call: Call,
    *,
    project_id: AnyProject = None,
    filters: Filters = None,
    limit: Annotated[int, Given(low=1, high=500, clamped=True)] = 50,
    offset: Annotated[int, Given(low=0)] = 0,
) -> ListIssueLogsResult:
    """List issue logs, the latest change first, with the beginnings of their texts."""
    page, here = listing.issue_logs(call.ws, project_id=project_id, filters=filters, limit=limit, offset=offset)
    call.stands(here)
    return ListIssueLogsResult(
        logs=page.logs,
        total_count=page.total_count,
        has_more=page.has_more,
        message=f"{len(page.logs)} of {plural(page.total_count, 'issue log')}.",
    )


@tool("W")
def add_knowledge_doc(
    call: Call,
    *,
    tool_name: Tool,
    title: str,
    content: str,
    category: Annotated[str, Given("e.g. api, framework, tooling")],
    tool_version: str = "",
    metadata: Annotated[dict[str, Any] | None, Given('e.g. {"source_url": "https://…", "tags": ["cli"]}')] = None,
) -> AddKnowledgeDocResult:
    """Write down what should be known of a tool, a library or a framework.

    Keep it with dolt_commit.
    """
    new = NewDoc(tool_name, title, content, category, tool_version, metadata or {})
    done = _landed(call, knowledge_docs.add(call.ws, new))
    row = records.added_doc(done)
    message = f"{done.report.title!r} is written down about {tool_name}{call.tail('dolt_commit keeps it')}."
    return AddKnowledgeDocResult(**structs.asdict(row), message=message)


@tool("W")
def update_knowledge_doc(
    call: Call,
    *,
    doc_id: str,
    content: str | None = None,
    title: str | None = None,
    category: str | None = None,
    tool_name: Annotated[str | None, Given(aliases=("tool",))] = None,
    tool_version: str | None = None,
    metadata: NewMetadata = None,
) -> UpdateKnowledgeDocResult:
    """Change a document about a tool."""
    change = DocChange(content, title, category, tool_name, tool_version, metadata)
    done = _landed(call, knowledge_docs.update(call.ws, doc_id, change))
    row = records.updated_doc(done)
    return UpdateKnowledgeDocResult(**structs.asdict(row), message=_changed(call, row.title, changed=row.changed))


@tool("R")
def search_issues(
    call: Call, *, query: str, project_id: AnyProject = None, filters: Filters = None, limit: Hits = 5
) -> SearchIssuesResult:
    """Search issue logs by meaning and by words: has this been seen before, and what was done?"""
    found, here = searching.issues(call.ws, query, project_id=project_id, filters=filters, limit=limit)
    call.stands(here)
    return SearchIssuesResult(results=found.results, searched=found.searched, message=_hits_sentence(found.results))


@tool("R")
def search_knowledge(
    call: Call,
    *,
    query: str,
    tool_name: Annotated[str | None, Given("left out: all", aliases=("tool",))] = None,
    category: str | None = None,
    limit: Hits = 5,
) -> SearchKnowledgeResult:
    """Search documents about tools by meaning and by words."""
    found, here = searching.knowledge(call.ws, query, tool_name=tool_name, category=category, limit=limit)
    call.stands(here)
    return SearchKnowledgeResult(results=found.results, searched=found.searched, message=_hits_sentence(found.results))


@tool("R")
def search_all(call: Call, *, query: str, limit: Hits = 5) -> SearchAllResult:
    """Search issue logs and documents about tools together."""
    found, here = searching.everything(call.ws, query, limit=limit)
    call.stands(here)
    return SearchAllResult(results=found.results, searched=found.searched, message=_hits_sentence(found.results))


def _landed(call: Call, done: Landed[R]) -> Landed[R]:
    call.pending(done.pending)
    return done


def _changed(call: Call, title: str, *, changed: bool) -> str:
    return (
        f"{title!r} is changed{call.tail('dolt_commit keeps that')}." if changed else f"{title!r} is like that already."
    )


def _hits_sentence(hits: Sized) -> str:
    return f"{plural(len(hits), 'passage')}."
