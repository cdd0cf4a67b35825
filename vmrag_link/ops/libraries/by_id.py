"""One document by its id, in whatever table it is: shown whole, or deleted."""

from __future__ import annotations

from typing import Any

from vmrag_link.documents import origin
from vmrag_link.engines.base import Write
from vmrag_link.errors import DocumentMissing, UsageInvalid, enumerated
from vmrag_link.index.metadata import parse_chunk_id
from vmrag_link.models import LIBRARY, At, Collection, Document, Record
from vmrag_link.ops.commits import tables
from vmrag_link.ops.commits.tables import DOCUMENTS
from vmrag_link.ops.documents import writing
from vmrag_link.ops.documents.document_selection import chunks_of
from vmrag_link.ops.documents.writing import Landed, Planned
from vmrag_link.ops.follow.follow_pin import read_consistently
from vmrag_link.ops.follow.provenance import Standing, standing
from vmrag_link.ops.libraries import library
from vmrag_link.workspace import Workspace


class WholeDocument(Record, frozen=True):
    """`source`: as `library.shown_source`; of what came from nowhere, table and id."""

    doc_id: str
    source: str
    title: str
    collection: str
    content: str
    chunks: int
    metadata: dict[str, Any]
    table: str
    standing: Standing


class DeletedDocument(Record, frozen=True):
    doc_id: str
    collection: str
    chunks: int
    table: str


def get(ws: Workspace, doc_id: str, table: str | None) -> WholeDocument:
    """The document with this id, or that a chunk of this name belongs to. Raises as `_find`."""

    def look() -> WholeDocument:
        here = standing(ws)
        collection, document = _find(ws, here.at, doc_id, table)
        return WholeDocument(
            document.doc_id,
            _source(ws, document),
            document.title,
            collection.name,
            document.content,
            len(chunks_of(ws, collection, document)),
            origin.shown_metadata(document),
            document.table,
            here,
        )

    return read_consistently(ws, look, index=False)


def delete(ws: Workspace, doc_id: str, table: str | None) -> Landed[DeletedDocument]:
    """Remove that document. Raises as `_find` and `writing.write`."""

    def plan(at: At) -> Planned[DeletedDocument]:
        collection, document = _find(ws, at, doc_id, table)
        gone = DeletedDocument(
            document.doc_id, collection.name, len(chunks_of(ws, collection, document)), document.table
        )
        return Planned(Write(remove_documents=[document.key]), gone)

    return writing.write(ws, plan, f"delete document {doc_id}")


def _find(ws: Workspace, at: At, name: str, table: str | None) -> tuple[Collection, Document]:
    """The one document that is meant; of several with this id, a library's.

    Raises `TableMissing`, `DocumentMissing`, and `UsageInvalid` where several are left.
    """
    if table is not None:
        tables.require(table)
    named = [(each, document) for each in ws.engine.collections(at) if (document := _named(ws, at, each, name))]
    found = [each for each in named if table in (None, each[1].table)]
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


def _named(ws: Workspace, at: At, there: Collection, name: str) -> Document | None:
    """The collection's document of this id, else the one that a chunk of this name belongs to."""
    found = ws.engine.document(at, there.name, name)
    chunk = parse_chunk_id(name)
    if found or chunk is None:
        return found
    doc_id, number = chunk
    found = ws.engine.document(at, there.name, doc_id)
    return found if found and number < len(chunks_of(ws, there, found)) else None


def _source(ws: Workspace, document: Document) -> str:
    return library.shown_source(ws, document) if document.table == DOCUMENTS else f"{document.table}/{document.doc_id}"


def _one_table(found: list[tuple[Collection, Document]]) -> bool:
    return len({document.table for _, document in found}) == 1


def _ambiguous(name: str, found: list[tuple[Collection, Document]]) -> UsageInvalid:
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
