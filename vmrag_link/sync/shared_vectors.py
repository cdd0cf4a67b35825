"""Vectors of services that a team computed once: from a Chroma server into the cache of vectors.

What a server serves counts as far as it belongs to the rows that are here, and somebody who may
write this knowledge base vouches for it: a service's vectors cannot be made again to compare them.
Vouchers are digests, rows of the reserved branch `vmrag_vectors`, one per collection and its
contents. No pin names them, no document changes, and they travel with every push.

Vectors that this machine computes itself are never asked for: to believe them, it would have to
compute them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from vmrag_link import clock
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
from vmrag_link.engines.base import VECTORS_BRANCH, Engine, Write, read_root
from vmrag_link.errors import ChromaServerFailed, plural
from vmrag_link.models import Chunking, Collection, Document, content_hash
from vmrag_link.progress import DOWNLOADING, Progress
from vmrag_link.transport import quarantine

COLLECTION = "vectors"
_AUTHOR = "vmrag <vmrag@localhost>"
_MESSAGE = "Vouch for vectors on a Chroma server"
_DIGEST = r"[0-9a-f]{64}"


def read_digests(engine: Engine, contents: str) -> set[str]:
    """The digests of the vectors of these contents (`contents_of`) that somebody vouches for:
    here, or in what was last fetched. A fork that is only looked at vouches for nothing.
    """
    rows = (engine.list_ids(head, COLLECTION, prefix=f"{contents}-") for head in _heads(engine))
    found = (identifier.partition("-")[2] for ids in rows for identifier in ids)
    return {each for each in found if re.fullmatch(_DIGEST, each)}


def vouch_digests(engine: Engine, vectors: Mapping[str, str], *, timeout: float) -> None:
    """Note digests by contents, unless they are noted already."""
    with engine.write_lock("vouch for vectors", timeout=timeout):
        new = [f"{each}-{digest}" for each, digest in vectors.items() if digest not in read_digests(engine, each)]
        if not new:
            return
        branch = engine.find_branch(VECTORS_BRANCH)
        if branch is None:
            engine.create_branch(VECTORS_BRANCH, read_root(engine))
        head = branch.head if branch else read_root(engine)
        engine.write(VECTORS_BRANCH, _rows(new), expected=head)
        engine.commit(VECTORS_BRANCH, message=_MESSAGE, author=_AUTHOR, date=clock.now(), expected=head)


def build_head(engine: Engine, there: str | None) -> str | None:
    """The head to push to a remote whose branch stands at `there`: with its rows and ours. None
    where it has all of ours.
    """
    branch = engine.find_branch(VECTORS_BRANCH)
    if branch is None or (there and engine.is_ancestor(branch.head, there)):
        return None
    if there is None or engine.is_ancestor(there, branch.head):
        return branch.head
    known = set(_ids(engine, there))
    lacking = [identifier for identifier in _ids(engine, branch.head) if identifier not in known]
    if not lacking:
        return None
    with engine.write_lock("vouch for vectors"):
        return engine.commit_onto(there, [_rows(lacking)], message=_MESSAGE, author=_AUTHOR, date=clock.now())


def _heads(engine: Engine) -> list[str]:
    branch = engine.find_branch(VECTORS_BRANCH)
    found = engine.all_remote_heads(VECTORS_BRANCH) - {
        engine.remote_heads(quarantine.QUARANTINE_KEY).get(VECTORS_BRANCH, "")
    }
    return [each for each in sorted(found | ({branch.head} if branch else set())) if engine.has_revision(each)]


def _ids(engine: Engine, head: str) -> list[str]:
    return [header.doc_id for header in engine.read_headers(head, collection=COLLECTION)]


def _rows(ids: Iterable[str]) -> Write:
    now, nothing = clock.now(), content_hash("")
    documents = [
        Document(COLLECTION, identifier, "", "", nothing, created_at=now, updated_at=now) for identifier in ids
    ]
    return Write(put_collections=[Collection(COLLECTION, created_at=now)], put_documents=documents)


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
    wanted: Mapping[str, ExpectedRecord]
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

    def fetch_vectors(self, collection: Collection, revision: str, *, model: Model, chunking: Chunking) -> bool:
        """Put the vectors of a revision's collection into the cache; whether it has them all now.

        `chunking`: as it is indexed. Without a voucher for it no server is asked. Raises
        `ChromaServerFailed` if the server is `required`.
        """
        asked = (collection.name, revision)
        if asked not in self._asked:
            self._asked[asked] = False  # also if it fails: the next batch would wait again
            contents = fingerprint_contents(collection, self._engine.read_headers(revision, collection=collection.name))
            expected = read_digests(self._engine, contents)
            if expected:
                name = collection_name(make_owner_mark(read_root(self._engine)), contents)
                wanted = _expected(self._engine.read_documents(revision, collection=collection.name), chunking)
                have = self._cache.read_vectors(
                    model.fingerprint,
                    [*{each.hash for each in wanted.values()}],
                    dimensions=model.dimensions,
                )
                self._asked[asked] = self._downloaded(_Lookup(collection, name, model, wanted, have, expected))
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
        lacking: Mapping[str, ExpectedRecord],
        advance: Callable[[int], None],
    ) -> None:
        """Download what is lacking. If that and what is here are not what somebody vouches for, all
        is downloaded: a service may have answered otherwise here.
        """
        size = lookup.model.dimensions
        got = fetch_vectors(self._client, found, lacking, dimensions=size, advance=advance)
        if lookup.have and digest_vectors({**lookup.have, **got}.items()) not in lookup.digests:
            got = fetch_vectors(self._client, found, lookup.wanted, dimensions=size, advance=advance)
        if digest_vectors({**lookup.have, **got}.items()) not in lookup.digests:  # `got` replaces what is here
            raise self._client.make_error(
                f"serves other vectors in {found.name} than those that the knowledge base vouches for",
                hint="Whoever has its vectors mends it: vmrag doctor --fix",
            )
        self._cache.store_vectors(lookup.model.fingerprint, got)
        came = f"{plural(len(got), 'vector')} of {lookup.collection.name!r} came"
        self._progress.note(f"{came} from the Chroma server ({self._client.address.display_text}).")

    def _sealed(self, name: str, wanted: Mapping[str, ExpectedRecord]) -> RemoteCollection | None:
        """The collection, once whoever is building it has finished; None where there is none."""
        seal = CollectionSeal(len(wanted), digest_records(wanted), 0)
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            building = self._client.find_collection(
                name + BUILDING
            )  # first: it gets the other name when it is complete
            if found := self._client.find_collection(name):
                if why := find_share_problem(self._client, found, seal):
                    raise self._client.make_error(f"does not have {name} as it was built: {why}")
                return found
            if building is None or not is_lease_current(building.metadata or {}) or time.monotonic() > deadline:
                return None
            time.sleep(_POLL_SECONDS)


def _expected(documents: Iterable[Document], chunking: Chunking) -> dict[str, ExpectedRecord]:
    """The records that these documents have on a server, by id."""
    found = {}
    for document in documents:
        for number, chunk in enumerate(split_document(document, chunking)):
            text_hash = content_hash(chunk.text)
            found[record_id(document.doc_id, number, text_hash)] = ExpectedRecord(text_hash, len(chunk.text.encode()))
    return found
