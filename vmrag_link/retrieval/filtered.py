"""Which chunks of an index pass the filters of a query."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from vmrag_link.index.manifest import IndexedCollection, Manifest
from vmrag_link.index.metadata import metadata_reader, place
from vmrag_link.retrieval.filters import Normal
from vmrag_link.retrieval.matching import keys_of, matching, matching_text

NEAR = 8
"""Rows that are read and dropped rather than asked around: a statement takes as long as so many."""

Texts = Callable[[int, range], Iterator[tuple[int, str]]]
"""The slots in a range of a collection (by id) that hold a text, and their texts, ascending."""

_OF_CHUNKS = frozenset({"chunk_index", "total_chunks"})
"""Keys of metadata whose values are not the document's."""


class ChunkFilter:
    """Both filters of a query in normal form.

    Metadata is evaluated once a document, and only those texts are read whose metadata pass.
    """

    def __init__(self, where: Normal | None, where_document: Normal | None) -> None:
        """Raises `FilterInvalid`."""
        self._keys = keys_of(where) if where else frozenset()
        self._passes = matching(where) if where else None
        self._reads = matching_text(where_document) if where_document else None

    def slots(self, held: IndexedCollection, manifest: Manifest, texts: Texts) -> list[int]:
        """The slots of the chunks of a collection that pass, ascending."""
        slots = sorted(self._by_metadata(held, manifest))
        return slots if self._reads is None else [*self._by_text(held, texts, slots)]

    def _by_metadata(self, held: IndexedCollection, manifest: Manifest) -> Iterator[int]:
        read, by_chunk = metadata_reader(self._keys), not self._keys.isdisjoint(_OF_CHUNKS)
        for header, slots in manifest.placed(held):
            if self._passes is None:
                yield from slots
                continue
            values = read(header)
            if by_chunk:
                for number, slot in enumerate(slots):
                    if self._passes(values | place(header, number, len(slots))):
                        yield slot
            elif self._passes(values):
                yield from slots

    def _by_text(self, held: IndexedCollection, texts: Texts, slots: Sequence[int]) -> Iterator[int]:
        assert self._reads is not None  # noqa: S101  the caller asked
        asked = set(slots)
        for near in _stretches(slots):
            for slot, text in texts(held.id, near):
                if slot in asked and self._reads(text):
                    yield slot


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
