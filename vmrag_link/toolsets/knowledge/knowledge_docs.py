"""Documents about tools: knowledge of a library, a framework or a program that a project uses."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from msgspec import Meta

from vmrag_link.engines import logical
from vmrag_link.errors import UsageInvalid
from vmrag_link.models import KNOWLEDGE, LONGEST_TEXT, At, Document, Record
from vmrag_link.toolsets.knowledge import rows
from vmrag_link.toolsets.knowledge.records import NewMetadata, Updated, read_stated
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.documents.writing import Planned, WriteResult

TABLE: Final = "knowledge_docs"


_TEXT = Meta(description="text of the document", max_length=LONGEST_TEXT)
_TITLE = Meta(description="title of the document")
_CATEGORY = Meta(description="category such as api or tooling")
_VERSION = Meta(description="version such as 2.1")
_TOOL = Meta(description="tool such as ruff", extra={"aliases": ("tool",)})


class NewDoc(Record, frozen=True):
    tool_name: Annotated[str, _TOOL]
    title: Annotated[str, _TITLE]
    content: Annotated[str, _TEXT]
    category: Annotated[str, _CATEGORY]
    tool_version: Annotated[str, _VERSION] = ""
    metadata: Annotated[Mapping[str, Any], Meta(description='metadata such as {"tags": ["cli"]}')] = {}


class DocChange(Record, frozen=True):
    """Changes of a document. None keeps a value. `metadata` replaces the given metadata."""

    content: Annotated[str | None, _TEXT] = None
    title: Annotated[str | None, _TITLE] = None
    category: Annotated[str | None, _CATEGORY] = None
    tool_name: Annotated[str | None, _TOOL] = None
    tool_version: Annotated[str | None, _VERSION] = None
    metadata: NewMetadata = None


def add_document(ws: Workspace, new: NewDoc) -> WriteResult[Document]:
    """Store a document. A missing collection of the tool is created.

    Documents for two versions of a tool can have the same title. Raises `UsageInvalid`,
    `CollectionExists`, `ContentRefused`, `EmbeddingError`, and the errors of `write_rows`.
    """
    fields = {"category": new.category, "tool_name": new.tool_name, "tool_version": new.tool_version}
    _require_values(fields)
    content, metadata = rows.checked_text(new.content), rows.checked_metadata(new.metadata, TABLE)
    row = rows.new_row(KNOWLEDGE, str(uuid.uuid4()), title=new.title, content=content, fields=fields, metadata=metadata)
    return writing.write_rows(ws, lambda at: Planned(rows.write_of(ws, at, row), row), f"write about {new.tool_name}")


def update_document(ws: Workspace, doc_id: str, change: DocChange) -> WriteResult[Updated]:
    """Change a document. With another tool, it moves to the collection of that tool.

    Nothing is written if it already has these values. Raises `DocumentMissing`, and the errors of
    `add_document`.
    """
    if change == DocChange():
        raise UsageInvalid(
            "no changes are given.",
            hint="pass content, title, category, tool_name, tool_version or metadata",
            parameter="content",
        )
    if change.content is not None:
        rows.checked_text(change.content)
    given = {"category": change.category, "tool_name": change.tool_name, "tool_version": change.tool_version}
    fields = {key: value for key, value in given.items() if value is not None}
    _require_values(fields)
    metadata = None if change.metadata is None else rows.checked_metadata(change.metadata, TABLE)

    def plan_row(at: At) -> Planned[Updated]:
        before = rows.find_row(ws, at, TABLE, doc_id)
        after = rows.changed_row(before, title=change.title, content=change.content, fields=fields, metadata=metadata)
        if after is before:
            return Planned(None, Updated(before, changed=False))
        return Planned(rows.write_of(ws, at, after), Updated(after, changed=True))

    return writing.write_rows(ws, plan_row, f"change document {doc_id}")


def _require_values(fields: Mapping[str, str]) -> None:
    """Raise `UsageInvalid` for an empty value; the version can be empty."""
    for key, value in fields.items():
        if key != "tool_version" or value:
            rows.checked_name(key, value)


def list_about(ws: Workspace, at: At, tool_name: str | None, category: str | None) -> Iterator[Document]:
    """Yield the documents about a tool, or about all tools. Each is read when it is requested."""
    collection = None if tool_name is None else logical.collection_name(KNOWLEDGE, tool_name)
    for document in ws.engine.read_documents(at, collection=collection, table=TABLE):
        if category in (None, read_stated(document)["category"]):
            yield document
