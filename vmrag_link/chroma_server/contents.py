"""A collection of a sealed index as it is on a server; and the vectors of such a collection, as far
as they belong to texts that are known here.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from vmrag_link.chroma.open_index import ChunkRow, OpenIndex, Placed, Vectors
from vmrag_link.chroma_server import names
from vmrag_link.chroma_server.client import ChromaClient, RemoteCollection, SharedRow, shown
from vmrag_link.chroma_server.names import CollectionSeal
from vmrag_link.chroma_server.server import ServerLimits, batches
from vmrag_link.index.metadata import RESERVED_METADATA
from vmrag_link.index.view import IndexedCollection
from vmrag_link.models import content_hash

_AT_ONCE = 500
"""Documents whose texts are read together."""


class SharedContents(NamedTuple):
    """A collection of an open index, as it is to be on a server."""

    source: OpenIndex
    held: IndexedCollection
    owner: str
    vectors: Vectors
    with_texts: bool

    @property
    def label(self) -> str:
        """The collection's name in the knowledge base."""
        return self.held.collection.name

    @property
    def dimensions(self) -> int:
        return self.held.collection.embedding_dimensions

    @property
    def contents(self) -> str:
        """As `names.contents_of`."""
        return names.contents_of(self.held.collection, (each.header for each in self.source.placed(self.held)))

    @property
    def name(self) -> str:
        """The collection's name on a server: equal contents have equal names."""
        return names.collection_name(self.owner, self.contents)

    def hashes(self) -> dict[str, str]:
        """The hash of each record's text, by the record's id."""
        return {_record_id(each): content_hash(each.text) for chunks in self._chunks() for each in chunks}

    def seal(self) -> CollectionSeal:
        """What the collection says of itself when it is complete."""
        hashes = self.hashes()
        return CollectionSeal(len(hashes), names.records_digest(hashes), int(time.time()))

    def rows(self, limits: ServerLimits) -> Iterator[list[SharedRow]]:
        """All records, as many in a request as the server takes."""
        return batches(self._rows(limits), limits.records)

    def vectors_digest(self) -> str:
        """As `names.vectors_digest`, of all texts."""
        return names.vectors_digest((content_hash(chunk.text), vector) for chunk, vector in self._embedded())

    def _rows(self, limits: ServerLimits) -> Iterator[tuple[SharedRow, int]]:
        for chunk, vector in self._embedded():
            length = len(chunk.text.encode())
            fits = limits.text_bytes is None or length <= limits.text_bytes
            text = chunk.text if self.with_texts and fits else None
            metadata = chunk.metadata if limits.metadata else _place_alone(chunk.metadata)
            yield SharedRow(_record_id(chunk), vector, text, metadata), length + len(vector)

    def _embedded(self) -> Iterator[tuple[ChunkRow, bytes]]:
        """All chunks with their vectors, a text always with the same: a service that was asked
        twice may have answered otherwise.
        """
        repeated = {name for name, number in Counter(self.hashes().values()).items() if number > 1}
        first: dict[str, bytes] = {}
        for chunks in self._chunks():
            vectors = self.vectors(self.source.reader, self.held, {each.row: each.text for each in chunks})
            for each in chunks:
                name, vector = content_hash(each.text), vectors[each.row]
                yield each, first.setdefault(name, vector) if name in repeated else vector

    def _chunks(self) -> Iterator[list[ChunkRow]]:
        batch: list[Placed] = []
        for each in self.source.placed(self.held):
            batch.append(each)
            if len(batch) == _AT_ONCE:
                yield self.source.chunks(self.held, batch)
                batch = []
        if batch:
            yield self.source.chunks(self.held, batch)


def _record_id(chunk: ChunkRow) -> str:
    number = chunk.metadata["chunk_index"]
    return names.record_id(str(chunk.metadata["source_id"]), int(str(number)), content_hash(chunk.text))


def _place_alone(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key in RESERVED_METADATA}


class Expected(NamedTuple):
    """A record that a server has to have: the hash of a chunk's text, and its bytes."""

    hash: str
    length: int


def fetch_vectors(
    client: ChromaClient,
    found: RemoteCollection,
    wanted: Mapping[str, Expected],
    *,
    dimensions: int,
    advance: Callable[[int], None],
) -> dict[str, bytes]:
    """The float32 vectors of these records, by the hashes of their texts; `advance` counts records.

    Raises `ChromaServerFailed` where a record is missing, has another text, or one text two
    vectors.
    """
    got: dict[str, bytes] = {}
    sizes = ((name, each.length) for name, each in wanted.items())
    for page in batches(sizes, client.limits.records):
        lengths = {name: wanted[name].length for name in page}
        for name, (vector, text) in client.get(found, lengths, dimensions=dimensions).items():
            expected = wanted[name]
            if text is not None and content_hash(text) != expected.hash:
                raise client.failure(f"changed a text in the collection {shown(found.name)}")
            if got.setdefault(expected.hash, vector) != vector:
                raise client.failure(f"has two vectors for one text in the collection {shown(found.name)}")
        advance(len(page))
    return got
