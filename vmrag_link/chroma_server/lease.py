"""Who builds a collection: whoever makes the one with the name for that, which only one can have.

The lease ends by itself, because its holder may be gone. That two build at the same time costs work
and nothing else: each fills a collection of its own, and the first that is complete gets the name.
"""

from __future__ import annotations

import os
import time
from typing import Any

from vmrag_link.chroma_server import names
from vmrag_link.chroma_server.client import ChromaClient, RemoteCollection

LEASE_SECONDS = 120.0
_ATTEMPTS = 3
_HOLDER, _UNTIL = "vmrag_holder", "vmrag_until"


class LeaseLost(Exception):
    """Another client took over."""


class Lease:
    """A collection in the making, which is ours for some time; `keep` prolongs that."""

    def __init__(self, client: ChromaClient, name: str) -> None:
        self._client = client
        self._name = name + names.BUILDING
        self._holder = os.urandom(8).hex()
        self._renewed = 0.0
        self.collection: RemoteCollection | None = None

    def take(self) -> bool:
        """Whether it is ours now. What a holder left whose lease has ended is removed."""
        for _ in range(_ATTEMPTS):
            self._renewed = time.monotonic()
            self.collection = self._client.create(self._name, self._metadata())
            if self.collection:
                return True
            found = self._client.find(self._name)
            if found is None:
                continue  # its holder has just finished, or gone
            metadata = found.metadata or {}
            if metadata.get(_HOLDER) == self._holder:  # the answer to our first attempt was lost
                self.collection = found
                return True
            if is_current(metadata):
                return False
            give_up(self._client, found)
        return False

    def keep(self) -> None:
        """Prolong the lease if it is time to. Raises `LeaseLost`."""
        if time.monotonic() - self._renewed < LEASE_SECONDS / 4 or self.collection is None:
            return
        if not self._client.change(self.collection, metadata=self._metadata()):
            raise LeaseLost
        self._renewed = time.monotonic()

    def _metadata(self) -> dict[str, Any]:
        return {_HOLDER: self._holder, _UNTIL: int(time.time() + LEASE_SECONDS)}


def is_current(metadata: dict[str, Any]) -> bool:
    """Whether a lease still holds. One that is longer than any of ours does not count."""
    until = metadata.get(_UNTIL)
    return isinstance(until, int) and time.time() < until <= time.time() + 10 * LEASE_SECONDS


def give_up(client: ChromaClient, found: RemoteCollection) -> None:
    """Remove exactly this collection: it gets a name of its own first, because collections are
    deleted by name, and a new one may have taken this one's.
    """
    gone = names.given_up_name(found.name)
    if client.change(found, name=gone, metadata=found.metadata or {_HOLDER: ""}):
        client.delete(gone)
