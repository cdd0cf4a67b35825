"""Vectors of services that a team computed once: from a Chroma server into the cache of vectors.

A server's vectors are used if they belong to the rows of this clone, and if there is a voucher for
them (`vouchers`).

Vectors of models on this machine are never fetched: to verify them, this machine would have to
compute them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from vmrag_link.chroma_server.client import ChromaClient, RemoteCollection
from vmrag_link.chroma_server.contents import (
    BUILDING,
    CollectionSeal,
    ExpectedRecord,
    collection_name,
    digest_records,
    digest_vectors,
    fetch_vectors,
    fingerprint_contents,
    make_owner_mark,
    record_id,
)
from vmrag_link.chroma_server.server import ServerAddress
from vmrag_link.chroma_server.share import find_share_problem, is_lease_current
from vmrag_link.documents.chunking import split_document
from vmrag_link.embedding.base import Model
from vmrag_link.embedding.cache import EmbeddingCache
from vmrag_link.engines.base import Engine
from vmrag_link.engines.own_branches import read_root
from vmrag_link.errors import ChromaServerFailed, plural
from vmrag_link.models import Chunking, Collection, Document, content_hash
from vmrag_link.progress import DOWNLOADING, Progress
from vmrag_link.sync.vouchers import read_digests

WAIT_SECONDS = 60.0
"""Time for which a client waits for another one that builds the collection."""

_POLL_SECONDS = 0.5


class _VectorLookup(NamedTuple):
    """A request for the vectors of a collection."""

    collection: Collection
    name: str
    model: Model
    records: Mapping[str, ExpectedRecord]
    """Its records by id."""
    cached: Mapping[str, bytes]
    """The vectors of its texts in the cache."""
    digests: AbstractSet[str]
    """The accepted digests of all vectors together."""


class SharedVectors:
    """A server's collections of one knowledge base. Each is requested once.

    `required`: raise errors of the server instead of embedding the texts here.
    """

    def __init__(
        self, engine: Engine, address: ServerAddress, cache: EmbeddingCache, progress: Progress, *, required: bool
    ) -> None:
        self._engine = engine
        self._client = ChromaClient(address)
        self._cache = cache
        self._progress = progress
        self._required = required
        self._has_vectors = dict[tuple[str, str], bool]()

    def fetch_vectors(self, collection: Collection, revision: str, *, model: Model, chunking: Chunking) -> bool:
        """Put the vectors of a revision's collection into the cache, and return whether it has all
        of them now.

        `chunking`: the one with which it is indexed. Without a voucher the server is not contacted.
        Raises `ChromaServerFailed` if the server is `required`.
        """
        key = (collection.name, revision)
        if key not in self._has_vectors:
            self._has_vectors[key] = False  # also after a failure, because the next batch would wait again
            contents = fingerprint_contents(collection, self._engine.read_headers(revision, collection=collection.name))
            expected = read_digests(self._engine, contents)
            if expected:
                name = collection_name(make_owner_mark(read_root(self._engine)), contents)
                records = _list_expected(self._engine.read_documents(revision, collection=collection.name), chunking)
                cached = self._cache.read_vectors(
                    model.fingerprint,
                    [*{record.hash for record in records.values()}],
                    dimensions=model.dimensions,
                )
                lookup = _VectorLookup(
                    collection=collection, name=name, model=model, records=records, cached=cached, digests=expected
                )
                self._has_vectors[key] = self._download_vectors(lookup)
        return self._has_vectors[key]

    def _download_vectors(self, lookup: _VectorLookup) -> bool:
        lacking = {name: record for name, record in lookup.records.items() if record.hash not in lookup.cached}
        with self._progress.task(DOWNLOADING, len(lacking)) as task:  # raises if the network is not allowed
            try:
                remote = self._find_sealed(lookup.name, lookup.records)
                if remote:
                    self._cache_vectors(remote, lookup, lacking, task.advance)
            except ChromaServerFailed as error:
                if self._required:
                    raise
                self._progress.note(
                    f"{error.message} The texts of {lookup.collection.name!r} are embedded here instead."
                )
                return False
        return remote is not None

    def _cache_vectors(
        self,
        remote: RemoteCollection,
        lookup: _VectorLookup,
        lacking: Mapping[str, ExpectedRecord],
        advance: Callable[[int], None],
    ) -> None:
        """Download the missing vectors into the cache.

        If they and the cached ones do not have a vouched digest, all are downloaded, because the
        service may have returned different vectors here.
        """
        size = lookup.model.dimensions
        vectors = fetch_vectors(self._client, remote, lacking, dimensions=size, advance=advance)
        if lookup.cached and digest_vectors({**lookup.cached, **vectors}.items()) not in lookup.digests:
            vectors = fetch_vectors(self._client, remote, lookup.records, dimensions=size, advance=advance)
        if (
            digest_vectors({**lookup.cached, **vectors}.items()) not in lookup.digests
        ):  # new vectors replace cached ones
            raise self._client.make_error(
                f"serves other vectors in {remote.name} than those that the knowledge base vouches for",
                hint="run 'vmrag doctor --fix' in a clone that has the vectors",
            )
        self._cache.store_vectors(lookup.model.fingerprint, vectors)
        number = f"{plural(len(vectors), 'vector')} of {lookup.collection.name!r}"
        self._progress.note(f"Downloaded {number} from the Chroma server ({self._client.address.display_text}).")

    def _find_sealed(self, name: str, records: Mapping[str, ExpectedRecord]) -> RemoteCollection | None:
        """Return the collection, after waiting for a client that is building it. None if there is
        no such collection.
        """
        seal = CollectionSeal(len(records), digest_records(records), 0)
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            # The name of an unfinished collection first, because it is renamed when it is complete.
            building = self._client.find_collection(name + BUILDING)
            if remote := self._client.find_collection(name):
                if why := find_share_problem(self._client, remote, seal):
                    raise self._client.make_error(f"has a changed copy of {name}: {why}")
                return remote
            if building is None or not is_lease_current(building.metadata or {}) or time.monotonic() > deadline:
                return None
            time.sleep(_POLL_SECONDS)


def _list_expected(documents: Iterable[Document], chunking: Chunking) -> dict[str, ExpectedRecord]:
    """Return the records that these documents have on a server, by id."""
    records = {}
    for document in documents:
        for number, chunk in enumerate(split_document(document, chunking)):
            text_hash = content_hash(chunk.text)
            records[record_id(document.doc_id, number, text_hash)] = ExpectedRecord(text_hash, len(chunk.text.encode()))
    return records
