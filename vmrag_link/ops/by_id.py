"""One document by its id, in whatever table it is: shown whole, or deleted."""

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

Found = tuple[Collection, Document]


class WholeDocument(Record, frozen=True):
    """`source`: as `named_files.shown_source`; of what came from nowhere, table and id. `library`:
    the collection.
    """

    doc_id: str
    source: str
    title: str
    library: str
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
    """The document with this id, or that a chunk of this name belongs to; files of sources are
    documents, too. Raises as `_one`.
    """

    def look() -> tuple[WholeDocument, AnswerOrigin]:
        here = find_origin(ws)
        files = _files(ws, doc_id, table)
        if not files:
            return _whole(ws, *_one(_candidates(ws, here.at, doc_id, table), doc_id, table)), here
        found = _one([*_candidates(ws, here.at, doc_id, table), *files], doc_id, table)
        return _whole(ws, *found), add_sources(here, ws.files.opened) if found in files else here

    try:
        return read_consistently(ws, look, index=False)
    except NO_DOCUMENTS as why:
        files = _files(ws, doc_id, table)
        if not (files or (ws.stores_nothing and ws.sources.configured and table in (None, DOCUMENTS))):
            raise
        return _whole(ws, *_one(files, doc_id, table)), find_origin(answer_from_files(ws, why))


def _whole(ws: Workspace, collection: Collection, document: Document) -> WholeDocument:
    return WholeDocument(
        document.doc_id,
        _source(ws, document),
        document.title,
        collection.name,
        document.content,
        len(chunks_of(ws, collection, document)),
        import_base.read_visible_metadata(document),
        document.table,
    )


def delete_document(ws: Workspace, doc_id: str, table: str | None) -> WriteResult[DeletedDocument]:
    """Remove that document. Raises `SourceReadOnly` for a file of a source that is not writable, as
    `_one`, and as `writing.write`.
    """
    notes = [note for note in _files(ws, doc_id, table) if ws.sources.find_writable(note[0].name)]
    if notes and not (ws.is_initialized and _candidates(ws, ws.locate_documents(), doc_id, table)):
        collection, document = _one(notes, doc_id, table)
        chunks = len(chunks_of(ws, collection, document))
        gone = DeletedDocument(document.doc_id, collection.name, chunks, document.table)
        if source := ws.sources.find_writable(collection.name):
            written = note_writes.remove_notes(ws, source, [document.doc_id])
            return WriteResult(gone, None, written.pending, notes=written)

    def plan(at: At) -> Planned[DeletedDocument]:
        stored = _candidates(ws, at, doc_id, table)
        if not stored and (files := _files(ws, doc_id, table)):
            of, file = files[0]
            raise source_read_only(of.name, file.source)
        collection, document = _one(stored, doc_id, table)
        gone = DeletedDocument(
            document.doc_id, collection.name, len(chunks_of(ws, collection, document)), document.table
        )
        return Planned(Write(remove_documents=[document.key]), gone)

    return writing.write_rows(ws, plan, f"delete document {doc_id}")


def _candidates(ws: Workspace, at: At, name: str, table: str | None) -> list[Found]:
    """What of the knowledge base can be meant. Raises `TableMissing`."""
    if table is not None:
        collections.require_table(table)
    return [each for each in _documents_in(ws, at, name) if table in (None, each[1].table)]


def _files(ws: Workspace, name: str, table: str | None) -> list[Found]:
    """What of the files of sources can be meant."""
    if table not in (None, DOCUMENTS) or not ws.sources.configured:
        return []
    ws.files.refresh()
    return _documents_in(ws.files, "", name)


def _one(found: list[Found], name: str, table: str | None) -> Found:
    """The one that is meant; of several with this id, a library's.

    Raises `DocumentMissing`, and `UsageInvalid` where several are left.
    """
    preferred = [each for each in found if each[0].kind == LIBRARY] if _one_table(found) else []
    chosen = preferred if len(preferred) == 1 else found
    if not chosen:
        raise DocumentMissing(
            f"There is no document {name!r}" + (f" in {table}." if table else "."),
            hint="vmrag list",
            doc_id=name,
            table=table,
        )
    if len(chosen) > 1:
        raise _ambiguous(name, chosen)
    return chosen[0]


def _documents_in(ws: ReadableStore, at: At, name: str) -> list[Found]:
    """The documents of this id, else those that a chunk of this name belongs to, by collection."""
    return [
        (collection, document)
        for collection in ws.engine.list_collections(at)
        if (document := _document_of(ws, at, collection, name))
    ]


def _document_of(ws: ReadableStore, at: At, there: Collection, name: str) -> Document | None:
    found = ws.engine.find_document(at, there.name, name)
    chunk = parse_chunk_id(name)
    if found or chunk is None:
        return found
    doc_id, number = chunk
    found = ws.engine.find_document(at, there.name, doc_id)
    return found if found and number < len(chunks_of(ws, there, found)) else None


def _source(ws: Workspace, document: Document) -> str:
    return (
        named_files.shown_source(ws, document) if document.table == DOCUMENTS else f"{document.table}/{document.doc_id}"
    )


def _one_table(found: list[Found]) -> bool:
    return len({document.table for _, document in found}) == 1


def _ambiguous(name: str, found: list[Found]) -> UsageInvalid:
    collections = [collection.name for collection, _ in found]
    places = sorted({document.table for _, document in found})
    several = len(places) > 1
    return UsageInvalid(
        f"Several documents are called {name!r}: in {enumerated(places if several else collections)}.",
        hint=f"Name the table: table={places[0]}"
        if several
        else "chroma_get_documents and chroma_delete_documents take the one of a collection.",
        parameter="doc_id",
        tables=places,
        collections=collections,
    )
