"""Show or delete one document by its id, for tools.

An id may be that of a stored document, of a file of a source, or of a chunk of one of these. A
table is `documents` or one of those of toolsets, such as `chats`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from vmrag_link.documents import library_origin
from vmrag_link.engines.base import Write
from vmrag_link.errors import NO_DOCUMENTS, DocumentMissing, UsageInvalid, enumerated
from vmrag_link.index.metadata import parse_chunk_id
from vmrag_link.models import LIBRARY, At, Collection, Document, DocumentTable, Record
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import collections, named_files, note_writes, writing
from vmrag_link.workspace.documents.collections import DOCUMENTS, source_read_only
from vmrag_link.workspace.documents.document_selection import chunks_of
from vmrag_link.workspace.documents.writing import Planned, WriteResult
from vmrag_link.workspace.follow.follow_pin import read_consistently
from vmrag_link.workspace.follow.provenance import AnswerOrigin, add_sources, find_origin
from vmrag_link.workspace.follow.search_scope import answer_from_files

if TYPE_CHECKING:
    from vmrag_link.workspace import ReadableStore


class _Match(NamedTuple):
    """A document that an id may mean."""

    collection: Collection
    document: Document


class WholeDocument(Record, frozen=True):
    """A document with its text."""

    doc_id: str
    source: str
    """The source as `named_files.shown_source` returns it. For a document without a source: table
    and id.
    """
    title: str
    library: str
    """The name of the collection."""
    content: str
    chunk_count: int
    metadata: dict[str, Any]
    table: DocumentTable


class DeletedDocument(Record, frozen=True):
    """A document that was deleted, and the number of its chunks."""

    doc_id: str
    collection: str
    chunks: int
    table: DocumentTable


def get_document(ws: Workspace, doc_id: str, table: str | None) -> tuple[WholeDocument, AnswerOrigin]:
    """Return the document with this id, or the document that has a chunk with this id.

    Files of sources are also documents. Raises `DocumentMissing`, `TableMissing`, and
    `UsageInvalid` if several documents have the id.
    """

    def read_document() -> tuple[WholeDocument, AnswerOrigin]:
        origin = find_origin(ws)
        files = _find_in_files(ws, doc_id, table)
        match = _require_one([*_find_stored(ws, origin.at, doc_id, table), *files], doc_id, table)
        if match in files:
            origin = add_sources(origin, ws.files.opened)
        return _form_document(ws, match), origin

    try:
        return read_consistently(ws, read_document, index=False)
    except NO_DOCUMENTS as error:
        files = _find_in_files(ws, doc_id, table)
        only_files_answer = ws.stores_nothing and ws.sources.configured and table in (None, DOCUMENTS)
        if not files and not only_files_answer:
            raise
        match = _require_one(files, doc_id, table)
        return _form_document(ws, match), find_origin(answer_from_files(ws, error))


def delete_document(ws: Workspace, doc_id: str, table: str | None) -> WriteResult[DeletedDocument]:
    """Delete the document with this id.

    Raises `SourceReadOnly` for a file of a source without `write`, `DocumentMissing`,
    `TableMissing`, `UsageInvalid` if several documents have the id, and the errors of
    `writing.write_rows`.
    """
    notes = [match for match in _find_in_files(ws, doc_id, table) if ws.sources.find_writable(match.collection.name)]
    if notes and not (ws.is_initialized and _find_stored(ws, ws.locate_documents(), doc_id, table)):
        match = _require_one(notes, doc_id, table)
        deleted = _form_deleted(ws, match)
        source = ws.sources.find_writable(match.collection.name)
        if source:
            written = note_writes.remove_notes(ws, source, [match.document.doc_id])
            return WriteResult(deleted, None, written.pending, notes=written)

    def plan_deletion(at: At) -> Planned[DeletedDocument]:
        stored = _find_stored(ws, at, doc_id, table)
        files = [] if stored else _find_in_files(ws, doc_id, table)
        if files:
            raise source_read_only(files[0].collection.name, files[0].document.source)
        match = _require_one(stored, doc_id, table)
        return Planned(Write(remove_documents=[match.document.key]), _form_deleted(ws, match))

    return writing.write_rows(ws, plan_deletion, f"delete document {doc_id}")


def _form_document(ws: Workspace, match: _Match) -> WholeDocument:
    document = match.document
    source = f"{document.table}/{document.doc_id}"
    if document.table == DOCUMENTS:
        source = named_files.shown_source(ws, document)
    return WholeDocument(
        doc_id=document.doc_id,
        source=source,
        title=document.title,
        library=match.collection.name,
        content=document.content,
        chunk_count=len(chunks_of(ws, match.collection, document)),
        metadata=library_origin.read_visible_metadata(document),
        table=document.table,
    )


def _form_deleted(ws: Workspace, match: _Match) -> DeletedDocument:
    return DeletedDocument(
        doc_id=match.document.doc_id,
        collection=match.collection.name,
        chunks=len(chunks_of(ws, match.collection, match.document)),
        table=match.document.table,
    )


def _find_stored(ws: Workspace, at: At, name: str, table: str | None) -> list[_Match]:
    """Return the stored documents that the id may mean. Raises `TableMissing`."""
    if table is not None:
        collections.require_table(table)
    return [match for match in _find_in_collections(ws, at, name) if table in (None, match.document.table)]


def _find_in_files(ws: Workspace, name: str, table: str | None) -> list[_Match]:
    """Return the files of sources that the id may mean."""
    if table not in (None, DOCUMENTS) or not ws.sources.configured:
        return []
    ws.files.refresh()
    return _find_in_collections(ws.files, "", name)


def _require_one(matches: list[_Match], name: str, table: str | None) -> _Match:
    """Return the only match. A document of a library has priority over others of the same table.

    Raises `DocumentMissing`, and `UsageInvalid` if several documents match.
    """
    is_one_table = len({match.document.table for match in matches}) == 1
    libraries = [match for match in matches if match.collection.kind == LIBRARY]
    if is_one_table and len(libraries) == 1:
        return libraries[0]
    if not matches:
        raise DocumentMissing(
            f"no such document {name!r}" + (f" in {table}." if table else "."),
            hint="run 'vmrag list' to list the collections",
            doc_id=name,
            table=table,
        )
    if len(matches) > 1:
        raise _ambiguous_id(name, matches)
    return matches[0]


def _find_in_collections(ws: ReadableStore, at: At, name: str) -> list[_Match]:
    """Return the document of each collection with this id, otherwise the one that has a chunk with
    it.
    """
    matches = []
    for collection in ws.engine.list_collections(at):
        document = _find_in_collection(ws, at, collection, name)
        if document:
            matches.append(_Match(collection, document))
    return matches


def _find_in_collection(ws: ReadableStore, at: At, collection: Collection, name: str) -> Document | None:
    document = ws.engine.find_document(at, collection.name, name)
    chunk = parse_chunk_id(name)
    if document or chunk is None:
        return document
    doc_id, number = chunk
    document = ws.engine.find_document(at, collection.name, doc_id)
    has_chunk = document is not None and number < len(chunks_of(ws, collection, document))
    return document if has_chunk else None


def _ambiguous_id(name: str, matches: list[_Match]) -> UsageInvalid:
    collections = [match.collection.name for match in matches]
    tables: list[str] = sorted({match.document.table for match in matches})
    names = collections
    hint = "use chroma_get_documents or chroma_delete_documents with the collection"
    if len(tables) > 1:
        names = tables
        hint = f"add 'table={tables[0]}' to choose a table"
    return UsageInvalid(
        f"several documents have the id {name!r}, in {enumerated(names)}.",
        hint=hint,
        parameter="doc_id",
        tables=tables,
        collections=collections,
    )
