"""Free the space of the knowledge base on shared hosts.

`vmrag gc --remote` rewrites a remote's knowledge base without garbage, or repairs it. `vmrag gc
--server` deletes this knowledge base's collections on a Chroma server that no pin needs.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from vmrag_link.chroma_server import contents
from vmrag_link.chroma_server.client import ChromaClient, RemoteCollection
from vmrag_link.chroma_server.share import is_lease_current, remove_collection
from vmrag_link.engines.base import ROOT_BRANCH, is_reserved, read_root
from vmrag_link.errors import KnowledgeRefused, RemoteDamaged, RevisionMissing, UsageInvalid, plural
from vmrag_link.models import Record
from vmrag_link.ops.gc.gc import list_needed, list_pinned
from vmrag_link.progress import LOOKING_UP
from vmrag_link.sync.plan import assume_collection, read_rows_at
from vmrag_link.transport import connection
from vmrag_link.transport.address import Address
from vmrag_link.transport.direct_transport import DirectTransport
from vmrag_link.transport.git_transport import GitTransport
from vmrag_link.transport.publish import PublishRequest, publish
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.pins import history_pins
from vmrag_link.workspace.remotes import destinations
from vmrag_link.workspace.remotes.fetch import build_remote_empty

KEEP_DAYS = 7
"""Days for which a collection is kept, because it may belong to a colleague's commit that is not
pushed yet.
"""

_DAY = 86_400


class RemoteSize(Record, frozen=True):
    """The size of a remote's knowledge base."""

    bytes: int
    """Bytes of the knowledge base."""
    pushes: int
    """Number of pushes whose segments the host keeps."""


class RemoteGcReport(Record, frozen=True):
    """The result of `gc_remote`."""

    applied: bool
    """False if nothing was done."""
    remote: str
    damaged: str
    """Why the remote cannot be read."""
    before: RemoteSize | None
    """None if the remote is damaged."""
    after: RemoteSize | None
    """None if nothing was done."""


def gc_remote(ws: Workspace, remote: str | None = None, *, apply: bool = False) -> RemoteGcReport:
    """Rewrite the remote. Everything that its branches reach stays.

    A damaged remote is replaced by what it had at the last fetch, as far as this clone has it, and
    by what git's refs pin. Raises `RemoteMoved` if someone pushed at the same time (nothing was
    changed then), `RemoteInvalid` for a server, `RemoteDamaged` if this clone cannot repair it,
    `RemoteTooNew`, and the errors of `fetch`.
    """
    address = destinations.list_fetch_addresses(ws, remote)[0]
    with connection.open_git_transport(ws.places, ws.engine, address, timeout=ws.lock_timeout) as peer:
        damaged, before, pinned = "", None, []
        try:
            if not peer.fetch():
                raise build_remote_empty(address)
            before = _measure_remote(peer)
        except (RemoteDamaged, KnowledgeRefused) as error:
            pinned = _list_pins(ws)
            if not pinned and not peer.read_heads():
                raise
            damaged = error.message
        if not apply:
            return RemoteGcReport(False, address.text, damaged, before, None)
        peer.replace_contents(
            lambda key, url: _write_remote(ws, address.key, Address(key, address.text, url=url), pinned)
        )
        return RemoteGcReport(True, address.text, damaged, before, _measure_remote(peer))


def _list_pins(ws: Workspace) -> list[str]:
    """Return the revisions that git's refs pin and this clone has, newest first.

    Nothing else was ever meant to be pushed.
    """
    revisions = (pin.dolt_commit for pin, _ in history_pins.read_pins(ws.places, reflogs=False))
    return [revision for revision in dict.fromkeys(revisions) if ws.engine.has_revision(revision)]


def _write_remote(ws: Workspace, former_key: str, fresh: Address, pinned: Sequence[str]) -> None:
    """Write the remote.

    The root is pushed first, because it becomes the default branch, which cannot be deleted.
    """
    remote_heads = ws.engine.remote_heads(former_key) | ws.engine.foreign_heads(former_key)
    heads = {name: head for name, head in remote_heads.items() if ws.engine.has_revision(head)}
    ws.engine.push(fresh.key, fresh.url, {ROOT_BRANCH: read_root(ws.engine)} | heads)
    publish(ws.engine, fresh.key, DirectTransport(ws.engine, fresh), PublishRequest({}, pinned))


def _measure_remote(peer: GitTransport) -> RemoteSize:
    return RemoteSize(*peer.measure_size())


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
    unneeded = [
        collection
        for collection in own_collections
        if collection.name not in needed_names and _is_old(collection, time.time() - days * _DAY)
    ]
    if apply:
        for collection in unneeded:
            remove_collection(client, collection)
    dropped = tuple(
        _describe_collection(dropped_collection)
        for dropped_collection in sorted(unneeded, key=lambda dropped_collection: dropped_collection.name)
    )
    return ServerGcReport(
        apply,
        ws.chroma.server.display_text,
        dropped,
        len(own_collections) - len(unneeded),
        len(collections) - len(own_collections),
    )


def _is_old(collection: RemoteCollection, before: float) -> bool:
    """Return whether a collection is old enough to be deleted if nothing needs it."""
    if collection.name.endswith(contents.BUILDING):
        return not is_lease_current(collection.metadata or {})
    seal = contents.parse_seal(collection.metadata) if contents.is_sealed_name(collection.name) else None
    return seal is None or seal.made < before


def _describe_collection(collection: RemoteCollection) -> DroppedCollection:
    seal = contents.parse_seal(collection.metadata)
    label = (collection.metadata or {}).get("collection", "")
    return DroppedCollection(collection.name, label if isinstance(label, str) else "", seal.count if seal else 0)


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
    rows = read_rows_at(ws.engine, revision)
    headers = ws.engine.read_headers(revision)
    for name, headers_of_collection in itertools.groupby(headers, key=attrgetter("collection")):
        yield contents.fingerprint_contents(
            rows.get(name) or assume_collection(name, ws.models.load_for), headers_of_collection
        )
