"""Issue logs and documents about tools in the form that commands and tools show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta

from vmrag_link.engines.logical import METADATA_KEYS
from vmrag_link.models import Document, Record, parse_metadata
from vmrag_link.workspace.documents.writing import WriteResult

LogType = Literal["investigation", "implementation", "resolution", "postmortem"]
LOG_TYPES: tuple[str, ...] = get_args(LogType)

NewMetadata = Annotated[Mapping[str, Any] | None, Meta(description="metadata that replaces the old metadata")]

MAX_EXCERPT_CHARS = 200
"""Maximum number of characters of a text in a list."""


class LogFields(Record, frozen=True):
    """An issue log without its text. `metadata` is the given metadata.

    `log_type` is one of `LOG_TYPES` and `issue_number` is not negative, unless another program
    wrote the row.
    """

    log_id: str
    project_id: str
    issue_number: int
    title: str
    content_hash: str
    log_type: str
    created_at: str
    updated_at: str
    metadata: dict[str, Any]


class IssueLog(LogFields, frozen=True):
    content: str


class ListedLog(LogFields, frozen=True):
    """A log in a list. `excerpt` is the begin of its text."""

    excerpt: str


class UpdatedLog(LogFields, frozen=True):
    """A changed log.

    If `changed` is false, it already had these values, and nothing was written.
    """

    changed: bool
    chunks_created: int


class AddedLog(Record, frozen=True):
    """A new log. `log_id` is the same on every branch that adds this log."""

    log_id: str
    content_hash: str
    collection: str
    chunks_created: int


class DocFields(Record, frozen=True):
    """A document about a tool without its text. `metadata` is the given metadata."""

    doc_id: str
    category: str
    tool_name: str
    tool_version: str
    title: str
    content_hash: str
    created_at: str
    updated_at: str
    metadata: dict[str, Any]


class KnowledgeDoc(DocFields, frozen=True):
    content: str


class ListedDoc(DocFields, frozen=True):
    """A document in a list. `excerpt` is the begin of its text."""

    excerpt: str


class UpdatedDoc(DocFields, frozen=True):
    """A changed document.

    If `changed` is false, it already had these values, and nothing was written.
    """

    changed: bool
    chunks_created: int


class AddedDoc(Record, frozen=True):
    doc_id: str
    content_hash: str
    collection: str
    chunks_created: int


class Updated(Record, frozen=True):
    """The row after an update, and whether it differs from the row before."""

    document: Document
    changed: bool


def log_fields(document: Document) -> dict[str, Any]:
    """Return the values of `LogFields`."""
    return {"log_id": document.doc_id, **_list_fields(document)}


def doc_fields(document: Document) -> dict[str, Any]:
    """Return the values of `DocFields`."""
    return {"doc_id": document.doc_id, **_list_fields(document)}


def cut_excerpt(document: Document) -> str:
    return document.content[:MAX_EXCERPT_CHARS]


def added_log(result: WriteResult[Document]) -> AddedLog:
    row = result.report
    return AddedLog(row.doc_id, row.content_hash, row.collection, result.chunks)


def added_doc(result: WriteResult[Document]) -> AddedDoc:
    row = result.report
    return AddedDoc(row.doc_id, row.content_hash, row.collection, result.chunks)


def updated_log(result: WriteResult[Updated]) -> UpdatedLog:
    return UpdatedLog(**log_fields(result.report.document), changed=result.report.changed, chunks_created=result.chunks)


def updated_doc(result: WriteResult[Updated]) -> UpdatedDoc:
    return UpdatedDoc(**doc_fields(result.report.document), changed=result.report.changed, chunks_created=result.chunks)


def read_stated(document: Document) -> dict[str, Any]:
    """Return the columns of the row that are keys of the document's metadata."""
    values = parse_metadata(document)
    return {key: values[key] for key in METADATA_KEYS[document.table]}


def given_metadata(document: Document) -> dict[str, Any]:
    """Return the metadata without the columns of the row."""
    values = parse_metadata(document)
    return {key: value for key, value in values.items() if key not in METADATA_KEYS[document.table]}


def _list_fields(document: Document) -> dict[str, Any]:
    shared = ("title", "content_hash", "created_at", "updated_at")
    return {
        **read_stated(document),
        **{name: getattr(document, name) for name in shared},
        "metadata": given_metadata(document),
    }
