"""Issue logs: findings and actions about an issue of a project.

A project has one log of each type for an issue. Its id is derived from these three. Two branches
that add the same log therefore get one document, and merge it line by line.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, NamedTuple

from msgspec import Meta

from vmrag_link import clock
from vmrag_link.engines import logical
from vmrag_link.errors import DocumentExists, UsageInvalid, quoted
from vmrag_link.models import ISSUES, LONGEST_TEXT, At, Document, Project, Record, encode_canonical_json, parse_metadata
from vmrag_link.toolsets.knowledge import rows
from vmrag_link.toolsets.knowledge.records import LOG_TYPES, LogType, NewMetadata, Updated, read_stated
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.documents.writing import Planned, WriteResult

NAMESPACE = uuid.UUID("4be0a7c1-43a6-5f0e-8d0a-5b6f0e6f2c19")
"""Namespace of the ids of issue logs. It never changes, because branches must derive equal ids."""

TABLE: Final = "issue_logs"

_MAX_NUMBER = 2**31 - 1
"""The largest number that the columns of all engines can store."""


_TEXT = Meta(description="text of the log", max_length=LONGEST_TEXT)
_TITLE = Meta(description="title of the log")
_TYPE = Meta(description="type of the log", extra={"aliases": ("type",)})


class NewLog(Record, frozen=True):
    """A new log. Default of the title: the text's first heading, or its begin."""

    project_id: Annotated[str, Meta(description="project such as shop", extra={"aliases": ("project",)})]
    issue_number: Annotated[int, Meta(description="number of the issue", ge=0, extra={"aliases": ("issue",)})]
    content: Annotated[str, _TEXT]
    title: Annotated[str, _TITLE] = ""
    log_type: Annotated[LogType, _TYPE] = "implementation"
    metadata: Annotated[
        Mapping[str, Any], Meta(description='metadata such as {"author": "Ada", "tags": ["cache"]}')
    ] = {}


class LogChange(Record, frozen=True):
    """Changes of a log. None keeps a value. `metadata` replaces the given metadata."""

    content: Annotated[str | None, _TEXT] = None
    title: Annotated[str | None, _TITLE] = None
    log_type: Annotated[LogType | None, _TYPE] = None
    metadata: NewMetadata = None


def add_log(ws: Workspace, new: NewLog) -> WriteResult[Document]:
    """Store a log. A missing project and a missing collection are created.

    Raises `DocumentExists` if the project has a log of that issue and type, `UsageInvalid`,
    `CollectionExists`, `ContentRefused`, `EmbeddingError`, and the errors of `write_rows`.
    """
    fields = _check_fields(new)
    content = rows.checked_text(new.content)
    metadata = rows.checked_metadata(new.metadata, TABLE)

    def plan_row(at: At) -> Planned[Document]:
        _require_new_type(ws, at, fields)
        row = rows.new_row(
            ISSUES, _find_free_id(ws, at, fields), title=new.title, content=content, fields=fields, metadata=metadata
        )
        return Planned(rows.write_of(ws, at, row, projects=_list_new_projects(ws, at, new.project_id)), row)

    return writing.write_rows(ws, plan_row, f"log issue {new.project_id}#{new.issue_number}")


def update_log(ws: Workspace, log_id: str, change: LogChange) -> WriteResult[Updated]:
    """Change a log. Nothing is written if it already has these values.

    Raises `DocumentMissing`, `DocumentExists` if the issue has another log of the new type, and the
    errors of `add_log`.
    """
    if change == LogChange():
        raise UsageInvalid(
            "no changes are given.", hint="send content, title, log_type or metadata", parameter="content"
        )
    if change.content is not None:
        rows.checked_text(change.content)
    fields = {} if change.log_type is None else {"log_type": _check_type(change.log_type)}
    metadata = None if change.metadata is None else rows.checked_metadata(change.metadata, TABLE)

    def plan_row(at: At) -> Planned[Updated]:
        before = rows.find_row(ws, at, TABLE, log_id)
        after = rows.changed_row(before, title=change.title, content=change.content, fields=fields, metadata=metadata)
        if after is before:
            return Planned(None, Updated(before, changed=False))
        if read_stated(after) != read_stated(before):
            _require_new_type(ws, at, read_stated(after))
        return Planned(rows.write_of(ws, at, after), Updated(after, changed=True))

    return writing.write_rows(ws, plan_row, f"change issue log {log_id}")


class LogOfIssue(NamedTuple):
    """A log of a known issue."""

    log_type: str
    log_id: str


def list_logs_of_issue(ws: Workspace, at: At, project_id: str, issue_number: int) -> Iterator[LogOfIssue]:
    """Yield each log of an issue."""
    name = logical.collection_name(ISSUES, project_id)
    for header in ws.engine.read_headers(at, collection=name):
        values = parse_metadata(header)
        if (values.get("project_id"), values.get("issue_number")) == (project_id, issue_number):
            yield LogOfIssue(values["log_type"], header.doc_id)


def _require_new_type(ws: Workspace, at: At, fields: Mapping[str, Any]) -> None:
    """Raise `DocumentExists` if the project has a log of that issue and type."""
    project, number, kind = (fields[key] for key in logical.METADATA_KEYS[TABLE])
    for log in list_logs_of_issue(ws, at, project, number):
        if log.log_type == kind:
            raise DocumentExists(
                f"issue {number} of project {project!r} already has a log of type {kind}.",
                hint=f"run 'vmrag issue edit {quoted(f'{project}#{number}:{kind}')}'",
                log_id=log.log_id,
                table=TABLE,
            )


def _check_fields(new: NewLog) -> dict[str, Any]:
    rows.checked_name("project_id", new.project_id)
    if not 0 <= new.issue_number <= _MAX_NUMBER:
        raise UsageInvalid(
            f"issue_number is from 0 to {_MAX_NUMBER}, not {new.issue_number}.",
            parameter="issue_number",
            value=new.issue_number,
            minimum=0,
            maximum=_MAX_NUMBER,
        )
    return {"project_id": new.project_id, "issue_number": new.issue_number, "log_type": _check_type(new.log_type)}


def _check_type(text: str) -> str:
    if text not in LOG_TYPES:
        raise UsageInvalid(
            f"log_type is one of {', '.join(LOG_TYPES)}, not {text!r}.", parameter="log_type", value=text
        )
    return text


def _find_free_id(ws: Workspace, at: At, fields: Mapping[str, Any]) -> str:
    """Return the first free id of the log. A log keeps its id if its type changes."""
    key_values = [fields[key] for key in logical.METADATA_KEYS[TABLE]]
    for number in itertools.count():
        log_id = str(uuid.uuid5(NAMESPACE, encode_canonical_json([*key_values, *([number] if number else [])])))
        if rows.by_id(ws, at, TABLE, log_id) is None:
            return log_id
    raise AssertionError  # there is no last number


def _list_new_projects(ws: Workspace, at: At, project_id: str) -> tuple[Project, ...]:
    if any(ws.engine.read_projects(at, ids=[project_id])):
        return ()
    return (Project(project_id, name=project_id, created_at=clock.now()),)
