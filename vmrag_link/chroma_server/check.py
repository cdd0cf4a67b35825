"""Whether a collection on a server still is what its name promises."""

from __future__ import annotations

import array
import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from vmrag_link.chroma_server import names
from vmrag_link.chroma_server.client import ChromaClient, RemoteCollection, SharedRow
from vmrag_link.chroma_server.contents import SharedContents
from vmrag_link.chroma_server.names import CollectionSeal

ALIKE = 0.1
"""How far apart two vectors of length 1 may be that one model made on two processors."""


def problem(client: ChromaClient, found: RemoteCollection, wanted: CollectionSeal) -> str:
    """Why a collection cannot be whole, by its seal and number of records; empty if it may be."""
    seal = names.seal_of(found.metadata)
    if seal is None:
        return "it was never sealed"
    if (seal.count, seal.records) != (wanted.count, wanted.records):
        return "its seal is another collection's"
    there = client.count(found)
    return "" if there == seal.count else f"it holds {there} records in place of {seal.count}"


def compared(client: ChromaClient, found: RemoteCollection, rows: Sequence[SharedRow], dimensions: int) -> str:
    """How some records differ from these rows; empty if they do not. Reads them."""
    lengths = {row.id: len((row.text or "").encode()) for row in rows}
    there = client.get(found, lengths, dimensions=dimensions)
    changed = [row.id for row in rows if there[row.id] != (row.vector, row.text)]
    return f"record {changed[0]} is another one" if changed else ""


def difference(
    client: ChromaClient, found: RemoteCollection, contents: SharedContents, vouched: AbstractSet[str] | None
) -> str:
    """As `problem`, of every record.

    `vouched`: digests that its vectors may have, where they are a service's, which answers
    otherwise to another client; None: they have to be nearly those that are here, because other
    processors compute other last bits. A text that the server was never given is no difference.
    """
    if why := problem(client, found, contents.seal()):
        return why
    hashes, vectors = contents.hashes(), list[tuple[str, bytes]]()
    for rows in contents.rows(client.limits):
        lengths = {row.id: len((row.text or "").encode()) for row in rows}
        there = client.get(found, lengths, dimensions=contents.dimensions)
        for row in rows:
            vector, text = there[row.id]
            if text not in (None, row.text):
                return f"the text of record {row.id} is another one"
            if vouched is None and not _alike(vector, row.vector):
                return f"the vector of record {row.id} is another one"
            vectors.append((hashes[row.id], vector))
    if vouched is not None and names.vectors_digest(vectors) not in vouched:
        return "nobody vouches for its vectors"
    return ""


def _alike(one: bytes, other: bytes) -> bool:
    a, b = array.array("f", one), array.array("f", other)
    return math.dist(a, b) < ALIKE * max(1.0, math.hypot(*b))
