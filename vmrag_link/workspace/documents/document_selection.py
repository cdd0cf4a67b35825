"""Which documents of a collection are meant by ids and filters, and these documents as clients read
them: whole, page by page.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from vmrag_link.documents.chunking import split_document
from vmrag_link.documents.import_base import read_visible_metadata
from vmrag_link.embedding.base import limit_chunking
from vmrag_link.index.metadata import build_chunk_metadata, chunk_id, parse_chunk_id
from vmrag_link.models import At, Chunk, Collection, Document, DocumentHeader, Record
from vmrag_link.retrieval import filters
from vmrag_link.retrieval.filters import compile_where, compile_where_document, list_keys
from vmrag_link.retrieval.narrowed import MetadataColumns
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace.documents import collections
from vmrag_link.workspace.follow.follow_pin import read_consistently
from vmrag_link.workspace.follow.provenance import AnswerOrigin, find_origin, find_view_origin

if TYPE_CHECKING:
    from vmrag_link.workspace import ReadableStore, View

ALLOWANCE = 2_000
"""Characters of ids, metadata and embeddings beside the texts of a page that has no room left."""

BATCH = 16
"""Documents whose texts are in memory at a time, unless they belong to the page."""


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


class NamedDocument(NamedTuple):
    """What an id means: a document, or a chunk of it."""

    name: str
    doc_id: str
    chunk: int | None


class SelectedDocuments(NamedTuple):
    """In the order of the given ids, else by id. `missing` name neither a document nor a chunk."""

    named: list[NamedDocument]
    missing: list[str]


def select_documents(ws: ReadableStore, at: At, collection: Collection, selection: Selection) -> SelectedDocuments:
    """Filters are applied to whole documents; where an id is that of a chunk, to its document.

    Raises `FilterInvalid`.
    """
    passing = _Passing(ws, at, collection, selection)
    if selection.ids is None:
        return SelectedDocuments([NamedDocument(identifier, identifier, None) for identifier in passing.ids()], [])
    asked = list(dict.fromkeys(selection.ids))
    there = passing.among(asked)
    chunk_ids = {each: _chunk(each) for each in asked if each not in there}
    parents = passing.among({named.doc_id for named in chunk_ids.values() if named})
    there |= parents
    cut: dict[str, int] = {}
    found, missing = [], []
    for each in asked:
        named = chunk_ids.get(each, NamedDocument(each, each, None))
        if named is None or named.doc_id not in there or not _within(ws, at, collection, named, cut):
            missing.append(each)
        elif there[named.doc_id]:
            found.append(named)
    return SelectedDocuments(found, missing)


class _Passing:
    """Documents and whether they pass the filters.

    Texts are read only where a filter looks at them.
    """

    def __init__(self, ws: ReadableStore, at: At, collection: Collection, selection: Selection) -> None:
        self._rows = ws.engine.read_documents if selection.where_document else ws.engine.read_headers
        self._at, self._collection = at, collection
        where, where_document = (
            filters.normalize_where(selection.where),
            filters.normalize_where_document(selection.where_document),
        )
        self._columns = MetadataColumns(list_keys(where) if where else ())
        self._metadata = compile_where(where) if where else None
        self._text = compile_where_document(where_document) if where_document else None

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
        if self._metadata and self._metadata(self._columns.build_document_columns(header, self._collection)) == [False]:
            return False
        return not (self._text and isinstance(row, Document)) or self._text(row.content)


def _chunk(name: str) -> NamedDocument | None:
    found = parse_chunk_id(name)
    return NamedDocument(name, *found) if found else None


def _within(ws: ReadableStore, at: At, collection: Collection, named: NamedDocument, known: dict[str, int]) -> bool:
    """Whether a document that is there has that chunk. `known`: numbers of chunks, which grow."""
    if named.chunk is None:
        return True
    if named.doc_id not in known:
        document = ws.engine.find_document(at, collection.name, named.doc_id)
        known[named.doc_id] = len(chunks_of(ws, collection, document)) if document else 0
    return named.chunk < known[named.doc_id]


def chunks_of(ws: ReadableStore, collection: Collection, document: Document) -> list[Chunk]:
    """A document's chunks as the index has them."""
    return split_document(document, limit_chunking(collection.chunking, ws.models.load_for(collection)))


class PageRequest(Record, frozen=True):
    """A page of a selection, and what it shows of each document. `limit` None: all of them.

    `characters`: the page ends before its texts are longer than that together, or all that it shows
    is longer by `ALLOWANCE`; a page of one document may be. None: no limit.
    """

    limit: int | None = None
    offset: int = 0
    characters: int | None = None
    texts: bool = True
    embeddings: bool = False


class PageItem(Record, frozen=True):
    """A document, or a chunk of it.

    `text` and `embeddings` (one a chunk) are None where they are not wanted.
    """

    name: str
    text: str | None
    metadata: dict[str, Any]
    embeddings: list[list[float]] | None
    doc_id: str

    @property
    def weight(self) -> int:
        """Characters of its JSON."""
        return len(msgspec.json.encode(self).decode())


class DocumentPage(Record, frozen=True):
    """`total` counts all that were selected, `missing` are ids that name nothing.

    `cut`: more items would make the texts too long.
    """

    collection: Collection
    items: list[PageItem]
    total: int
    missing: list[str]
    cut: bool
    origin: AnswerOrigin

    def has_more(self, offset: int) -> bool:
        """Whether something comes after a page from `offset` on."""
        return offset + len(self.items) < self.total


def get_page(ws: ReadableStore, name: str, selection: Selection, wanted: PageRequest) -> DocumentPage:
    """One page of the documents that are selected.

    Raises `CollectionMissing`, `FilterInvalid`, and `IndexFailed` where embeddings are wanted: only
    these come from the index.
    """
    if not wanted.embeddings:
        return read_consistently(
            ws, lambda: _Reading(ws, find_origin(ws), name, wanted, None).page(selection), index=False
        )

    def read(view: View) -> DocumentPage:
        with contextlib.closing(Searcher(view.folder, ws.models.load_for)) as searcher:
            return _Reading(ws, find_view_origin(ws, view), name, wanted, searcher).page(selection)

    return read_consistently(ws, lambda: ws.reader.read(read, files=False))


class _Reading:
    """Reads one page from the engine; `searcher` has the embeddings."""

    def __init__(
        self, ws: ReadableStore, here: AnswerOrigin, name: str, wanted: PageRequest, searcher: Searcher | None
    ) -> None:
        self._ws, self._here, self._wanted, self._searcher = ws, here, wanted, searcher
        self._collection = collections.find_collection(ws, here.at, name)

    def page(self, selection: Selection) -> DocumentPage:
        total, missing, named = self._selected(selection)
        items: list[PageItem] = []
        most, characters, weight, cut = self._wanted.characters, 0, 0, False
        for item in self._items(named):
            characters, weight = characters + len(item.text or ""), weight + item.weight
            if items and most is not None and (characters > most or weight > most + ALLOWANCE):
                cut = True
                break
            items.append(item)
        return DocumentPage(self._collection, items, total, missing, cut, self._here)

    def _selected(self, selection: Selection) -> tuple[int, list[str], Sequence[NamedDocument]]:
        """How many are selected, the ids that name nothing, and those of the page."""
        start = self._wanted.offset
        stop = None if self._wanted.limit is None else start + self._wanted.limit
        if not selection.everything:
            found = select_documents(self._ws, self._here.at, self._collection, selection)
            return len(found.named), found.missing, found.named[start:stop]
        engine, at, name = self._ws.engine, self._here.at, self._collection.name
        with contextlib.closing(engine.read_headers(at, collection=name)) as headers:
            page = [
                NamedDocument(header.doc_id, header.doc_id, None) for header in itertools.islice(headers, start, stop)
            ]
        return engine.count_documents(at, collection=name), [], page

    def _items(self, named: Sequence[NamedDocument]) -> Iterator[PageItem]:
        engine, at, name = self._ws.engine, self._here.at, self._collection.name
        for start in range(0, len(named), BATCH):
            batch = named[start : start + BATCH]
            whole = self._wanted.texts or any(each.chunk is not None for each in batch)
            rows = engine.read_documents if whole else engine.read_headers
            there = {row.doc_id: row for row in rows(at, collection=name, ids={each.doc_id for each in batch})}
            embeddings = self._embeddings(batch)
            for each in batch:
                row = there.get(each.doc_id)  # uncommitted ones may have gone since they were selected
                if row and (item := self._item(each, row)):
                    yield msgspec.structs.replace(item, embeddings=embeddings.get(each.name))

    def _item(self, named: NamedDocument, row: Document | DocumentHeader) -> PageItem | None:
        metadata = read_visible_metadata(row)
        text = row.content if isinstance(row, Document) else ""
        if named.chunk is not None and isinstance(row, Document):
            cut = chunks_of(self._ws, self._collection, row)
            if named.chunk >= len(cut):
                return None
            text = cut[named.chunk].text
            named_so = {"title": row.title} if row.title else {}
            metadata = {
                **named_so,
                **metadata,
                **build_chunk_metadata(row.header, self._collection.table, named.chunk, len(cut)),
            }
        return PageItem(named.name, text if self._wanted.texts else None, metadata, None, named.doc_id)

    def _embeddings(self, named: Sequence[NamedDocument]) -> dict[str, list[list[float]]]:
        """The embeddings that the index holds, by name."""
        if self._searcher is None:
            return {}
        name = self._collection.name
        counts = self._searcher.count_chunks(name, [each.doc_id for each in named])
        asked = {
            each.name: [
                chunk_id(each.doc_id, number)
                for number in (range(counts.get(each.doc_id, 0)) if each.chunk is None else (each.chunk,))
            ]
            for each in named
        }
        wanted = [*itertools.chain.from_iterable(asked.values())]
        stored = self._searcher.read_embeddings(name, wanted, self._ws.embedding_cache)
        return {
            shown: [stored[identifier] for identifier in ids if identifier in stored] for shown, ids in asked.items()
        }
