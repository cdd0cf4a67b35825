"""What is stored of an issue log or a document about a tool: checked fields, the collection that it
implies, and one row by its id.
"""

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

WHAT = {"issue_logs": "issue log", "knowledge_docs": "document about a tool"}
"""By table, what one of its rows is called."""

_KINDS = {table: kind for kind, table in TABLE_OF_KIND.items()}
_COMMANDS = {"issue_logs": "vmrag issue list", "knowledge_docs": "vmrag doc list"}


# -- fields


def checked_name(parameter: str, value: str) -> str:
    """What names a project or a tool. Raises `UsageInvalid`."""
    problem = find_id_problem(value)
    if not value.strip() or value != value.strip():
        problem = "is empty, or begins or ends with a blank"
    if problem:
        raise UsageInvalid(f"{parameter} {problem}.", hint="For example: my-project", parameter=parameter)
    return value


def checked_text(value: str) -> str:
    """Raises `UsageInvalid`."""
    if not value.strip():
        raise UsageInvalid("There is no text.", hint="Say what should be known later.", parameter="content")
    return value


def checked_metadata(given: Mapping[str, Any], table: DocumentTable) -> dict[str, Any]:
    """Raises `ContentRefused` for a key that is a column of the table, or the index's own."""
    columns = next(each.columns for each in LOGICAL_TABLES if each.name == table)
    for key in given:
        if key in columns:
            raise ContentRefused(
                f"{key!r} is a field of each {WHAT[table]}, and no key of its metadata.",
                hint="Leave it out of the metadata.",
                key=key,
            )
    return storable_metadata(given, WHAT[table])


# -- rows


def new_row(
    kind: str, doc_id: str, *, title: str, content: str, fields: Mapping[str, Any], metadata: Mapping[str, Any]
) -> Document:
    """`fields`: the columns that are keys of the document's metadata."""
    now = clock.now()
    return Document(
        collection=logical.collection_name(kind, fields[logical.IMPLIED_BY[kind]]),
        doc_id=doc_id,
        title=_title(title) or title_of(content, {}),
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
    """The row with what is given; itself, with its time, where nothing differs.

    A title that was derived from the replaced text is derived again.
    """
    kind = _KINDS[before.table]
    columns = {**read_stated(before), **fields}
    text = before.content if content is None else content
    derived = before.title == title_of(before.content, {})
    after = msgspec.structs.replace(
        before,
        collection=logical.collection_name(kind, columns[logical.IMPLIED_BY[kind]]),
        title=_title(title or "") or (title_of(text, {}) if derived else before.title),
        content=text,
        content_hash=content_hash(text),
        metadata=encode_canonical_json((given_metadata(before) if metadata is None else dict(metadata)) | columns),
    )
    return before if after == before else msgspec.structs.replace(after, updated_at=clock.now())


def find_row(ws: Workspace, at: At, table: DocumentTable, name: str) -> Document:
    """The row of this id, else the one that a chunk of this name belongs to.

    Raises `DocumentMissing`.
    """
    found = by_id(ws, at, table, name)
    chunk = None if found else parse_chunk_id(name)
    if chunk:
        doc_id, number = chunk
        found = by_id(ws, at, table, doc_id)
        found = found if found and number < _chunks(ws, at, found) else None
    if found is None:
        raise DocumentMissing(f"There is no {WHAT[table]} {name!r}.", hint=_COMMANDS[table], doc_id=name, table=table)
    return found


def by_id(ws: Workspace, at: At, table: DocumentTable, doc_id: str) -> Document | None:
    return next(ws.engine.read_documents(at, ids=[doc_id], table=table), None)


def _chunks(ws: Workspace, at: At, row: Document) -> int:
    there = [collection for collection in ws.engine.list_collections(at) if collection.name == row.collection]
    return sum(len(chunks_of(ws, each, row)) for each in there)


def _title(text: str) -> str:
    """In one line."""
    return " ".join(text.split())


# -- collections


def write_of(ws: Workspace, at: At, row: Document, *, projects: tuple[Project, ...] = ()) -> Write:
    """What stores a row, with the collection that it implies, where that has to be made.

    Raises `CollectionExists` for one of another kind, and an `Embedding` error for what cannot be
    embedded.
    """
    collection, new = _collection(ws, at, row)
    ws.create_indexer().embed_documents(collection, [row])
    return Write(put_collections=[collection] if new else [], put_documents=[row], put_projects=projects)


def _collection(ws: Workspace, at: At, row: Document) -> tuple[Collection, bool]:
    """The collection that a row implies, and whether it has to be made."""
    kind = _KINDS[row.table]
    found = collections.find_exact(ws, at, row.collection)
    if found is None:
        key = logical.IMPLIED_BY[kind]
        metadata = encode_canonical_json({key: read_stated(row)[key]})
        model = ws.models.load_named(ws.config.embedding.model)
        return collections.make_collection(row.collection, model, CHUNKING, kind=kind, metadata=metadata), True
    if found.kind != kind:
        raise CollectionExists(
            f"{row.collection!r} is a collection of other documents already, where this {WHAT[row.table]} belongs.",
            hint="Give that collection another name, with the tool chroma_modify_collection; or take another "
            f"{logical.IMPLIED_BY[kind]}.",
            collection_name=row.collection,
            kind=found.kind,
        )
    return found, False
