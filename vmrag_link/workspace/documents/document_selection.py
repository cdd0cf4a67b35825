"""Select documents of a collection by ids and filters, and read them page by page.

Tools that act like Chroma's `get` use it. An id means a document, or one of its chunks, because
Chroma's clients know the ids of chunks.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from vmrag_link.documents.chunking import split_document
from vmrag_link.documents.library_origin import read_visible_metadata
from vmrag_link.embedding.base import limit_chunking
from vmrag_link.index.metadata import build_chunk_metadata, chunk_id, parse_chunk_id
from vmrag_link.models import At, Chunk, Collection, Document, DocumentHeader, Record
from vmrag_link.retrieval import filters
from vmrag_link.retrieval.chunk_filter import MetadataColumns
from vmrag_link.retrieval.filters import compile_where, compile_where_document, list_keys
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace.documents import collections
from vmrag_link.workspace.follow.follow_pin import read_consistently
from vmrag_link.workspace.follow.provenance import AnswerOrigin, find_origin, find_view_origin

if TYPE_CHECKING:
    from vmrag_link.workspace import ReadableStore, View

ALLOWANCE_CHARACTERS = 2_000
"""How much ids, metadata and embeddings may add to the limit of a page."""

BATCH_DOCUMENTS = 16
"""Number of documents whose texts are in memory at the same time, except those of the page."""


class Selection(Record, frozen=True):
    """Conditions for documents. All of them must hold."""

    ids: Sequence[str] | None = None
    """Ids of documents or chunks (`index.metadata.chunk_id`)."""
    where: Mapping[str, Any] | None = None
    """Filter by metadata (`retrieval.filters`)."""
    where_document: Mapping[str, Any] | None = None
    """Filter by text."""

    @property
    def filtered(self) -> bool:
        return bool(self.where or self.where_document)

    @property
    def everything(self) -> bool:
        return self.ids is None and not self.filtered


class NamedDocument(NamedTuple):
    """A document that an id means, or a chunk of it."""

    name: str
    """The given id."""
    doc_id: str
    chunk: int | None
    """The number of the chunk, from 0. None for the whole document."""


class SelectedDocuments(NamedTuple):
    """The selected documents, in the order of the given ids, otherwise sorted by id."""

    named: list[NamedDocument]
    missing: list[str]
    """Ids that belong to no document and no chunk."""


def select_documents(ws: ReadableStore, at: At, collection: Collection, selection: Selection) -> SelectedDocuments:
    """Return the documents of a collection that pass the filters, or chunks of them.

    Filters apply to the whole document of a chunk. Raises `FilterInvalid`.
    """
    document_filter = _DocumentFilter(ws, at, collection, selection)
    if selection.ids is None:
        return SelectedDocuments([NamedDocument(doc_id, doc_id, None) for doc_id in document_filter.list_passing()], [])
    ids = list(dict.fromkeys(selection.ids))
    passes = document_filter.check_ids(ids)
    parsed_ids = {name: parse_chunk_id(name) for name in ids if name not in passes}
    chunks = {name: NamedDocument(name, *parsed) if parsed else None for name, parsed in parsed_ids.items()}
    passes |= document_filter.check_ids({chunk.doc_id for chunk in chunks.values() if chunk})
    chunk_counts: dict[str, int] = {}
    selected: list[NamedDocument] = []
    missing: list[str] = []
    for name in ids:
        named = chunks.get(name, NamedDocument(name, name, None))
        if named is None or named.doc_id not in passes or not _has_chunk(ws, at, collection, named, chunk_counts):
            missing.append(name)
        elif passes[named.doc_id]:
            selected.append(named)
    return SelectedDocuments(selected, missing)


class _DocumentFilter:
    """Decide which documents pass the filters. Texts are read only if a filter needs them."""

    def __init__(self, ws: ReadableStore, at: At, collection: Collection, selection: Selection) -> None:
        self._read_rows = ws.engine.read_documents if selection.where_document else ws.engine.read_headers
        self._at = at
        self._collection = collection
        where = filters.normalize_where(selection.where)
        where_document = filters.normalize_where_document(selection.where_document)
        self._columns = MetadataColumns(list_keys(where) if where else ())
        self._metadata = compile_where(where) if where else None
        self._text = compile_where_document(where_document) if where_document else None

    def list_passing(self) -> Iterator[str]:
        """Yield the ids of the documents that pass, in order."""
        return (
            row.doc_id for row in self._read_rows(self._at, collection=self._collection.name) if self._is_passing(row)
        )

    def check_ids(self, ids: Iterable[str]) -> dict[str, bool]:
        """Return which of these ids exist, and whether their documents pass."""
        names = list(ids)
        rows = self._read_rows(self._at, collection=self._collection.name, ids=names) if names else ()
        return {row.doc_id: self._is_passing(row) for row in rows}

    def _is_passing(self, row: Document | DocumentHeader) -> bool:
        header = row.header if isinstance(row, Document) else row
        if self._metadata and self._metadata(self._columns.build_document_columns(header, self._collection)) == [False]:
            return False
        if self._text and isinstance(row, Document):
            return self._text(row.content)
        return True


def _has_chunk(ws: ReadableStore, at: At, collection: Collection, named: NamedDocument, counts: dict[str, int]) -> bool:
    """Return whether an existing document has the named chunk.

    `counts`: a cache of numbers of chunks.
    """
    if named.chunk is None:
        return True
    if named.doc_id not in counts:
        document = ws.engine.find_document(at, collection.name, named.doc_id)
        counts[named.doc_id] = len(chunks_of(ws, collection, document)) if document else 0
    return named.chunk < counts[named.doc_id]


def chunks_of(ws: ReadableStore, collection: Collection, document: Document) -> list[Chunk]:
    """Cut a document into chunks like the index."""
    return split_document(document, limit_chunking(collection.chunking, ws.models.load_for(collection)))


class PageRequest(Record, frozen=True):
    """A page of selected documents, and the parts to show of each."""

    limit: int | None = None
    """Maximum number of documents; None for all."""
    offset: int = 0
    characters: int | None = None
    """Maximum length of all texts; None for no limit. A page with one document may be longer."""
    texts: bool = True
    """True to include texts."""
    embeddings: bool = False
    """True to include embeddings."""


class PageItem(Record, frozen=True):
    """A document or a chunk of it, as a page shows it."""

    name: str
    text: str | None
    """The text; None if it was not requested."""
    metadata: dict[str, Any]
    embeddings: list[list[float]] | None
    """One embedding for each chunk; None if they were not requested."""
    doc_id: str

    @property
    def weight(self) -> int:
        """Number of characters as JSON."""
        return len(msgspec.json.encode(self).decode())


class DocumentPage(Record, frozen=True):
    """One page of selected documents."""

    collection: Collection
    items: list[PageItem]
    total: int
    """Number of all selected documents."""
    missing: list[str]
    """Ids that belong to no document and no chunk."""
    cut: bool
    """True if more items would exceed the limit of characters."""
    origin: AnswerOrigin

    def has_more(self, offset: int) -> bool:
        """Return whether more documents follow a page that begins at `offset`."""
        return offset + len(self.items) < self.total


def get_page(ws: ReadableStore, name: str, selection: Selection, request: PageRequest) -> DocumentPage:
    """Return one page of the selected documents.

    Only embeddings need the index. Raises `CollectionMissing`, `FilterInvalid`, and `IndexFailed`
    if embeddings are requested.
    """

    def read_stored() -> DocumentPage:
        return _PageReader(ws, find_origin(ws), name, request, None).read_page(selection)

    def read_indexed(view: View) -> DocumentPage:
        with contextlib.closing(Searcher(view.folder, ws.models.load_for)) as searcher:
            return _PageReader(ws, find_view_origin(ws, view), name, request, searcher).read_page(selection)

    if not request.embeddings:
        return read_consistently(ws, read_stored, index=False)
    return read_consistently(ws, lambda: ws.reader.read(read_indexed, files=False))


class _PageReader:
    """Read one page of a collection. `searcher`: None if embeddings are not requested."""

    def __init__(
        self, ws: ReadableStore, origin: AnswerOrigin, name: str, request: PageRequest, searcher: Searcher | None
    ) -> None:
        self._ws = ws
        self._origin = origin
        self._request = request
        self._searcher = searcher
        self._collection = collections.find_collection(ws, origin.at, name)

    def read_page(self, selection: Selection) -> DocumentPage:
        """Return the page, which ends before the limit of characters would be exceeded."""
        total, missing, named = self._select_page(selection)
        items: list[PageItem] = []
        limit = self._request.characters
        text_length = 0
        weight = 0
        is_cut = False
        for item in self._read_items(named):
            text_length += len(item.text or "")
            weight += item.weight
            if items and limit is not None and (text_length > limit or weight > limit + ALLOWANCE_CHARACTERS):
                is_cut = True
                break
            items.append(item)
        return DocumentPage(
            collection=self._collection, items=items, total=total, missing=missing, cut=is_cut, origin=self._origin
        )

    def _select_page(self, selection: Selection) -> tuple[int, list[str], Sequence[NamedDocument]]:
        """Return the number of selected documents, the missing ids, and the page's documents."""
        start = self._request.offset
        stop = None if self._request.limit is None else start + self._request.limit
        if not selection.everything:
            selected = select_documents(self._ws, self._origin.at, self._collection, selection)
            return len(selected.named), selected.missing, selected.named[start:stop]
        engine, at, name = self._ws.engine, self._origin.at, self._collection.name
        with contextlib.closing(engine.read_headers(at, collection=name)) as headers:
            ids = [header.doc_id for header in itertools.islice(headers, start, stop)]
        page = [NamedDocument(doc_id, doc_id, None) for doc_id in ids]
        return engine.count_documents(at, collection=name), [], page

    def _read_items(self, named: Sequence[NamedDocument]) -> Iterator[PageItem]:
        """Yield the items, except documents that another process has just removed."""
        for start in range(0, len(named), BATCH_DOCUMENTS):
            batch = named[start : start + BATCH_DOCUMENTS]
            needs_texts = self._request.texts or any(entry.chunk is not None for entry in batch)
            read_rows = self._ws.engine.read_documents if needs_texts else self._ws.engine.read_headers
            rows = read_rows(self._origin.at, collection=self._collection.name, ids={entry.doc_id for entry in batch})
            rows_by_id = {row.doc_id: row for row in rows}
            embeddings = self._read_embeddings(batch)
            for entry in batch:
                row = rows_by_id.get(entry.doc_id)
                item = self._form_item(entry, row) if row else None
                if item:
                    yield msgspec.structs.replace(item, embeddings=embeddings.get(entry.name))

    def _form_item(self, named: NamedDocument, row: Document | DocumentHeader) -> PageItem | None:
        """Return the item without embeddings. None if the document no longer has the chunk."""
        metadata = read_visible_metadata(row)
        text = row.content if isinstance(row, Document) else ""
        if named.chunk is not None and isinstance(row, Document):
            chunks = chunks_of(self._ws, self._collection, row)
            if named.chunk >= len(chunks):
                return None
            text = chunks[named.chunk].text
            title = {"title": row.title} if row.title else {}
            metadata = {
                **title,
                **metadata,
                **build_chunk_metadata(row.header, self._collection.table, named.chunk, len(chunks)),
            }
        return PageItem(named.name, text if self._request.texts else None, metadata, None, named.doc_id)

    def _read_embeddings(self, named: Sequence[NamedDocument]) -> dict[str, list[list[float]]]:
        """Return the embeddings that the index has, by name."""
        if self._searcher is None:
            return {}
        name = self._collection.name
        counts = self._searcher.count_chunks(name, [entry.doc_id for entry in named])
        chunk_ids: dict[str, list[str]] = {}
        for entry in named:
            numbers = range(counts.get(entry.doc_id, 0)) if entry.chunk is None else [entry.chunk]
            chunk_ids[entry.name] = [chunk_id(entry.doc_id, number) for number in numbers]
        all_ids = [*itertools.chain.from_iterable(chunk_ids.values())]
        stored = self._searcher.read_embeddings(name, all_ids, self._ws.embedding_cache)
        return {
            entry_name: [stored[identifier] for identifier in ids if identifier in stored]
            for entry_name, ids in chunk_ids.items()
        }
