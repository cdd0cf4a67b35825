"""Issue logs: what was found out about an issue of a project, and what was done.

A project has one log of each type for an issue. Its id is made of these three, so that two branches
that add the same log get one document, and merge it by line.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

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
"""Of the ids of issue logs. It never changes, because two branches meet in equal ids."""

TABLE: Final = "issue_logs"

_MOST = 2**31 - 1
"""The largest number that every engine's column holds."""


_TEXT = Meta(description="text of the log", max_length=LONGEST_TEXT)
_TITLE = Meta(description="title of the log")
_TYPE = Meta(description="type of the log", extra={"aliases": ("type",)})


class NewLog(Record, frozen=True):
    """Without a title, the text's first heading or its beginning is one."""

    project_id: Annotated[str, Meta(description="project such as shop", extra={"aliases": ("project",)})]
    issue_number: Annotated[int, Meta(description="number of the issue", ge=0, extra={"aliases": ("issue",)})]
    content: Annotated[str, _TEXT]
    title: Annotated[str, _TITLE] = ""
    log_type: Annotated[LogType, _TYPE] = "implementation"
    metadata: Annotated[
        Mapping[str, Any], Meta(description='metadata such as {"author": "Ada", "tags": ["cache"]}')
    ] = {}


class LogChange(Record, frozen=True):
    """What becomes of a log; None leaves that part alone. `metadata` replaces what was given."""

    content: Annotated[str | None, _TEXT] = None
    title: Annotated[str | None, _TITLE] = None
    log_type: Annotated[LogType | None, _TYPE] = None
    metadata: NewMetadata = None


def add_log(ws: Workspace, new: NewLog) -> WriteResult[Document]:
    """Store a log; its project and its collection are made if they are not there.

    Raises `DocumentExists` where the project has a log of that issue and type, `UsageInvalid`,
    `CollectionExists`, `ContentRefused`, `Embedding` errors, and as `writing.write`.
    """
    fields = _checked_fields(new)
    content, metadata = rows.checked_text(new.content), rows.checked_metadata(new.metadata, TABLE)

    def plan(at: At) -> Planned[Document]:
        _refuse_second(ws, at, fields)
        row = rows.new_row(
            ISSUES, _new_id(ws, at, fields), title=new.title, content=content, fields=fields, metadata=metadata
        )
        return Planned(rows.write_of(ws, at, row, projects=_new_projects(ws, at, new.project_id)), row)

    return writing.write_rows(ws, plan, f"log issue {new.project_id}#{new.issue_number}")


def update_log(ws: Workspace, log_id: str, change: LogChange) -> WriteResult[Updated]:
    """Change a log. One that is like that already is left alone.

    Raises `DocumentMissing`, `DocumentExists` for a type that another log of the issue has, and as
    `add`.
    """
    if change == LogChange():
        raise UsageInvalid(
            "Nothing says what is to change.", hint="Give content, title, log_type or metadata.", parameter="content"
        )
    if change.content is not None:
        rows.checked_text(change.content)
    fields = {} if change.log_type is None else {"log_type": _checked_type(change.log_type)}
    metadata = None if change.metadata is None else rows.checked_metadata(change.metadata, TABLE)

    def plan(at: At) -> Planned[Updated]:
        before = rows.find_row(ws, at, TABLE, log_id)
        after = rows.changed_row(before, title=change.title, content=change.content, fields=fields, metadata=metadata)
        if after is before:
            return Planned(None, Updated(before, changed=False))
        if read_stated(after) != read_stated(before):
            _refuse_second(ws, at, read_stated(after))
        return Planned(rows.write_of(ws, at, after), Updated(after, changed=True))

    return writing.write_rows(ws, plan, f"change issue log {log_id}")


def of_issue(ws: Workspace, at: At, project_id: str, issue_number: int) -> Iterator[tuple[str, str, str]]:
    """(log type, id, title) of each log of an issue."""
    name = logical.collection_name(ISSUES, project_id)
    for header in ws.engine.read_headers(at, collection=name):
        values = parse_metadata(header)
        if (values.get("project_id"), values.get("issue_number")) == (project_id, issue_number):
            yield values["log_type"], header.doc_id, header.title


def _refuse_second(ws: Workspace, at: At, fields: Mapping[str, Any]) -> None:
    """Raise `DocumentExists` if the project has a log of that issue and type."""
    project, number, kind = (fields[key] for key in logical.METADATA_KEYS[TABLE])
    for found, log_id, _ in of_issue(ws, at, project, number):
        if found == kind:
            raise DocumentExists(
                f"Project {project!r} has a log of type {kind} for issue {number} already.",
                hint=f"vmrag issue edit {quoted(f'{project}#{number}:{kind}')}",
                log_id=log_id,
                table=TABLE,
            )


def _checked_fields(new: NewLog) -> dict[str, Any]:
    rows.checked_name("project_id", new.project_id)
    if not 0 <= new.issue_number <= _MOST:
        raise UsageInvalid(
            f"issue_number is from 0 to {_MOST}, not {new.issue_number}.",
            parameter="issue_number",
            value=new.issue_number,
            minimum=0,
            maximum=_MOST,
        )
    return {"project_id": new.project_id, "issue_number": new.issue_number, "log_type": _checked_type(new.log_type)}


def _checked_type(text: str) -> str:
    if text not in LOG_TYPES:
        raise UsageInvalid(
            f"log_type is one of {', '.join(LOG_TYPES)}, not {text!r}.", parameter="log_type", value=text
        )
    return text


def _new_id(ws: Workspace, at: At, fields: Mapping[str, Any]) -> str:
    """The first id of the log that no other one has: one whose type was changed keeps its own."""
    named = [fields[key] for key in logical.METADATA_KEYS[TABLE]]
    for number in itertools.count():
        log_id = str(uuid.uuid5(NAMESPACE, encode_canonical_json([*named, *([number] if number else [])])))
        if rows.by_id(ws, at, TABLE, log_id) is None:
            return log_id
    raise AssertionError  # there is no last number


def _new_projects(ws: Workspace, at: At, project_id: str) -> tuple[Project, ...]:
    if any(ws.engine.read_projects(at, ids=[project_id])):
        return ()
    return (Project(project_id, name=project_id, created_at=clock.now()),)
