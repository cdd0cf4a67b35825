"""Which chunks of an index pass the filters of a query.

A filter on metadata compares with the values that Chroma would hold. They come as a column for a
key: `document_metadata` of a hundred thousand documents takes a second, a column of them a tenth.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import Any

import msgspec

from vmrag_link.index.metadata import chroma_value, document_metadata, is_chroma_key
from vmrag_link.index.reader import HeldColumns, IndexReader
from vmrag_link.models import Collection, DocumentHeader
from vmrag_link.retrieval.filters import Columns, Normal, Passes, keys_of, matching, matching_text

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


_OF_HEADER = frozenset({"title", "source_id", "content_hash", "source_table", "collection"})
_OF_CHUNK = frozenset({"chunk_index", "total_chunks"})
_KEPT_TYPES = frozenset({str, float, bool, type(None)})


class MetadataColumns:
    """Makes the columns of some keys, as `document_metadata` and `place` have them."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._keys = frozenset(keys)
        self.need_header = not _OF_HEADER.isdisjoint(self._keys)
        """Whether more of a document is looked at than its metadata."""

        self.need_chunk = not _OF_CHUNK.isdisjoint(self._keys)
        """Whether the chunks of a document differ in what is looked at."""

        fields = {key: f"key_{number}" for number, key in enumerate(filter(is_chroma_key, self._keys))}
        names = {field: key for key, field in fields.items()}
        self._given: dict[str, Callable[[Any], Any]]
        try:
            asked: Any = msgspec.defstruct("Asked", [(field, Any, None) for field in names], rename=names)
            self._given = {key: operator.attrgetter(field) for key, field in fields.items()}
        except ValueError:  # msgspec does not look for names that JSON escapes
            asked = dict[str, Any]
            self._given = {key: operator.methodcaller("get", key) for key in fields}
        self._decode = msgspec.json.Decoder(asked).decode

    def of_document(self, document: DocumentHeader, collection: Collection) -> Columns:
        """Of one whole document of a collection."""
        values = document_metadata(document, collection.table)
        return {key: [values.get(key)] for key in self._keys}

    def of(self, documents: HeldColumns, collection: Collection) -> Columns:
        """Of documents of a collection, or of their chunks (`by_chunk`)."""
        rows = [self._decode(each) for each in documents.metadata]
        found: dict[str, Sequence[Any]] = dict.fromkeys(self._keys, [None] * len(rows))
        for key, given in self._given.items():
            found[key] = [each if type(each) in _KEPT_TYPES else chroma_value(each) for each in map(given, rows)]
        if "title" in found:
            both = zip(found["title"], documents.title, strict=True)
            found["title"] = [title or None if each is None else each for each, title in both]
        own = {
            "source_id": documents.doc_id,
            "content_hash": documents.content_hash,
            "source_table": [collection.table] * len(rows),
            "collection": [collection.name] * len(rows),
            "chunk_index": documents.number,
            "total_chunks": documents.chunks,
        }
        return found | {key: column for key, column in own.items() if key in self._keys}


def by_chunk(documents: HeldColumns) -> HeldColumns:
    """Each document as often as it has chunks, with the row and number of each."""
    rows = [
        (first + number, chunks, number, *rest)
        for first, chunks, _, *rest in zip(*documents, strict=True)
        for number in range(chunks)
    ]
    return HeldColumns(*zip(*rows, strict=True)) if rows else HeldColumns(*[()] * len(documents))
