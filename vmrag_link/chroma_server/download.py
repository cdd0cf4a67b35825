"""Vectors of a sealed collection, as far as they belong to texts that are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from vmrag_link.chroma_server.client import ChromaClient, RemoteCollection, shown
from vmrag_link.chroma_server.limits import batches
from vmrag_link.models import content_hash


class Expected(NamedTuple):
    """A record that a server has to have: the hash of a chunk's text, and its bytes."""

    hash: str
    length: int


def vectors(
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
