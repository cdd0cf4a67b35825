"""Show or delete one document by its id, in any table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vmrag_link.documents import import_base
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
from vmrag_link.workspace.follow.provenance import AnswerOrigin, add_sources, answer_from_files, find_origin

if TYPE_CHECKING:
    from vmrag_link.workspace import ReadableStore

_Match = tuple[Collection, Document]


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
    doc_id: str
    collection: str
    chunks: int
    table: DocumentTable


def get_document(ws: Workspace, doc_id: str, table: str | None) -> tuple[WholeDocument, AnswerOrigin]:
    """Return the document with this id, or the document that has a chunk with this id.

    Files of sources are also documents. Raises `DocumentMissing`, `TableMissing`, and
    `UsageInvalid` if several documents have the id.
    """

    def find_match() -> tuple[WholeDocument, AnswerOrigin]:
        origin = find_origin(ws)
        files = _find_in_files(ws, doc_id, table)
        if not files:
            return _form_document(ws, *_require_one(_find_stored(ws, origin.at, doc_id, table), doc_id, table)), origin
        match = _require_one([*_find_stored(ws, origin.at, doc_id, table), *files], doc_id, table)
        return _form_document(ws, *match), add_sources(origin, ws.files.opened) if match in files else origin

    try:
        return read_consistently(ws, find_match, index=False)
    except NO_DOCUMENTS as error:
        files = _find_in_files(ws, doc_id, table)
        if not (files or (ws.stores_nothing and ws.sources.configured and table in (None, DOCUMENTS))):
            raise
        return _form_document(ws, *_require_one(files, doc_id, table)), find_origin(answer_from_files(ws, error))


def _form_document(ws: Workspace, collection: Collection, document: Document) -> WholeDocument:
    in_documents = document.table == DOCUMENTS
    source = named_files.shown_source(ws, document) if in_documents else f"{document.table}/{document.doc_id}"
    return WholeDocument(
        doc_id=document.doc_id,
        source=source,
        title=document.title,
        library=collection.name,
        content=document.content,
        chunk_count=len(chunks_of(ws, collection, document)),
        metadata=import_base.read_visible_metadata(document),
        table=document.table,
    )


def delete_document(ws: Workspace, doc_id: str, table: str | None) -> WriteResult[DeletedDocument]:
    """Delete the document with this id.

    Raises `SourceReadOnly` for a file of a source without `write`, `DocumentMissing`,
    `TableMissing`, `UsageInvalid` if several documents have the id, and the errors of
    `writing.write_rows`.
    """
    notes = [note for note in _find_in_files(ws, doc_id, table) if ws.sources.find_writable(note[0].name)]
    if notes and not (ws.is_initialized and _find_stored(ws, ws.locate_documents(), doc_id, table)):
        collection, document = _require_one(notes, doc_id, table)
        chunks = len(chunks_of(ws, collection, document))
        deleted = DeletedDocument(document.doc_id, collection.name, chunks, document.table)
        if source := ws.sources.find_writable(collection.name):
            written = note_writes.remove_notes(ws, source, [document.doc_id])
            return WriteResult(deleted, None, written.pending, notes=written)

    def plan_deletion(at: At) -> Planned[DeletedDocument]:
        stored = _find_stored(ws, at, doc_id, table)
        if not stored and (files := _find_in_files(ws, doc_id, table)):
            of, file = files[0]
            raise source_read_only(of.name, file.source)
        collection, document = _require_one(stored, doc_id, table)
        deleted = DeletedDocument(
            document.doc_id, collection.name, len(chunks_of(ws, collection, document)), document.table
        )
        return Planned(Write(remove_documents=[document.key]), deleted)

    return writing.write_rows(ws, plan_deletion, f"delete document {doc_id}")


def _find_stored(ws: Workspace, at: At, name: str, table: str | None) -> list[_Match]:
    """Return the stored documents that the id may mean. Raises `TableMissing`."""
    if table is not None:
        collections.require_table(table)
    return [match for match in _find_in_collections(ws, at, name) if table in (None, match[1].table)]


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
    preferred = (
        [match for match in matches if match[0].kind == LIBRARY]
        if len({document.table for _, document in matches}) == 1
        else []
    )
    chosen = preferred if len(preferred) == 1 else matches
    if not chosen:
        raise DocumentMissing(
            f"no such document {name!r}" + (f" in {table}." if table else "."),
            hint="run 'vmrag list' to list the collections",
            doc_id=name,
            table=table,
        )
    if len(chosen) > 1:
        raise _ambiguous_id(name, chosen)
    return chosen[0]


def _find_in_collections(ws: ReadableStore, at: At, name: str) -> list[_Match]:
    """Return the document of each collection with this id, otherwise the one that has a chunk with
    it.
    """
    return [
        (collection, document)
        for collection in ws.engine.list_collections(at)
        if (document := _find_in_collection(ws, at, collection, name))
    ]


def _find_in_collection(ws: ReadableStore, at: At, collection: Collection, name: str) -> Document | None:
    document = ws.engine.find_document(at, collection.name, name)
    chunk = parse_chunk_id(name)
    if document or chunk is None:
        return document
    doc_id, number = chunk
    document = ws.engine.find_document(at, collection.name, doc_id)
    return document if document and number < len(chunks_of(ws, collection, document)) else None


def _ambiguous_id(name: str, matches: list[_Match]) -> UsageInvalid:
    collections = [collection.name for collection, _ in matches]
    places = sorted({document.table for _, document in matches})
    several = len(places) > 1
    return UsageInvalid(
        f"several documents have the id {name!r}, in {enumerated(places if several else collections)}.",
        hint=f"add 'table={places[0]}' to choose a table"
        if several
        else "use chroma_get_documents or chroma_delete_documents with the collection",
        parameter="doc_id",
        tables=places,
        collections=collections,
    )
