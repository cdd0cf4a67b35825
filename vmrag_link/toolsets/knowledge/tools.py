"""Tools for issue logs and documents about tools."""

from __future__ import annotations

from collections.abc import Sized
from typing import Annotated, Any, TypeVar

from vmrag_link.errors import plural
from vmrag_link.toolsets.knowledge import issue_logs, knowledge_docs, listing, records
from vmrag_link.toolsets.knowledge import search as searching
from vmrag_link.toolsets.knowledge.issue_logs import LogChange, NewLog
from vmrag_link.toolsets.knowledge.knowledge_docs import DocChange, NewDoc
from vmrag_link.toolsets.knowledge.listing import LogPage
from vmrag_link.toolsets.knowledge.records import AddedDoc, AddedLog, IssueLog, UpdatedDoc, UpdatedLog
from vmrag_link.toolsets.knowledge.search import DocHits, EitherHits, IssueHits
from vmrag_link.workspace.documents.writing import WriteResult
from vmrag_mcp.arguments import RESULTS, Given, Offset, QueryText, fields_as_keywords
from vmrag_mcp.call import Call
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ToolAnswer

R = TypeVar("R")

AnyProject = Annotated[str | None, Given("project; default: all", aliases=("project",))]
Filters = Annotated[
    dict[str, Any] | None,
    Given('for example {"issue_number": 7}; also log_type, since, until, author, tag, title_contains'),
]
LogId = Annotated[str, Given("id of the log")]
Hits = Annotated[int, Given(RESULTS, low=1, high=100, clamped=True)]


@tool("W")
@fields_as_keywords
def add_issue_log(call: Call, request: NewLog) -> ToolAnswer[AddedLog]:
    """Store what was found or done about an issue, one log of each type for an issue.

    dolt_commit makes a revision of it.
    """
    result = _accept_write(call, issue_logs.add_log(call.ws, request))
    row = records.added_log(result)
    issue = f"{request.project_id}#{request.issue_number}"
    message = f"Logged {result.report.title!r} for {issue}{call.format_tail('dolt_commit keeps it')}."
    return ToolAnswer(row, message=message)


@tool("WO")
@fields_as_keywords
def update_issue_log(call: Call, request: LogChange, *, log_id: LogId) -> ToolAnswer[UpdatedLog]:
    """Change the text, title, type or metadata of an issue log."""
    result = _accept_write(call, issue_logs.update_log(call.ws, log_id, request))
    row = records.updated_log(result)
    return ToolAnswer(row, message=_describe_change(call, row.title, changed=row.changed))


@tool("R")
def get_issue_log(call: Call, *, log_id: LogId) -> ToolAnswer[IssueLog]:
    """Read a whole issue log by its id."""
    row = call.accept_read(listing.issue_log(call.ws, log_id))
    message = f"{row.title!r}, {row.log_type} of {row.project_id}#{row.issue_number}."
    return ToolAnswer(row, message=message)


@tool("R")
def list_issue_logs(
    call: Call,
    *,
    project_id: AnyProject = None,
    filters: Filters = None,
    limit: Annotated[int, Given("maximum number of logs", low=1, high=500, clamped=True)] = 50,
    offset: Offset = 0,
) -> ToolAnswer[LogPage]:
    """List issue logs with the start of their texts, last changed first."""
    page = call.accept_read(
        listing.issue_logs(call.ws, project_id=project_id, filters=filters, limit=limit, offset=offset)
    )
    return ToolAnswer(page, message=f"{len(page.logs)} of {plural(page.total_count, 'issue log')}.")


@tool("W")
@fields_as_keywords
def add_knowledge_doc(call: Call, request: NewDoc) -> ToolAnswer[AddedDoc]:
    """Store a document about a tool, a library or a framework.

    dolt_commit makes a revision of it.
    """
    result = _accept_write(call, knowledge_docs.add_document(call.ws, request))
    row = records.added_doc(result)
    message = (
        f"{result.report.title!r} is written down about {request.tool_name}{call.format_tail('dolt_commit keeps it')}."
    )
    return ToolAnswer(row, message=message)


@tool("WO")
@fields_as_keywords
def update_knowledge_doc(
    call: Call, request: DocChange, *, doc_id: Annotated[str, Given("id of the document")]
) -> ToolAnswer[UpdatedDoc]:
    """Change a document about a tool."""
    result = _accept_write(call, knowledge_docs.update_document(call.ws, doc_id, request))
    row = records.updated_doc(result)
    return ToolAnswer(row, message=_describe_change(call, row.title, changed=row.changed))


@tool("R")
def search_issues(
    call: Call, *, query: QueryText, project_id: AnyProject = None, filters: Filters = None, limit: Hits = 5
) -> ToolAnswer[IssueHits]:
    """Search issue logs by meaning and words, for example for an earlier fix."""
    hits = call.accept_read(searching.search_logs(call.ws, query, project_id=project_id, filters=filters, limit=limit))
    return ToolAnswer(hits, message=_describe_hits(hits.results))


@tool("R")
def search_knowledge(
    call: Call,
    *,
    query: QueryText,
    tool_name: Annotated[str | None, Given("tool; default: all", aliases=("tool",))] = None,
    category: Annotated[str | None, Given("category; default: all")] = None,
    limit: Hits = 5,
) -> ToolAnswer[DocHits]:
    """Search documents about tools by meaning and words."""
    hits = call.accept_read(searching.search_docs(call.ws, query, tool_name=tool_name, category=category, limit=limit))
    return ToolAnswer(hits, message=_describe_hits(hits.results))


@tool("R")
def search_all(call: Call, *, query: QueryText, limit: Hits = 5) -> ToolAnswer[EitherHits]:
    """Search issue logs and documents about tools together."""
    hits = call.accept_read(searching.search_both(call.ws, query, limit=limit))
    return ToolAnswer(hits, message=_describe_hits(hits.results))


def _accept_write(call: Call, result: WriteResult[R]) -> WriteResult[R]:
    call.warn_pending(result.pending)
    return result


def _describe_change(call: Call, title: str, *, changed: bool) -> str:
    return (
        f"{title!r} is changed{call.format_tail('dolt_commit keeps that')}."
        if changed
        else f"{title!r} is like that already."
    )


def _describe_hits(hits: Sized) -> str:
    return f"{plural(len(hits), 'passage')}."
