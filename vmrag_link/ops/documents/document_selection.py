"""Which documents of a collection are meant by ids and filters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from vmrag_link.documents.chunking import document_chunks
from vmrag_link.embedding.base import within_window
from vmrag_link.index.metadata import parse_chunk_id
from vmrag_link.models import At, Chunk, Collection, Document, DocumentHeader, Record
from vmrag_link.retrieval import filters
from vmrag_link.retrieval.filtered import MetadataColumns
from vmrag_link.retrieval.filters import keys_of, matching, matching_text
from vmrag_link.workspace import ReadableStore


class Selection(Record, frozen=True):
    """Which documents: all given conditions must hold.

    `ids`: of documents or chunks (`index.store.chunk_id`); filters are those of
    `retrieval.filters`.
    """

    ids: Sequence[str] | None = None
    where: Mapping[str, Any] | None = None
    where_document: Mapping[str, Any] | None = None

    @property
    def filtered(self) -> bool:
        return bool(self.where or self.where_document)

    @property
    def everything(self) -> bool:
        return self.ids is None and not self.filtered


class Named(NamedTuple):
    """What an id means: a document, or a chunk of it."""

    name: str
    doc_id: str
    chunk: int | None


class Selected(NamedTuple):
    """In the order of the given ids, else by id. `missing` name neither a document nor a chunk."""

    named: list[Named]
    missing: list[str]


def select(ws: ReadableStore, at: At, collection: Collection, selection: Selection) -> Selected:
    """Filters are applied to whole documents; where an id is that of a chunk, to its document.

    Raises `FilterInvalid`.
    """
    passing = _Passing(ws, at, collection, selection)
    if selection.ids is None:
        return Selected([Named(each, each, None) for each in passing.ids()], [])
    asked = list(dict.fromkeys(selection.ids))
    there = passing.among(asked)
    chunk_ids = {each: _chunk(each) for each in asked if each not in there}
    parents = passing.among({named.doc_id for named in chunk_ids.values() if named})
    there |= parents
    cut: dict[str, int] = {}
    found, missing = [], []
    for each in asked:
        named = chunk_ids.get(each, Named(each, each, None))
        if named is None or named.doc_id not in there or not _within(ws, at, collection, named, cut):
            missing.append(each)
        elif there[named.doc_id]:
            found.append(named)
    return Selected(found, missing)


class _Passing:
    """Documents and whether they pass the filters.

    Texts are read only where a filter looks at them.
    """

    def __init__(self, ws: ReadableStore, at: At, collection: Collection, selection: Selection) -> None:
        self._rows = ws.engine.documents if selection.where_document else ws.engine.headers
        self._at, self._collection = at, collection
        where, where_document = filters.where(selection.where), filters.where_document(selection.where_document)
        self._columns = MetadataColumns(keys_of(where) if where else ())
        self._metadata = matching(where) if where else None
        self._text = matching_text(where_document) if where_document else None

    def ids(self) -> Iterator[str]:
        """The ids of the documents that pass, in order."""
        return (row.doc_id for row in self._rows(self._at, collection=self._collection.name) if self._passes(row))

    def among(self, ids: Iterable[str]) -> dict[str, bool]:
        """Which of these ids exist, and whether their documents pass."""
        asked = list(ids)
        rows = self._rows(self._at, collection=self._collection.name, ids=asked) if asked else ()
        return {row.doc_id: self._passes(row) for row in rows}

    def _passes(self, row: Document | DocumentHeader) -> bool:
        header = row.header if isinstance(row, Document) else row
        if self._metadata and self._metadata(self._columns.of_document(header, self._collection)) == [False]:
            return False
        return not (self._text and isinstance(row, Document)) or self._text(row.content)


def _chunk(name: str) -> Named | None:
    found = parse_chunk_id(name)
    return Named(name, *found) if found else None


def _within(ws: ReadableStore, at: At, collection: Collection, named: Named, known: dict[str, int]) -> bool:
    """Whether a document that is there has that chunk. `known`: numbers of chunks, which grow."""
    if named.chunk is None:
        return True
    if named.doc_id not in known:
        document = ws.engine.document(at, collection.name, named.doc_id)
        known[named.doc_id] = len(chunks_of(ws, collection, document)) if document else 0
    return named.chunk < known[named.doc_id]


def chunks_of(ws: ReadableStore, collection: Collection, document: Document) -> list[Chunk]:
    """A document's chunks as the index has them."""
    return document_chunks(document, within_window(collection.chunking, ws.models.of(collection)))
