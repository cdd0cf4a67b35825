"""Which chunks of an index pass the filters of a query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import compress

from vmrag_link.index.manifest import IndexedCollection, Manifest
from vmrag_link.retrieval.columns import MetadataColumns, by_chunk
from vmrag_link.retrieval.filters import Normal
from vmrag_link.retrieval.matching import Passes, keys_of, matching, matching_text

NEAR = 8
"""Rows that are read and dropped rather than asked around: a statement takes as long as so many."""

Texts = Callable[[int, range], Iterator[tuple[int, str]]]
"""The slots in a range of a collection (by id) that hold a text, and their texts, ascending."""


class ChunkFilter:
    """Both filters of a query in normal form.

    Metadata is evaluated once a document, and only those texts are read whose metadata pass.
    """

    def __init__(self, where: Normal | None, where_document: Normal | None) -> None:
        """Raises `FilterInvalid`."""
        self._columns = MetadataColumns(keys_of(where) if where else ())
        self._where = matching(where) if where else None
        self._where_document = matching_text(where_document) if where_document else None

    def slots(self, held: IndexedCollection, manifest: Manifest, texts: Texts) -> list[int]:
        """The slots of the chunks of a collection that pass, ascending."""
        if self._where is None:
            slots = sorted({*range(held.slots)}.difference(manifest.dead_slots(held)))
        else:
            slots = sorted(self._by_metadata(self._where, held, manifest))
        if self._where_document is None:
            return slots
        asked, passes = set(slots), self._where_document
        return [
            slot for near in _stretches(slots) for slot, text in texts(held.id, near) if slot in asked and passes(text)
        ]

    def _by_metadata(self, passes: Passes, held: IndexedCollection, manifest: Manifest) -> Iterator[int]:
        for documents in manifest.columns(held, header=self._columns.need_header):
            rows = by_chunk(documents) if self._columns.need_chunk else documents
            passed = passes(self._columns.of(rows, held.collection))
            if self._columns.need_chunk:
                yield from compress(rows.first, passed)
            else:
                for first, chunks in compress(zip(rows.first, rows.chunks, strict=True), passed):
                    yield from range(first, first + chunks)


def _stretches(slots: Sequence[int]) -> Iterator[range]:
    """Ranges that hold all of these ascending slots, and no long gap."""
    if not slots:
        return
    first = last = slots[0]
    for slot in slots:
        if slot - last > NEAR:
            yield range(first, last + 1)
            first = slot
        last = slot
    yield range(first, last + 1)
