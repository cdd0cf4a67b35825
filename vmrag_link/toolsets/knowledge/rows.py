"""The stored rows of issue logs and documents about tools: their fields, collections and ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from vmrag_link import clock
from vmrag_link.documents.import_base import find_id_problem
from vmrag_link.engines import logical
from vmrag_link.engines.base import Write
from vmrag_link.engines.tables import LOGICAL_TABLES
from vmrag_link.errors import CollectionExists, ContentRefused, DocumentMissing, UsageInvalid
from vmrag_link.index.metadata import parse_chunk_id
from vmrag_link.models import (
    TABLE_OF_KIND,
    At,
    Chunking,
    Collection,
    Document,
    DocumentTable,
    Project,
    content_hash,
    encode_canonical_json,
)
from vmrag_link.toolsets.knowledge.records import given_metadata, read_stated
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import collections
from vmrag_link.workspace.documents.document_selection import chunks_of
from vmrag_link.workspace.documents.drafts import storable_metadata, title_of

CHUNKING = Chunking(size=512, overlap=50)

TABLE_WORDS = {"issue_logs": "issue log", "knowledge_docs": "document about a tool"}
"""The word for a row, by table."""

_KINDS = {table: kind for kind, table in TABLE_OF_KIND.items()}
_COMMANDS = {"issue_logs": "run 'vmrag issue list' to list them", "knowledge_docs": "run 'vmrag doc list' to list them"}


def checked_name(parameter: str, value: str) -> str:
    """Return the name of a project or a tool. Raises `UsageInvalid` for an invalid name."""
    problem = find_id_problem(value)
    if not value.strip() or value != value.strip():
        problem = "is empty, or begins or ends with a blank"
    if problem:
        raise UsageInvalid(f"{parameter} {problem}.", hint="use a name, such as my-project", parameter=parameter)
    return value


def checked_text(value: str) -> str:
    """Return a text. Raises `UsageInvalid` for an invalid text."""
    if not value.strip():
        raise UsageInvalid("the text is empty.", hint="send the text of the document", parameter="content")
    return value


def checked_metadata(given: Mapping[str, Any], table: DocumentTable) -> dict[str, Any]:
    """Return metadata. Raises `ContentRefused` for a key of the table's columns or of the index."""
    columns = next(logical_table.columns for logical_table in LOGICAL_TABLES if logical_table.name == table)
    for key in given:
        if key in columns:
            raise ContentRefused(
                f"{key!r} is a field of each {TABLE_WORDS[table]}, and no key of its metadata.",
                hint="leave it out of the metadata",
                key=key,
            )
    return storable_metadata(given, TABLE_WORDS[table])


def new_row(
    kind: str, doc_id: str, *, title: str, content: str, fields: Mapping[str, Any], metadata: Mapping[str, Any]
) -> Document:
    """Return a new row. `fields` are the columns that are keys of the document's metadata."""
    now = clock.now()
    return Document(
        collection=logical.collection_name(kind, fields[logical.IMPLIED_BY[kind]]),
        doc_id=doc_id,
        title=_format_title(title) or title_of(content, {}),
        content=content,
        content_hash=content_hash(content),
        metadata=encode_canonical_json({**metadata, **fields}),
        created_at=now,
        updated_at=now,
        table=TABLE_OF_KIND[kind],
    )


def changed_row(
    before: Document,
    *,
    title: str | None,
    content: str | None,
    fields: Mapping[str, Any],
    metadata: Mapping[str, Any] | None,
) -> Document:
    """Return the row with the new values, or the row itself if nothing differs.

    A title that was derived from the old text is derived from the new text.
    """
    kind = _KINDS[before.table]
    columns = {**read_stated(before), **fields}
    text = before.content if content is None else content
    derived = before.title == title_of(before.content, {})
    after = msgspec.structs.replace(
        before,
        collection=logical.collection_name(kind, columns[logical.IMPLIED_BY[kind]]),
        title=_format_title(title or "") or (title_of(text, {}) if derived else before.title),
        content=text,
        content_hash=content_hash(text),
        metadata=encode_canonical_json((given_metadata(before) if metadata is None else dict(metadata)) | columns),
    )
    return before if after == before else msgspec.structs.replace(after, updated_at=clock.now())


def find_row(ws: Workspace, at: At, table: DocumentTable, name: str) -> Document:
    """Return the row with this id, or else the row of a chunk with this name.

    Raises `DocumentMissing`.
    """
    row = by_id(ws, at, table, name)
    chunk = None if row else parse_chunk_id(name)
    if chunk:
        doc_id, number = chunk
        row = by_id(ws, at, table, doc_id)
        row = row if row and number < _count_chunks(ws, at, row) else None
    if row is None:
        raise DocumentMissing(
            f"no such {TABLE_WORDS[table]}: {name!r}.", hint=_COMMANDS[table], doc_id=name, table=table
        )
    return row


def by_id(ws: Workspace, at: At, table: DocumentTable, doc_id: str) -> Document | None:
    return next(ws.engine.read_documents(at, ids=[doc_id], table=table), None)


def _count_chunks(ws: Workspace, at: At, row: Document) -> int:
    collections_of_row = [
        collection for collection in ws.engine.list_collections(at) if collection.name == row.collection
    ]
    return sum(len(chunks_of(ws, collection, row)) for collection in collections_of_row)


def _format_title(text: str) -> str:
    """Return a title in one line."""
    return " ".join(text.split())


def write_of(ws: Workspace, at: At, row: Document, *, projects: tuple[Project, ...] = ()) -> Write:
    """Return the write that stores a row, and creates its collection if it is missing.

    Raises `CollectionExists` for another kind of collection, and `EmbeddingError`.
    """
    collection, new = _find_collection(ws, at, row)
    ws.create_indexer().embed_documents(collection, [row])
    return Write(put_collections=[collection] if new else [], put_documents=[row], put_projects=projects)


def _find_collection(ws: Workspace, at: At, row: Document) -> tuple[Collection, bool]:
    """Return the collection of a row, and whether it must be created."""
    kind = _KINDS[row.table]
    existing = collections.find_exact(ws, at, row.collection)
    if existing is None:
        key = logical.IMPLIED_BY[kind]
        metadata = encode_canonical_json({key: read_stated(row)[key]})
        model = ws.models.load_named(ws.config.embedding.model)
        return collections.make_collection(row.collection, model, CHUNKING, kind=kind, metadata=metadata), True
    if existing.kind != kind:
        raise CollectionExists(
            f"{row.collection!r} is a collection of other documents already, where this {TABLE_WORDS[row.table]} belongs.",
            hint=f"call chroma_modify_collection to rename that collection, or use another {logical.IMPLIED_BY[kind]}",
            collection_name=row.collection,
            kind=existing.kind,
        )
    return existing, False
