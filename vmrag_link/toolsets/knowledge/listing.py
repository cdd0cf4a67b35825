"""Issue logs and documents about tools as people find them: page by page those that a filter
passes, the latest change first, and by what they are called: `PROJECT#NUMBER`, or how an id begins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from vmrag_link import clock
from vmrag_link.engines import logical
from vmrag_link.errors import DocumentMissing, FilterInvalid, UsageInvalid, plural, quoted
from vmrag_link.models import ISSUES, KNOWLEDGE, TABLE_OF_KIND, At, Document, DocumentTable, Record, parse_metadata
from vmrag_link.toolsets.knowledge import knowledge_docs, rows
from vmrag_link.toolsets.knowledge.issue_logs import TABLE, of_issue
from vmrag_link.toolsets.knowledge.records import (
    LOG_TYPES,
    IssueLog,
    KnowledgeDoc,
    ListedDoc,
    ListedLog,
    cut_excerpt,
    doc_fields,
    log_fields,
)
from vmrag_link.toolsets.knowledge.rows import WHAT
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.follow_pin import follow_and_warn, read_consistently
from vmrag_link.workspace.follow.provenance import AnswerOrigin, find_origin


class LogPage(Record, frozen=True):
    """`total_count`: of all that pass the filter."""

    logs: list[ListedLog]
    total_count: int
    has_more: bool


class DocPage(Record, frozen=True):
    """`total_count`: of all that are asked for."""

    docs: list[ListedDoc]
    total_count: int
    has_more: bool


def issue_logs(
    ws: Workspace,
    *,
    project_id: str | None = None,
    filters: Mapping[str, Any] | None = None,
    limit: int = 50,
    offset: int = 0,
) -> tuple[LogPage, AnswerOrigin]:
    """None for an unknown project. Raises `FilterInvalid`."""
    wanted = parse_filter(filters or {})

    def look() -> tuple[LogPage, AnswerOrigin]:
        here = find_origin(ws)
        found = filter_logs(ws, here.at, project_id, wanted)
        page, total = _page(ws, here.at, found, table=TABLE, limit=limit, offset=offset)
        logs = [ListedLog(**log_fields(each), excerpt=cut_excerpt(each)) for each in page]
        return LogPage(logs, total, offset + len(logs) < total), here

    return read_consistently(ws, look, index=False)


def knowledge_documents(
    ws: Workspace, *, tool_name: str | None = None, category: str | None = None, limit: int = 50, offset: int = 0
) -> tuple[DocPage, AnswerOrigin]:
    """None for an unknown tool."""

    def look() -> tuple[DocPage, AnswerOrigin]:
        here = find_origin(ws)
        found = knowledge_docs.list_about(ws, here.at, tool_name, category)
        page, total = _page(ws, here.at, found, table=knowledge_docs.TABLE, limit=limit, offset=offset)
        docs = [ListedDoc(**doc_fields(each), excerpt=cut_excerpt(each)) for each in page]
        return DocPage(docs, total, offset + len(docs) < total), here

    return read_consistently(ws, look, index=False)


def issue_log(ws: Workspace, log_id: str) -> tuple[IssueLog, AnswerOrigin]:
    """Raises `DocumentMissing`."""
    row, here = _one(ws, TABLE, log_id)
    return IssueLog(**log_fields(row), content=row.content), here


def knowledge_document(ws: Workspace, doc_id: str) -> tuple[KnowledgeDoc, AnswerOrigin]:
    """Raises `DocumentMissing`."""
    row, here = _one(ws, knowledge_docs.TABLE, doc_id)
    return KnowledgeDoc(**doc_fields(row), content=row.content), here


def _one(ws: Workspace, table: DocumentTable, name: str) -> tuple[Document, AnswerOrigin]:
    def look() -> tuple[Document, AnswerOrigin]:
        here = find_origin(ws)
        return rows.find_row(ws, here.at, table, name), here

    return read_consistently(ws, look, index=False)


def _page(
    ws: Workspace, at: At, found: Iterable[Document], *, table: DocumentTable, limit: int, offset: int
) -> tuple[list[Document], int]:
    """A page of the rows, the latest change first, then by id; and the number of all.

    Texts of the page alone are kept in memory.
    """
    places = [(each.updated_at, each.doc_id) for each in found]
    places.sort(key=lambda place: place[1])
    places.sort(key=lambda place: place[0], reverse=True)
    ids = [doc_id for _, doc_id in places[offset:][:limit]]
    there = (
        {document.doc_id: document for document in ws.engine.read_documents(at, ids=ids, table=table)} if ids else {}
    )
    return [there[doc_id] for doc_id in ids if doc_id in there], len(places)


KEYS = ("issue_number", "log_type", "since", "until", "author", "tag", "title_contains")
"""`since` and `until`: of the last change. `author` is the metadata's, `tag` one of its `tags`."""

LogFilter = Mapping[str, Any]


def parse_filter(given: Mapping[str, Any]) -> LogFilter:
    """The filter with its values as they are compared.

    Raises `FilterInvalid` for another key than `KEYS`, and for a value that cannot be.
    """
    return {key: _value(key, value) for key, value in given.items() if value not in (None, "")}


def filter_logs(ws: Workspace, at: At, project_id: str | None, wanted: LogFilter) -> Iterator[Document]:
    """The logs that pass, of one project or of all; each is read when it is asked for."""
    collection = None if project_id is None else logical.collection_name(ISSUES, project_id)
    for document in ws.engine.read_documents(at, collection=collection, table=TABLE):
        if _passes(document, wanted):
            yield document


def _value(key: str, value: Any) -> Any:
    match key:
        case "issue_number":
            number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
            if isinstance(number, int) and not isinstance(number, bool):
                return number
        case "log_type":
            if value in LOG_TYPES:
                return value
        case "since" | "until":
            return _moment(key, value)
        case "author" | "tag" | "title_contains":
            if isinstance(value, str):
                return value
        case _:
            raise FilterInvalid(
                f"The filter asks for {key!r}, which issue logs cannot be filtered by.",
                hint=f"It takes {', '.join(KEYS)}.",
                key=key,
                allowed=list(KEYS),
            )
    expected = {"issue_number": "a whole number", "log_type": f"one of {', '.join(LOG_TYPES)}"}.get(key, "a text")
    raise FilterInvalid(
        f"{key} in the filter must be {expected}, not {json.dumps(value)[:80]}.",
        hint='For example: {"issue_number": 42, "log_type": "resolution", "since": "2026-01-31"}',
        key=key,
    )


def _moment(key: str, value: Any) -> str:
    try:
        return clock.format_time(clock.parse_time(value, end=key == "until"))
    except (TypeError, ValueError):
        raise FilterInvalid(
            f"{key} in the filter must be a time in ISO 8601, not {json.dumps(value)[:80]}.",
            hint="For example: 2026-01-31, or 2026-01-31T12:00:00Z",
            key=key,
        ) from None


def _passes(document: Document, wanted: LogFilter) -> bool:
    if not wanted:
        return True
    metadata = parse_metadata(document)
    tags = metadata.get("tags", [])
    have: dict[str, Callable[[Any], bool]] = {
        "issue_number": lambda value: bool(metadata["issue_number"] == value),
        "log_type": lambda value: bool(metadata["log_type"] == value),
        "since": lambda value: bool(document.updated_at >= value),
        "until": lambda value: bool(document.updated_at <= value),
        "author": lambda value: bool(metadata.get("author") == value),
        "tag": lambda value: value in (tags if isinstance(tags, list) else [tags]),
        "title_contains": lambda value: value.casefold() in document.title.casefold(),
    }
    return all(have[key](value) for key, value in wanted.items())


FEWEST = 4
"""Characters of an id that may stand for it."""

_ISSUE = re.compile(r"(?:(?P<project>.+)#)?(?P<number>[0-9]{1,10})(?::(?P<type>[a-z]+))?", re.DOTALL)

_EXAMPLE = "For example: my-project#42"


def issue_named(ws: Workspace, name: str) -> tuple[str, int]:
    """Project and number of `PROJECT#NUMBER`; of `NUMBER` where there is one project.

    Raises `UsageInvalid`.
    """
    found = _ISSUE.fullmatch(name)
    if found is None or found["type"]:
        raise UsageInvalid(f"{name!r} names no issue: it is PROJECT#NUMBER.", hint=_EXAMPLE)
    return found["project"] or _only_project(ws, name), int(found["number"])


def id_of_log(ws: Workspace, name: str) -> str:
    """The id of the log that `PROJECT#NUMBER[:TYPE]`, `NUMBER[:TYPE]` or the beginning of an id
    names.

    Raises `DocumentMissing`, `UsageInvalid` where it names several.
    """
    follow_and_warn(ws)
    at, found = ws.locate_documents(), _ISSUE.fullmatch(name)
    beginning = _with_beginning(ws, at, ISSUES, name)
    if found is None or (beginning and not found["project"]):
        return _only(name, ISSUES, beginning)
    project = found["project"] or _only_project(ws, name)
    number, kind = int(found["number"]), found["type"]
    logs = [each for each in of_issue(ws, at, project, number) if kind in (None, each[0])]
    if len(logs) == 1:
        return logs[0][1]
    if not logs:
        lacking = f" of type {kind}" if kind else ""
        raise DocumentMissing(
            f"Issue {number} of project {project!r} has no log{lacking}.",
            hint=f"vmrag issue add {quoted(f'{project}#{number}')}",
            table=TABLE,
        )
    types = [each for each in LOG_TYPES if any(each == log[0] for log in logs)]
    raise UsageInvalid(
        f"Issue {number} of project {project!r} has {plural(len(logs), 'log')}: {', '.join(types)}.",
        hint=f"Name one: {quoted(f'{project}#{number}:{types[0]}')}" if types else "vmrag issue list",
    )


def id_of_doc(ws: Workspace, name: str) -> str:
    """The id of the document about a tool that has this id, or whose id begins so.

    Raises `DocumentMissing`, `UsageInvalid` where several do.
    """
    follow_and_warn(ws)
    return _only(name, KNOWLEDGE, _with_beginning(ws, ws.locate_documents(), KNOWLEDGE, name))


def _only(name: str, kind: str, ids: list[str]) -> str:
    what = WHAT[TABLE_OF_KIND[kind]]
    command = "vmrag issue list" if kind == ISSUES else "vmrag doc list"
    if not ids:
        raise DocumentMissing(f"There is no {what} {name!r}.", hint=command, table=TABLE_OF_KIND[kind])
    if len(ids) > 1:
        raise UsageInvalid(f"{plural(len(ids), 'id')} begin with {name!r}.", hint=f"{command}   (shows the ids)")
    return ids[0]


def _with_beginning(ws: Workspace, at: At, kind: str, name: str) -> list[str]:
    """The ids that begin so; the one that is the name itself goes before all others."""
    ids = list(_ids(ws, at, kind)) if len(name) >= FEWEST else []
    return [name] if name in ids else [identifier for identifier in ids if identifier.startswith(name)]


def _ids(ws: Workspace, at: At, kind: str) -> Iterator[str]:
    for collection in ws.engine.list_collections(at):
        if collection.kind == kind:
            yield from (header.doc_id for header in ws.engine.read_headers(at, collection=collection.name))


def _only_project(ws: Workspace, name: str) -> str:
    """Raises `UsageInvalid` unless there is one project."""
    projects = [each.project_id for each in ws.engine.read_projects(ws.locate_documents())]
    if len(projects) == 1:
        return projects[0]
    why = f"there are several: {', '.join(projects[:5])}" if projects else "there is none yet"
    project = projects[0] if projects else ws.places.top.name
    raise UsageInvalid(
        f"{name} does not say which project, and {why}.", hint=f"For example: {quoted(f'{project}#{name}')}"
    )
