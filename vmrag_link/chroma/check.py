"""An open index, and the comparison of Chroma's store with it.

Reading a store changes its database, so no checksum covers the database. Ids, texts and metadata
must be equal, and vectors as close as int8 allows (a 300th of their length). The structure of the
database is also checked, because filters use its indexes, and a flipped bit in an index finds other
rows.
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
"""A function that returns the float32 vectors of chunks of a collection, by row. Its last argument
has the texts of the chunks by row.
"""


class DocumentRows(NamedTuple):
    """A document and the rows of its chunks."""

    header: DocumentHeader
    rows: range


class ChunkRow(NamedTuple):
    """A chunk as it should be in Chroma, and its row in the index."""

    id: str
    row: int
    text: str
    metadata: dict[str, MetadataValue]


class OpenIndex:
    """Several views as one index. They stay readable if they are removed afterwards.

    The caller holds the locks of the views while they are opened. As in a query, a stored
    collection hides files of the same name, except notes, which hide the stored collection.
    `leave_out`: names of collections to leave out.
    """

    def __init__(self, folder: Path, *more: Path, leave_out: frozenset[str] = frozenset()) -> None:
        self.folder = folder
        views: list[IndexView] = []
        for path in (folder, *more):
            opened_view = view.read_view(path)
            derived = {name for name, indexed in opened_view.collections.items() if not indexed.collection.has_notes}
            hidden = derived.intersection([name for earlier in views for name in earlier.collections])
            views.append(view.drop_collections(opened_view, leave_out | hidden))
        revisions = [seal.read_seal(path).revision for path in (folder, *more)]
        """The revision of the view of each collection."""

        self.revision = REVISION_SEPARATOR.join(revisions)
        self.revisions = {
            name: revision for opened, revision in zip(views, revisions, strict=True) for name in opened.collections
        }
        """The revision of the view that a collection is from."""
        with contextlib.ExitStack() as opened:
            self.reader = opened.enter_context(IndexReader(view.join_views(views), view.segments_folder(folder)))
            self.reader.open_files()
            self.collections = self.reader.collections
            self.stand_ins = frozenset(self.reader.view.unembedded)
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()

    def list_documents(self, indexed: IndexedCollection) -> Iterable[DocumentRows]:
        """Return every document of a collection."""
        return map(DocumentRows._make, self.reader.list_documents(indexed.collection.name))

    def find_documents(self, indexed: IndexedCollection, doc_ids: Iterable[str]) -> dict[str, DocumentRows]:
        """Return those of these documents that the index has."""
        keys = [(indexed.collection.name, doc_id) for doc_id in doc_ids]
        headers, rows = self.reader.find_headers(keys), self.reader.find_rows(keys)
        return {key[1]: DocumentRows(header, rows[key]) for key, header in headers.items()}

    def list_chunks(self, indexed: IndexedCollection, documents: Iterable[DocumentRows]) -> list[ChunkRow]:
        """Return the chunks of these documents, in their order."""
        chunks = []
        for header, rows in documents:
            common = build_document_metadata(header, indexed.collection.table)
            texts = self.reader.read_texts(rows)
            for number, row in enumerate(rows):
                metadata = common | build_chunk_metadata(header, indexed.collection.table, number, len(rows))
                chunks.append(ChunkRow(chunk_id(header.doc_id, number), row, texts[row], metadata))
        return chunks


LOCK_TIMEOUT = 30.0
PAGE_ROWS = 2_000

_CHECK_WORDS = "INSERT INTO embedding_fulltext_search (embedding_fulltext_search) VALUES ('integrity-check')"
"""A command of FTS5. It writes no row."""


def find_difference(
    store: Path,
    index: OpenIndex,
    *,
    with_texts: bool,
    only: Mapping[str, Sequence[DocumentRows]] | None = None,
    between: Callable[[], None] = lambda: None,
) -> str:
    """Return the first difference between Chroma's store and the index; empty if there is none.

    `only`: the documents to compare in some collections, for a store whose other rows are verified.
    All ids of these collections are compared, and other collections are compared as a whole.
    `between` is called from time to time. An error that it raises ends the comparison.
    """
    if is_too_long(store / DATABASE_FILE):
        return path_too_long(store / DATABASE_FILE).message
    try:
        if only is None and (problem := _check_structure(store / DATABASE_FILE)):
            return problem
        with contextlib.closing(open_store(store)) as chroma_store:
            comparison = _Comparison(chroma_store, index, with_texts, between)
            return comparison.compare_all(only or {})
    except sqlite3.Error as error:
        return f"Chroma's database cannot be read ({error})"
    except IndexFailed as error:
        return error.message.rstrip(".")


def _check_structure(database: Path) -> str:
    """Return how the database is damaged; empty if it is not."""
    location = f"{database.absolute().as_uri()}?mode=rw"
    with contextlib.closing(sqlite3.connect(location, uri=True, timeout=LOCK_TIMEOUT)) as connection:
        result = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if result != "ok":
            return f"Chroma's database is damaged ({result})"
        if connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'embedding_fulltext_search'").fetchone()[
            0
        ]:
            connection.execute(_CHECK_WORDS)
            connection.rollback()
    return ""


class _Comparison(NamedTuple):
    """A comparison of a store with an index. Each method returns the first difference; empty if
    there is none.
    """

    store: ChromaStore
    source: OpenIndex
    with_texts: bool
    between: Callable[[], None]

    def compare_all(self, only: Mapping[str, Sequence[DocumentRows]]) -> str:
        ids = self.store.list_collection_ids()
        names = {name: make_chroma_name(name) for name in self.source.collections}
        if ids.keys() != {*names.values()}:
            return "Chroma has other collections than the index"
        for name, indexed in self.source.collections.items():
            problem = (
                self._compare_documents(ids[names[name]], indexed, only[name])
                if name in only
                else self._compare_collection(ids[names[name]], indexed)
            )
            if problem:
                return problem
        return ""

    def _compare_collection(self, collection_id: str, indexed: IndexedCollection) -> str:
        row_count = 0
        for page in self.store.read_pages(collection_id, PAGE_ROWS, with_vectors=True):
            if problem := self._compare_page(indexed, page):
                return problem
            row_count += len(page)
        # The numbers are enough, because Chroma never has the same id twice.
        return "" if row_count == indexed.chunks else _describe_wrong_number(indexed, row_count)

    def _compare_documents(
        self, collection_id: str, indexed: IndexedCollection, documents: Sequence[DocumentRows]
    ) -> str:
        expected = {
            chunk_id(document.header.doc_id, n)
            for document in self.source.list_documents(indexed)
            for n in range(len(document.rows))
        }
        ids = self.store.list_ids(collection_id)
        if len(ids) != len(expected):
            return _describe_wrong_number(indexed, len(ids))
        if unexpected := set(ids) - expected:
            return _describe_wrong_row(indexed, min(unexpected))
        among = [chunk_id(document.header.doc_id, n) for document in documents for n in range(len(document.rows))]
        pages = self.store.read_pages(collection_id, PAGE_ROWS, among=among, with_vectors=True)
        return next((problem for page in pages if (problem := self._compare_page(indexed, page))), "")

    def _compare_page(self, indexed: IndexedCollection, page: list[StoredRow]) -> str:
        self.between()
        names = {parsed[0]: None for row in page if (parsed := parse_chunk_id(row.id))}
        expected = {
            row.id: row for row in self.source.list_chunks(indexed, self.source.find_documents(indexed, names).values())
        }
        for row in page:
            expected_row = expected.get(row.id)
            if (
                expected_row is None
                or row.metadata != expected_row.metadata
                or row.text != (expected_row.text if self.with_texts else None)
            ):
                return _describe_wrong_row(indexed, row.id)
            if not self._has_vector(expected_row, row):
                return f"the vector of {row.id!r} of {indexed.collection.name!r} in Chroma differs from the index"
        return ""

    def _has_vector(self, expected: ChunkRow, row: StoredRow) -> bool:
        whole, floats = self.source.reader.read_vector(expected.row), array.array("f", row.vector)
        if math.isfinite(sum(floats)) and flat_files.quantise(floats.tobytes()) == whole:
            return True  # true for almost all rows, and ten times as fast
        return flat_files.matches_vector(whole, floats)


def _describe_wrong_number(indexed: IndexedCollection, number: int) -> str:
    return f"Chroma has {number} chunks of {indexed.collection.name!r}, but the index has {indexed.chunks}"


def _describe_wrong_row(indexed: IndexedCollection, name: str) -> str:
    return f"{name!r} of {indexed.collection.name!r} in Chroma differs from the index"
