"""Put a collection of a sealed index on a server: once, complete, and never changed afterwards."""

from __future__ import annotations

import contextlib
from typing import Literal

from vmrag_link import endpoint
from vmrag_link.chroma_server.check import compared, problem
from vmrag_link.chroma_server.client import ChromaClient, RemoteCollection
from vmrag_link.chroma_server.contents import SharedContents
from vmrag_link.chroma_server.lease import Lease, LeaseLost, give_up
from vmrag_link.chroma_server.names import CollectionSeal
from vmrag_link.errors import ChromaServerFailed
from vmrag_link.progress import QUIET, SHARING, Progress

How = Literal["there", "made", "elsewhere"]
"""It was on the server, it was put there, or another client is at it."""


def share(
    client: ChromaClient,
    contents: SharedContents,
    name: str,
    seal: CollectionSeal,
    *,
    progress: Progress = QUIET,
) -> How:
    """Build the collection aside, compare it, seal it and give it its name in one step.

    `name` and `seal` are the contents' own. One that is there and is not what its name says is
    replaced. A failure leaves nothing. Raises `ChromaServerFailed`, and what the index's vectors
    raise.
    """
    if found := client.find(name):
        if not problem(client, found, seal):
            return "there"
        give_up(client, found)
    lease = Lease(client, name)
    if not lease.take() or lease.collection is None:
        return "elsewhere"
    building = lease.collection
    try:
        if not client.find(name):  # else its builder had just finished when the lease was free
            _fill(client, contents, lease, seal.count, progress)
        return _named(client, building, name, seal, contents.label)
    except LeaseLost:
        return "elsewhere"
    except BaseException:
        with contextlib.suppress(ChromaServerFailed):
            give_up(client, building)
        raise


def _fill(client: ChromaClient, contents: SharedContents, lease: Lease, count: int, progress: Progress) -> None:
    """Add all records, and read each back. Raises `LeaseLost`."""
    building = lease.collection
    assert building is not None  # noqa: S101  it was taken
    with progress.task(SHARING, count) as task:
        for rows in contents.rows(client.limits):
            lease.keep()
            client.add(building, rows)
            if why := compared(client, building, rows, contents.dimensions):
                raise client.failure(f"did not keep what it was given: {why}")
            task.advance(len(rows))
    if client.count(building) != count:
        raise client.failure(f"holds another number of records than it was given, in {building.name}")


def _named(client: ChromaClient, building: RemoteCollection, name: str, seal: CollectionSeal, label: str) -> How:
    """Seal the collection and give it its name, unless another client was faster.

    A request or its answer may be lost, so what counts is what is there afterwards.
    """
    for _ in range(endpoint.ATTEMPTS):
        found = client.find(name)
        if found is None:
            client.change(building, name=name, metadata=seal.metadata(label))
            found = client.find(name)
        if found and found.id == building.id:
            return "made"
        if found and not problem(client, found, seal):
            give_up(client, building)
            return "there"
    raise client.failure(f"did not give the collection {building.name} its name")
