"""`vmrag gc --server`: delete collections that no pin needs from a shared Chroma server."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from operator import attrgetter

from vmrag_link.chroma_server import contents
from vmrag_link.chroma_server.client import ChromaClient, RemoteCollection
from vmrag_link.chroma_server.share import is_lease_current, remove_collection
from vmrag_link.engines.own_branches import is_reserved, read_root
from vmrag_link.errors import RevisionMissing, UsageInvalid, plural
from vmrag_link.models import Record
from vmrag_link.ops.gc.gc import list_needed, list_pinned
from vmrag_link.progress import LOOKING_UP
from vmrag_link.sync.plan import assume_collection, read_rows_at
from vmrag_link.workspace import Workspace

KEEP_DAYS = 7
"""Days for which a collection is kept, because it may belong to a colleague's commit that is not
pushed yet.
"""

_DAY_SECONDS = 86_400


class DroppedCollection(Record, frozen=True):
    """A collection that was deleted."""

    name: str
    collection: str
    """The collection in the knowledge base, according to the server."""
    records: int
    """Number of records, according to the server."""


class ServerGcReport(Record, frozen=True):
    """The result of `gc_server`."""

    applied: bool
    """False if nothing was done."""
    server: str
    dropped: tuple[DroppedCollection, ...]
    kept: int
    """Number of kept collections of this knowledge base, which a pin needs or which are young."""
    others: int
    """Number of other collections."""


def gc_server(ws: Workspace, *, apply: bool = False, days: int = KEEP_DAYS) -> ServerGcReport:
    """Delete unneeded collections of this knowledge base that are older than `days`. A mark in
    their names identifies them.

    Collections stay if they belong to a revision that git's refs or reflogs pin, to the head of a
    KB branch, or to a fetched head. Raises `UsageInvalid` without a server, `RevisionMissing` if a
    pinned revision is missing, so that its collections are unknown, and `ChromaServerFailed`.
    """
    if ws.chroma.server is None:
        raise UsageInvalid(
            "no Chroma server is configured (chroma.mode: embedded).",
            hint="run 'git config vmrag.chroma.mode http' to use one",
        )
    client = ChromaClient(ws.chroma.server)
    owner = contents.make_owner_mark(read_root(ws.engine))
    needed_names = _list_needed_collections(ws, owner)
    collections = client.list_collections()
    own_collections = [collection for collection in collections if contents.belongs_to(collection.name, owner)]
    oldest = time.time() - days * _DAY_SECONDS
    unneeded = [
        collection
        for collection in own_collections
        if collection.name not in needed_names and _is_old(collection, oldest)
    ]
    if apply:
        for collection in unneeded:
            remove_collection(client, collection)
    return ServerGcReport(
        applied=apply,
        server=ws.chroma.server.display_text,
        dropped=tuple(map(_describe_collection, sorted(unneeded, key=attrgetter("name")))),
        kept=len(own_collections) - len(unneeded),
        others=len(collections) - len(own_collections),
    )


def _list_needed_collections(ws: Workspace, owner: str) -> set[str]:
    """Return the names of all collections that some revision needs."""
    revisions = list(dict.fromkeys(_list_revisions(ws)))
    with ws.progress.task(LOOKING_UP, len(revisions)) as task:
        names = set[str]()
        for revision in revisions:
            names |= {contents.collection_name(owner, content) for content in _list_contents(ws, revision)}
            task.advance()
    return names


def _list_revisions(ws: Workspace) -> Iterator[str]:
    """Yield the revisions whose collections stay. Raises `RevisionMissing` if a pinned one is
    missing.
    """
    missing = [revision for revision in list_pinned(ws) if not ws.engine.has_revision(revision)]
    if missing:
        raise RevisionMissing(
            f"this knowledge base lacks {plural(len(missing), 'pinned revision')}, such as {missing[0][:12]}, so their collections "
            "are unknown. Nothing was deleted.",
            hint="run 'vmrag fetch' to fetch the revision",
            revision=missing[0],
        )
    yield from (revision for revision in list_needed(ws) if ws.engine.has_revision(revision))
    yield from (branch.head for branch in ws.engine.list_branches() if not is_reserved(branch.name))
    yield from (head for head in ws.engine.all_remote_heads() if ws.engine.has_revision(head))


def _list_contents(ws: Workspace, revision: str) -> Iterable[str]:
    """Yield the fingerprint of each collection of a revision."""
    rows = read_rows_at(ws.engine, revision)
    headers = ws.engine.read_headers(revision)
    for name, headers_of_collection in itertools.groupby(headers, key=attrgetter("collection")):
        yield contents.fingerprint_contents(
            rows.get(name) or assume_collection(name, ws.models.load_for), headers_of_collection
        )


def _is_old(collection: RemoteCollection, before: float) -> bool:
    """Return whether a collection that nothing needs was finished before a time, or was stopped."""
    if collection.name.endswith(contents.BUILDING):
        return not is_lease_current(collection.metadata or {})
    seal = contents.parse_seal(collection.metadata) if contents.is_sealed_name(collection.name) else None
    return seal is None or seal.made < before


def _describe_collection(collection: RemoteCollection) -> DroppedCollection:
    seal = contents.parse_seal(collection.metadata)
    label = (collection.metadata or {}).get("collection", "")
    return DroppedCollection(collection.name, label if isinstance(label, str) else "", seal.count if seal else 0)
