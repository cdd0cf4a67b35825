"""Share a collection of a sealed index on a server. It is written once, and never changed
afterwards.

The client that creates the collection with the name for building has the lease, because only one
client can create a collection with a name. The lease expires, because its holder may have ended. If
two clients build at the same time, this only costs work: each fills its own collection, and the
first complete one gets the final name. An existing collection is compared with its name.
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
"""The collection was already on the server, was built now, or is being built by another client."""


def share_collection(
    client: ChromaClient,
    contents: SharedContents,
    name: str,
    seal: CollectionSeal,
    *,
    progress: Progress = QUIET,
) -> ShareResult:
    """Build a collection under a temporary name, compare it, seal it and rename it in one step.

    `name` and `seal` belong to the contents. An existing collection that does not match its name is
    replaced. A failure leaves nothing behind. Raises `ChromaServerFailed`, and the errors of the
    index's vectors.
    """
    existing = client.find_collection(name)
    if existing:
        if not find_share_problem(client, existing, seal):
            return "there"
        remove_collection(client, existing)
    lease = take_lease(client, name)
    if lease is None:
        return "elsewhere"
    building = lease.collection
    try:
        if not client.find_collection(name):  # otherwise another client has just finished it
            _fill_collection(client, contents, lease, seal.count, progress)
        return _seal_and_name(client, building, name, seal, contents.label)
    except LeaseLost:
        return "elsewhere"
    except BaseException:
        with contextlib.suppress(ChromaServerFailed):
            remove_collection(client, building)
        raise


def _fill_collection(
    client: ChromaClient, contents: SharedContents, lease: Lease, count: int, progress: Progress
) -> None:
    """Add all records, and read each one back. Raises `LeaseLost`."""
    building = lease.collection
    with progress.task(SHARING, count) as task:
        for rows in contents.batch_rows(client.limits):
            lease.renew()
            client.add_records(building, rows)
            difference = find_changed_record(client, building, rows, contents.dimensions)
            if difference:
                raise client.make_error(f"did not store the records correctly: {difference}")
            task.advance(len(rows))
    if client.count_records(building) != count:
        raise client.make_error(f"has a wrong number of records in the collection {building.name}")


def _seal_and_name(
    client: ChromaClient, building: RemoteCollection, name: str, seal: CollectionSeal, label: str
) -> ShareResult:
    """Seal the collection and rename it, unless another client was faster.

    A request or its answer may be lost, so the state of the server afterwards decides.
    """
    for _ in range(endpoint.ATTEMPTS):
        collection = client.find_collection(name)
        if collection is None:
            client.update_collection(building, name=name, metadata=seal.to_metadata(label))
            collection = client.find_collection(name)
        if collection and collection.id == building.id:
            return "made"
        if collection and not find_share_problem(client, collection, seal):
            remove_collection(client, building)
            return "there"
    raise client.make_error(f"did not rename the collection {building.name}")


VECTOR_TOLERANCE = 0.1
"""Maximum distance between two vectors of length 1 that one model computed on two processors."""


def find_share_problem(client: ChromaClient, collection: RemoteCollection, expected: CollectionSeal) -> str:
    """Return why a collection cannot be complete, by its seal and number of records; empty if it
    may be.
    """
    seal = contents.parse_seal(collection.metadata)
    if seal is None:
        return "it was never sealed"
    if (seal.count, seal.records) != (expected.count, expected.records):
        return "it has the seal of another collection"
    count = client.count_records(collection)
    return "" if count == seal.count else f"it has {count} records instead of {seal.count}"


def find_changed_record(
    client: ChromaClient, collection: RemoteCollection, rows: Sequence[SharedRow], dimensions: int
) -> str:
    """Read some records, and return how one differs from these rows; empty if none differs."""
    lengths = {row.id: len((row.text or "").encode()) for row in rows}
    records = client.read_records(collection, lengths, dimensions=dimensions)
    changed = [row.id for row in rows if records[row.id] != (row.vector, row.text)]
    return f"record {changed[0]} differs" if changed else ""


def find_difference(
    client: ChromaClient,
    collection: RemoteCollection,
    contents: SharedContents,
    trusted_digests: AbstractSet[str] | None,
) -> str:
    """Read every record of a collection, and return the first difference from the contents; empty
    if there is none.

    `trusted_digests`: the digests that its vectors may have if a service computed them, because a
    service answers another client differently. None: the vectors must be similar to the local ones,
    because other processors compute other last bits. A text that the server was never given is not
    a difference.
    """
    problem = find_share_problem(client, collection, contents.make_seal())
    if problem:
        return problem
    hashes = contents.list_hashes()
    vectors: list[tuple[str, bytes]] = []
    for rows in contents.batch_rows(client.limits):
        lengths = {row.id: len((row.text or "").encode()) for row in rows}
        records = client.read_records(collection, lengths, dimensions=contents.dimensions)
        for row in rows:
            vector, text = records[row.id]
            if text not in (None, row.text):
                return f"the text of record {row.id} differs"
            if trusted_digests is None and not _are_similar(vector, row.vector):
                return f"the vector of record {row.id} differs"
            vectors.append((hashes[row.id], vector))
    if trusted_digests is not None and digest_vectors(vectors) not in trusted_digests:
        return "its vectors are not trusted"
    return ""


def _are_similar(one: bytes, other: bytes) -> bool:
    first = array.array("f", one)
    second = array.array("f", other)
    return math.dist(first, second) < VECTOR_TOLERANCE * max(1.0, math.hypot(*second))


LEASE_SECONDS = 120.0
_ATTEMPTS = 3

_HOLDER = "vmrag_holder"
"""Key in the metadata of a collection: the client with the lease."""

_UNTIL = "vmrag_until"
"""Key in the metadata of a collection: the end of the lease, in seconds since 1970."""


class LeaseLost(Exception):
    """Another client has the lease."""


class Lease:
    """The right to build a collection, for a limited time. `take_lease` creates it."""

    def __init__(self, client: ChromaClient, collection: RemoteCollection, holder: str, started: float) -> None:
        """`started`: the monotonic time before the request that took the lease."""
        self._client = client
        self._holder = holder
        self._renewed = started
        self.collection = collection

    def renew(self) -> None:
        """Extend the lease if it is time to. Raises `LeaseLost`."""
        if time.monotonic() - self._renewed < LEASE_SECONDS / 4:
            return
        started = time.monotonic()  # before the request, which can take long
        if not self._client.update_collection(self.collection, metadata=_build_metadata(self._holder)):
            raise LeaseLost
        self._renewed = started


def take_lease(client: ChromaClient, name: str) -> Lease | None:
    """Return a lease for building a collection; None if another client has it.

    A collection with an expired lease is removed.
    """
    building_name = name + contents.BUILDING
    holder = os.urandom(8).hex()
    for _ in range(_ATTEMPTS):
        started = time.monotonic()
        collection = client.create_collection(building_name, _build_metadata(holder))
        if collection:
            return Lease(client, collection, holder, started)
        existing = client.find_collection(building_name)
        if existing is None:
            continue  # its holder has just finished or removed it
        metadata = existing.metadata or {}
        if metadata.get(_HOLDER) == holder:  # the answer to our first attempt was lost
            return Lease(client, existing, holder, started)
        if is_lease_current(metadata):
            return None
        remove_collection(client, existing)
    return None


def _build_metadata(holder: str) -> dict[str, Any]:
    return {_HOLDER: holder, _UNTIL: int(time.time() + LEASE_SECONDS)}


def is_lease_current(metadata: dict[str, Any]) -> bool:
    """Return whether a lease is still valid. A lease that is longer than vmrag's leases is
    invalid.
    """
    until = metadata.get(_UNTIL)
    return isinstance(until, int) and time.time() < until <= time.time() + 10 * LEASE_SECONDS


def remove_collection(client: ChromaClient, collection: RemoteCollection) -> None:
    """Remove exactly this collection.

    It is renamed first, because collections are deleted by name, and another collection may have
    the name by now.
    """
    abandoned_name = contents.make_abandoned_name(collection.name)
    if client.update_collection(collection, name=abandoned_name, metadata=collection.metadata or {_HOLDER: ""}):
        client.delete_collection(abandoned_name)
