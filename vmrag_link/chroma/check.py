"""Compare Chroma's store with an open index.

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
from vmrag_link.chroma.open_index import ChunkRow, DocumentRows, OpenIndex
from vmrag_link.errors import IndexFailed, is_too_long, path_too_long
from vmrag_link.index import flat_files
from vmrag_link.index.metadata import chunk_id, make_chroma_name, parse_chunk_id
from vmrag_link.index.view import IndexedCollection

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
        problem = _check_structure(store / DATABASE_FILE) if only is None else ""
        if problem:
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
        words = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'embedding_fulltext_search'")
        if words.fetchone()[0]:
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
            problem = self._compare_page(indexed, page)
            if problem:
                return problem
            row_count += len(page)
        # The numbers are enough, because Chroma never has the same id twice.
        return "" if row_count == indexed.chunks else _describe_wrong_number(indexed, row_count)

    def _compare_documents(
        self, collection_id: str, indexed: IndexedCollection, documents: Sequence[DocumentRows]
    ) -> str:
        expected = set(_list_chunk_ids(self.source.list_documents(indexed)))
        ids = self.store.list_ids(collection_id)
        if len(ids) != len(expected):
            return _describe_wrong_number(indexed, len(ids))
        unexpected = set(ids) - expected
        if unexpected:
            return _describe_wrong_row(indexed, min(unexpected))
        among = _list_chunk_ids(documents)
        pages = self.store.read_pages(collection_id, PAGE_ROWS, among=among, with_vectors=True)
        return next((problem for page in pages if (problem := self._compare_page(indexed, page))), "")

    def _compare_page(self, indexed: IndexedCollection, page: list[StoredRow]) -> str:
        self.between()
        names = {parsed[0]: None for row in page if (parsed := parse_chunk_id(row.id))}
        documents = self.source.find_documents(indexed, names).values()
        expected = {row.id: row for row in self.source.list_chunks(indexed, documents)}
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
        int8_vector = self.source.reader.read_vector(expected.row)
        floats = array.array("f", row.vector)
        if math.isfinite(sum(floats)) and flat_files.quantise(floats.tobytes()) == int8_vector:
            return True  # true for almost all rows, and ten times as fast
        return flat_files.matches_vector(int8_vector, floats)


def _list_chunk_ids(documents: Iterable[DocumentRows]) -> list[str]:
    return [chunk_id(document.header.doc_id, number) for document in documents for number in range(len(document.rows))]


def _describe_wrong_number(indexed: IndexedCollection, number: int) -> str:
    return f"Chroma has {number} chunks of {indexed.collection.name!r}, but the index has {indexed.chunks}"


def _describe_wrong_row(indexed: IndexedCollection, name: str) -> str:
    return f"{name!r} of {indexed.collection.name!r} in Chroma differs from the index"
