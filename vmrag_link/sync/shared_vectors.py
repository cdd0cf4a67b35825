"""Vectors of services that a team computed once: from a Chroma server into the cache of vectors.

What a server serves counts as far as it belongs to the rows that are here, and somebody vouches for
it. Vectors that this machine computes itself are never asked for: to believe them, it would have to
compute them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from vmrag_link.chroma_server import contents, names
from vmrag_link.chroma_server.client import ChromaClient, RemoteCollection
from vmrag_link.chroma_server.contents import Expected
from vmrag_link.chroma_server.names import CollectionSeal
from vmrag_link.chroma_server.server import ServerAddress
from vmrag_link.chroma_server.share import is_current, problem
from vmrag_link.documents.chunking import chunks
from vmrag_link.embedding.base import Model
from vmrag_link.embedding.cache import EmbeddingCache
from vmrag_link.engines.base import Engine, root_of
from vmrag_link.errors import ChromaServerFailed, plural
from vmrag_link.models import Chunking, Collection, Document, content_hash
from vmrag_link.progress import DOWNLOADING, Progress
from vmrag_link.sync import vouchers

WAIT_SECONDS = 60.0
"""How long a client waits for another one that is building the collection."""

_POLL_SECONDS = 0.5


class _Lookup(NamedTuple):
    """What is asked for: the records of a collection by id, the vectors of its texts that are here,
    and the digests that all of them together may have.
    """

    collection: Collection
    name: str
    model: Model
    wanted: Mapping[str, Expected]
    have: Mapping[str, bytes]
    digests: AbstractSet[str]


class SharedVectors:
    """A server's collections of one knowledge base. Each is asked for once.

    `required`: what the server fails to do is raised, and not made up for here.
    """

    def __init__(
        self, engine: Engine, address: ServerAddress, cache: EmbeddingCache, progress: Progress, *, required: bool
    ) -> None:
        self._engine = engine
        self._client = ChromaClient(address)
        self._cache = cache
        self._progress = progress
        self._required = required
        self._asked = dict[tuple[str, str], bool]()

    def bring(self, collection: Collection, revision: str, *, model: Model, chunking: Chunking) -> bool:
        """Put the vectors of a revision's collection into the cache; whether it has them all now.

        `chunking`: as it is indexed. Without a voucher for it no server is asked. Raises
        `ChromaServerFailed` if the server is `required`.
        """
        asked = (collection.name, revision)
        if asked not in self._asked:
            self._asked[asked] = False  # also if it fails: the next batch would wait again
            contents = names.contents_of(collection, self._engine.headers(revision, collection=collection.name))
            digests = vouchers.digests(self._engine, contents)
            if digests:
                name = names.collection_name(names.owner_of(root_of(self._engine)), contents)
                wanted = _expected(self._engine.documents(revision, collection=collection.name), chunking)
                have = self._cache.get(
                    model.fingerprint,
                    [*{each.hash for each in wanted.values()}],
                    dimensions=model.dimensions,
                )
                self._asked[asked] = self._downloaded(_Lookup(collection, name, model, wanted, have, digests))
        return self._asked[asked]

    def _downloaded(self, lookup: _Lookup) -> bool:
        lacking = {name: each for name, each in lookup.wanted.items() if each.hash not in lookup.have}
        with self._progress.task(DOWNLOADING, len(lacking)) as task:  # whoever may not use a network refuses here
            try:
                found = self._sealed(lookup.name, lookup.wanted)
                if found:
                    self._take(found, lookup, lacking, task.advance)
            except ChromaServerFailed as error:
                if self._required:
                    raise
                self._progress.note(
                    f"{error.message} The texts of {lookup.collection.name!r} are embedded here instead."
                )
                return False
        return found is not None

    def _take(
        self,
        found: RemoteCollection,
        lookup: _Lookup,
        lacking: Mapping[str, Expected],
        advance: Callable[[int], None],
    ) -> None:
        """Download what is lacking. If that and what is here are not what somebody vouches for, all
        is downloaded: a service may have answered otherwise here.
        """
        size = lookup.model.dimensions
        got = contents.fetch_vectors(self._client, found, lacking, dimensions=size, advance=advance)
        if lookup.have and names.vectors_digest({**lookup.have, **got}.items()) not in lookup.digests:
            got = contents.fetch_vectors(self._client, found, lookup.wanted, dimensions=size, advance=advance)
        if names.vectors_digest({**lookup.have, **got}.items()) not in lookup.digests:  # `got` replaces what is here
            raise self._client.failure(
                f"serves other vectors in {found.name} than those that the knowledge base vouches for",
                hint="Whoever has its vectors mends it: vmrag doctor --fix",
            )
        self._cache.put(lookup.model.fingerprint, got)
        came = f"{plural(len(got), 'vector')} of {lookup.collection.name!r} came"
        self._progress.note(f"{came} from the Chroma server ({self._client.address.shown}).")

    def _sealed(self, name: str, wanted: Mapping[str, Expected]) -> RemoteCollection | None:
        """The collection, once whoever is building it has finished; None where there is none."""
        seal = CollectionSeal(len(wanted), names.records_digest(wanted), 0)
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            building = self._client.find(name + names.BUILDING)  # first: it gets the other name when it is complete
            if found := self._client.find(name):
                if why := problem(self._client, found, seal):
                    raise self._client.failure(f"does not have {name} as it was built: {why}")
                return found
            if building is None or not is_current(building.metadata or {}) or time.monotonic() > deadline:
                return None
            time.sleep(_POLL_SECONDS)


def _expected(documents: Iterable[Document], chunking: Chunking) -> dict[str, Expected]:
    """The records that these documents have on a server, by id."""
    found = {}
    for document in documents:
        for number, chunk in enumerate(chunks(document.content, chunking)):
            text_hash = content_hash(chunk.text)
            found[names.record_id(document.doc_id, number, text_hash)] = Expected(text_hash, len(chunk.text.encode()))
    return found
