"""A sealed index, open, and the comparison of Chroma's store with it: the store's database changes
by being read, so no checksum covers it.

Ids, texts and metadata have to be equal, vectors as near as int8 allows (a 300th of their length).
The database's own structure is checked too, because filters use its indexes: a flipped bit there
finds other rows.
"""

from __future__ import annotations

import array
import contextlib
import math
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from vmrag_link.chroma import DATABASE_FILE
from vmrag_link.chroma.bindings import ChromaStore, StoredRow, open_store
from vmrag_link.chroma.stores import REVISION_SEPARATOR
from vmrag_link.errors import IndexFailed, is_too_long, path_too_long
from vmrag_link.index import flat_files, seal, view
from vmrag_link.index.metadata import (
    MetadataValue,
    build_chunk_metadata,
    build_document_metadata,
    chunk_id,
    make_chroma_name,
    parse_chunk_id,
)
from vmrag_link.index.reader import IndexReader
from vmrag_link.index.view import IndexedCollection, IndexView
from vmrag_link.models import DocumentHeader

VectorSource = Callable[[IndexReader, IndexedCollection, Mapping[int, str]], Mapping[int, bytes]]
"""The float32 vectors of chunks of a collection of an index, by row; given are their texts."""


class DocumentRows(NamedTuple):
    """A document and the rows of its chunks."""

    header: DocumentHeader
    rows: range


class ChunkRow(NamedTuple):
    """A chunk as Chroma is to hold it, and its row in the index."""

    id: str
    row: int
    text: str
    metadata: dict[str, MetadataValue]


class OpenIndex:
    """Views as one index. Hold their locks while they are opened. They stay readable where they are
    removed afterwards.

    As in a query, a stored collection hides files of the same name, except notes, which hide the
    stored collection. `leave_out`: collections that are not wanted.
    """

    def __init__(self, folder: Path, *more: Path, leave_out: frozenset[str] = frozenset()) -> None:
        self.folder = folder
        views: list[IndexView] = []
        for path in (folder, *more):
            one = view.read_view(path)
            derived = {name for name, held in one.collections.items() if not held.collection.has_notes}
            hidden = derived.intersection([name for earlier in views for name in earlier.collections])
            views.append(view.drop_collections(one, leave_out | hidden))
        revisions = [seal.read_seal(path).revision for path in (folder, *more)]
        self.revision = REVISION_SEPARATOR.join(revisions)
        self.revisions = {
            name: revision for opened, revision in zip(views, revisions, strict=True) for name in opened.collections
        }
        """The revision of the view that a collection is from."""
        with contextlib.ExitStack() as opened:
            self.reader = opened.enter_context(IndexReader(view.join_views(views), view.segments_folder(folder)))
            self.reader.open_files()
            self.collections = self.reader.list_collections
            self.stand_ins = frozenset(self.reader.view.unembedded)
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()

    def list_documents(self, held: IndexedCollection) -> Iterable[DocumentRows]:
        """Every document of a collection."""
        return map(DocumentRows._make, self.reader.list_documents(held.collection.name))

    def find_documents(self, held: IndexedCollection, doc_ids: Iterable[str]) -> dict[str, DocumentRows]:
        """Those of these documents that the index holds."""
        keys = [(held.collection.name, doc_id) for doc_id in doc_ids]
        headers, rows = self.reader.find_headers(keys), self.reader.find_rows(keys)
        return {key[1]: DocumentRows(header, rows[key]) for key, header in headers.items()}

    def list_chunks(self, held: IndexedCollection, documents: Iterable[DocumentRows]) -> list[ChunkRow]:
        """The chunks of these documents, in their order."""
        found = []
        for header, rows in documents:
            common = build_document_metadata(header, held.collection.table)
            texts = self.reader.read_texts(rows)
            for number, row in enumerate(rows):
                metadata = common | build_chunk_metadata(header, held.collection.table, number, len(rows))
                found.append(ChunkRow(chunk_id(header.doc_id, number), row, texts[row], metadata))
        return found


LOCK_TIMEOUT = 30.0
PAGE_ROWS = 2_000

_CHECK_WORDS = "INSERT INTO embedding_fulltext_search (embedding_fulltext_search) VALUES ('integrity-check')"
"""A command of FTS5: no row is written."""


def find_difference(
    store: Path,
    index: OpenIndex,
    *,
    with_texts: bool,
    only: Mapping[str, Sequence[DocumentRows]] | None = None,
    between: Callable[[], None] = lambda: None,
) -> str:
    """What Chroma's store holds otherwise than the index, as the first that was found; empty if
    nothing.

    `only`, for a store whose other rows are known: of these collections, all ids and these
    documents' rows; the others are compared whole. `between` is called from time to time; what it
    raises ends the comparison.
    """
    if is_too_long(store / DATABASE_FILE):
        return path_too_long(store / DATABASE_FILE).message
    try:
        if only is None and (found := _structure(store / DATABASE_FILE)):
            return found
        with contextlib.closing(open_store(store)) as opened:
            compare = _Comparison(opened, index, with_texts, between)
            return compare.collections(only or {})
    except sqlite3.Error as error:
        return f"Chroma's database cannot be read ({error})"
    except IndexFailed as error:
        return error.message.rstrip(".")


def _structure(database: Path) -> str:
    location = f"{database.absolute().as_uri()}?mode=rw"
    with contextlib.closing(sqlite3.connect(location, uri=True, timeout=LOCK_TIMEOUT)) as connection:
        found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if found != "ok":
            return f"Chroma's database is damaged ({found})"
        if connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'embedding_fulltext_search'").fetchone()[
            0
        ]:
            connection.execute(_CHECK_WORDS)
            connection.rollback()
    return ""


class _Comparison(NamedTuple):
    """Each method returns the first difference, empty if there is none."""

    store: ChromaStore
    source: OpenIndex
    with_texts: bool
    between: Callable[[], None]

    def collections(self, only: Mapping[str, Sequence[DocumentRows]]) -> str:
        there = self.store.list_collection_ids()
        names = {name: make_chroma_name(name) for name in self.source.collections}
        if there.keys() != {*names.values()}:
            return "Chroma holds other collections than the index"
        for name, held in self.source.collections.items():
            found = (
                self._documents(there[names[name]], held, only[name])
                if name in only
                else self._whole(there[names[name]], held)
            )
            if found:
                return found
        return ""

    def _whole(self, collection_id: str, held: IndexedCollection) -> str:
        read = 0
        for page in self.store.read_pages(collection_id, PAGE_ROWS, with_vectors=True):
            if found := self._page(held, page):
                return found
            read += len(page)
        return "" if read == held.chunks else _other_number(held, read)  # Chroma holds no id twice

    def _documents(self, collection_id: str, held: IndexedCollection, documents: Sequence[DocumentRows]) -> str:
        wanted = {
            chunk_id(each.header.doc_id, n) for each in self.source.list_documents(held) for n in range(len(each.rows))
        }
        ids = self.store.list_ids(collection_id)
        if len(ids) != len(wanted):
            return _other_number(held, len(ids))
        if strange := set(ids) - wanted:
            return _other_row(held, min(strange))
        among = [chunk_id(document.header.doc_id, n) for document in documents for n in range(len(document.rows))]
        pages = self.store.read_pages(collection_id, PAGE_ROWS, among=among, with_vectors=True)
        return next((found for page in pages if (found := self._page(held, page))), "")

    def _page(self, held: IndexedCollection, page: list[StoredRow]) -> str:
        self.between()
        names = {parsed[0]: None for row in page if (parsed := parse_chunk_id(row.id))}
        expected = {
            row.id: row for row in self.source.list_chunks(held, self.source.find_documents(held, names).values())
        }
        for row in page:
            wanted = expected.get(row.id)
            if (
                wanted is None
                or row.metadata != wanted.metadata
                or row.text != (wanted.text if self.with_texts else None)
            ):
                return _other_row(held, row.id)
            if not self._near(wanted, row):
                return f"the vector of {row.id!r} of {held.collection.name!r} in Chroma is not that of the index"
        return ""

    def _near(self, wanted: ChunkRow, row: StoredRow) -> bool:
        whole, floats = self.source.reader.read_vector(wanted.row), array.array("f", row.vector)
        if math.isfinite(sum(floats)) and flat_files.quantise(floats.tobytes()) == whole:
            return True  # nearly always, and ten times as fast
        return flat_files.matches_vector(whole, floats)


def _other_number(held: IndexedCollection, number: int) -> str:
    return f"Chroma holds {number} chunks of {held.collection.name!r}, the index {held.chunks}"


def _other_row(held: IndexedCollection, name: str) -> str:
    return f"{name!r} of {held.collection.name!r} in Chroma is not what the index was made of"
