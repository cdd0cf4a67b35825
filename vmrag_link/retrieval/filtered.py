"""Which chunks of an index pass the filters of a query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress

from vmrag_link.index.reader import IndexReader
from vmrag_link.retrieval.columns import MetadataColumns, by_chunk
from vmrag_link.retrieval.filters import Normal
from vmrag_link.retrieval.matching import Passes, keys_of, matching, matching_text

NEAR = 8
"""Rows that are read and dropped rather than asked around: a statement takes as long as so many."""


class ChunkFilter:
    """Both filters of a query in normal form.

    Metadata is evaluated once a document, and only those texts are read whose metadata pass.
    """

    def __init__(self, where: Normal | None, where_document: Normal | None) -> None:
        """Raises `FilterInvalid`."""
        self._columns = MetadataColumns(keys_of(where) if where else ())
        self._where = matching(where) if where else None
        self._where_document = matching_text(where_document) if where_document else None

    def rows(self, index: IndexReader, collection: str) -> list[int]:
        """The rows of the chunks of a collection that pass, ascending."""
        where = self._where
        rows = index.rows(collection) if where is None else sorted(self._by_metadata(where, index, collection))
        if self._where_document is None:
            return rows
        asked, passes = set(rows), self._where_document
        return [row for near in _stretches(rows) for row, text in index.scan(near) if row in asked and passes(text)]

    def _by_metadata(self, passes: Passes, index: IndexReader, collection: str) -> Iterator[int]:
        definition = index.collections[collection].collection
        for documents in index.columns(collection, header=self._columns.need_header):
            rows = by_chunk(documents) if self._columns.need_chunk else documents
            passed = passes(self._columns.of(rows, definition))
            if self._columns.need_chunk:
                yield from compress(rows.first, passed)
            else:
                for first, chunks in compress(zip(rows.first, rows.chunks, strict=True), passed):
                    yield from range(first, first + chunks)


def _stretches(rows: Sequence[int]) -> Iterator[range]:
    """Ranges that hold all of these ascending rows, and no long gap."""
    if not rows:
        return
    first = last = rows[0]
    for row in rows:
        if row - last > NEAR:
            yield range(first, last + 1)
            first = row
        last = row
    yield range(first, last + 1)
