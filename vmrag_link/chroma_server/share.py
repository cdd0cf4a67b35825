"""Put a collection of a sealed index on a server: once, complete, and never changed afterwards.

Its builder is whoever makes the collection with the name for that, which only one client can have.
This lease ends by itself, because its holder may be gone. That two clients build at the same time
costs work and nothing else: each fills a collection of its own, and the first that is complete gets
the name. A collection that is there is compared with what its name promises.
"""

from __future__ import annotations

import array
import contextlib
import math
import os
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Literal

from vmrag_link import endpoint
from vmrag_link.chroma_server import contents
from vmrag_link.chroma_server.client import ChromaClient, RemoteCollection, SharedRow
from vmrag_link.chroma_server.contents import CollectionSeal, SharedContents, digest_vectors
from vmrag_link.errors import ChromaServerFailed
from vmrag_link.progress import QUIET, SHARING, Progress

ShareResult = Literal["there", "made", "elsewhere"]
"""It was on the server, it was put there, or another client is at it."""


def share_collection(
    client: ChromaClient,
    contents: SharedContents,
    name: str,
    seal: CollectionSeal,
    *,
    progress: Progress = QUIET,
) -> ShareResult:
    """Build the collection aside, compare it, seal it and give it its name in one step.

    `name` and `seal` are the contents' own. One that is there and is not what its name says is
    replaced. A failure leaves nothing. Raises `ChromaServerFailed`, and what the index's vectors
    raise.
    """
    if found := client.find_collection(name):
        if not find_share_problem(client, found, seal):
            return "there"
        remove_collection(client, found)
    lease = Lease(client, name)
    if not lease.acquire() or lease.collection is None:
        return "elsewhere"
    building = lease.collection
    try:
        if not client.find_collection(name):  # else its builder had just finished when the lease was free
            _fill(client, contents, lease, seal.count, progress)
        return _seal_and_name(client, building, name, seal, contents.label)
    except LeaseLost:
        return "elsewhere"
    except BaseException:
        with contextlib.suppress(ChromaServerFailed):
            remove_collection(client, building)
        raise


def _fill(client: ChromaClient, contents: SharedContents, lease: Lease, count: int, progress: Progress) -> None:
    """Add all records, and read each back. Raises `LeaseLost`."""
    building = lease.collection
    assert building is not None  # noqa: S101  it was taken
    with progress.task(SHARING, count) as task:
        for rows in contents.batch_rows(client.limits):
            lease.renew()
            client.add_records(building, rows)
            if why := find_changed_record(client, building, rows, contents.dimensions):
                raise client.make_error(f"did not keep what it was given: {why}")
            task.advance(len(rows))
    if client.count_records(building) != count:
        raise client.make_error(f"holds another number of records than it was given, in {building.name}")


def _seal_and_name(
    client: ChromaClient, building: RemoteCollection, name: str, seal: CollectionSeal, label: str
) -> ShareResult:
    """Seal the collection and give it its name, unless another client was faster.

    A request or its answer may be lost, so what counts is what is there afterwards.
    """
    for _ in range(endpoint.ATTEMPTS):
        found = client.find_collection(name)
        if found is None:
            client.update_collection(building, name=name, metadata=seal.to_metadata(label))
            found = client.find_collection(name)
        if found and found.id == building.id:
            return "made"
        if found and not find_share_problem(client, found, seal):
            remove_collection(client, building)
            return "there"
    raise client.make_error(f"did not give the collection {building.name} its name")


VECTOR_TOLERANCE = 0.1
"""How far apart two vectors of length 1 may be that one model made on two processors."""


def find_share_problem(client: ChromaClient, found: RemoteCollection, wanted: CollectionSeal) -> str:
    """Why a collection cannot be whole, by its seal and number of records; empty if it may be."""
    seal = contents.parse_seal(found.metadata)
    if seal is None:
        return "it was never sealed"
    if (seal.count, seal.records) != (wanted.count, wanted.records):
        return "its seal is another collection's"
    there = client.count_records(found)
    return "" if there == seal.count else f"it holds {there} records in place of {seal.count}"


def find_changed_record(
    client: ChromaClient, found: RemoteCollection, rows: Sequence[SharedRow], dimensions: int
) -> str:
    """How some records differ from these rows; empty if they do not. Reads them."""
    lengths = {row.id: len((row.text or "").encode()) for row in rows}
    there = client.read_records(found, lengths, dimensions=dimensions)
    changed = [row.id for row in rows if there[row.id] != (row.vector, row.text)]
    return f"record {changed[0]} is another one" if changed else ""


def find_difference(
    client: ChromaClient, found: RemoteCollection, contents: SharedContents, vouched: AbstractSet[str] | None
) -> str:
    """As `problem`, of every record.

    `vouched`: digests that its vectors may have, where they are a service's, which answers
    otherwise to another client; None: they have to be nearly those that are here, because other
    processors compute other last bits. A text that the server was never given is no difference.
    """
    if why := find_share_problem(client, found, contents.make_seal()):
        return why
    hashes, vectors = contents.list_hashes(), list[tuple[str, bytes]]()
    for rows in contents.batch_rows(client.limits):
        lengths = {row.id: len((row.text or "").encode()) for row in rows}
        there = client.read_records(found, lengths, dimensions=contents.dimensions)
        for row in rows:
            vector, text = there[row.id]
            if text not in (None, row.text):
                return f"the text of record {row.id} is another one"
            if vouched is None and not _alike(vector, row.vector):
                return f"the vector of record {row.id} is another one"
            vectors.append((hashes[row.id], vector))
    if vouched is not None and digest_vectors(vectors) not in vouched:
        return "nobody vouches for its vectors"
    return ""


def _alike(one: bytes, other: bytes) -> bool:
    a, b = array.array("f", one), array.array("f", other)
    return math.dist(a, b) < VECTOR_TOLERANCE * max(1.0, math.hypot(*b))


LEASE_SECONDS = 120.0
_ATTEMPTS = 3
_HOLDER, _UNTIL = "vmrag_holder", "vmrag_until"


class LeaseLost(Exception):
    """Another client took over."""


class Lease:
    """A collection in the making, which is ours for some time; `keep` prolongs that."""

    def __init__(self, client: ChromaClient, name: str) -> None:
        self._client = client
        self._name = name + contents.BUILDING
        self._holder = os.urandom(8).hex()
        self._renewed = 0.0
        self.collection: RemoteCollection | None = None

    def acquire(self) -> bool:
        """Whether it is ours now. What a holder left whose lease has ended is removed."""
        for _ in range(_ATTEMPTS):
            self._renewed = time.monotonic()
            self.collection = self._client.create_collection(self._name, self._metadata())
            if self.collection:
                return True
            found = self._client.find_collection(self._name)
            if found is None:
                continue  # its holder has just finished, or gone
            metadata = found.metadata or {}
            if metadata.get(_HOLDER) == self._holder:  # the answer to our first attempt was lost
                self.collection = found
                return True
            if is_lease_current(metadata):
                return False
            remove_collection(self._client, found)
        return False

    def renew(self) -> None:
        """Prolong the lease if it is time to. Raises `LeaseLost`."""
        if time.monotonic() - self._renewed < LEASE_SECONDS / 4 or self.collection is None:
            return
        if not self._client.update_collection(self.collection, metadata=self._metadata()):
            raise LeaseLost
        self._renewed = time.monotonic()

    def _metadata(self) -> dict[str, Any]:
        return {_HOLDER: self._holder, _UNTIL: int(time.time() + LEASE_SECONDS)}


def is_lease_current(metadata: dict[str, Any]) -> bool:
    """Whether a lease still holds. One that is longer than any of ours does not count."""
    until = metadata.get(_UNTIL)
    return isinstance(until, int) and time.time() < until <= time.time() + 10 * LEASE_SECONDS


def remove_collection(client: ChromaClient, found: RemoteCollection) -> None:
    """Remove exactly this collection: it gets a name of its own first, because collections are
    deleted by name, and a new one may have taken this one's.
    """
    gone = contents.make_abandoned_name(found.name)
    if client.update_collection(found, name=gone, metadata=found.metadata or {_HOLDER: ""}):
        client.delete_collection(gone)
