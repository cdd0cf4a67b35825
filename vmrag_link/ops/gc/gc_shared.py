"""What of the knowledge lies where others use it: `vmrag gc --remote` rewrites a remote's knowledge
base without garbage, or repairs it; `vmrag gc --server` drops what this knowledge base has on a
Chroma server and no pin reaches.
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
"""A collection that is younger stays: it may be of a colleague's commit that is not pushed yet."""

_DAY = 86_400


class RemoteSize(Record, frozen=True):
    """Bytes of the knowledge base there, and the pushes whose segments the host keeps besides."""

    bytes: int
    pushes: int


class RemoteGcReport(Record, frozen=True):
    """`applied` False: nothing was done. `after` None then.

    `damaged`: what is there cannot be read; `before` is None then.
    """

    applied: bool
    remote: str
    damaged: str
    before: RemoteSize | None
    after: RemoteSize | None


def gc_remote(ws: Workspace, remote: str | None = None, *, apply: bool = False) -> RemoteGcReport:
    """Rewrite the remote; everything that its branches reach stays.

    A damaged one is replaced by what it held at the last fetch, as far as that is here, and what
    git's refs pin. Raises `RemoteMoved` where somebody pushed meanwhile (nothing changed then),
    `RemoteInvalid` for a server, `RemoteDamaged` where nothing here could mend it, `RemoteTooNew`,
    and as `ops.remotes.fetch.fetch`.
    """
    address = destinations.list_fetch_addresses(ws, remote)[0]
    with connection.open_git_transport(ws.places, ws.engine, address, timeout=ws.lock_timeout) as peer:
        damaged, before, pinned = "", None, []
        try:
            if not peer.fetch():
                raise build_remote_empty(address)
            before = _measure(peer)
        except (RemoteDamaged, KnowledgeRefused) as error:
            pinned = _pins(ws)
            if not pinned and not peer.read_heads():
                raise
            damaged = error.message
        if not apply:
            return RemoteGcReport(False, address.text, damaged, before, None)
        peer.replace_contents(lambda key, url: _write(ws, address.key, Address(key, address.text, url=url), pinned))
        return RemoteGcReport(True, address.text, damaged, before, _measure(peer))


def _pins(ws: Workspace) -> list[str]:
    """What git's refs pin, and what is here, newest first.

    Nothing else of ours was ever meant to be pushed.
    """
    found = (pin.dolt_commit for pin, _ in history_pins.read_pins(ws.places, reflogs=False))
    return [revision for revision in dict.fromkeys(found) if ws.engine.has_revision(revision)]


def _write(ws: Workspace, known: str, fresh: Address, pinned: Sequence[str]) -> None:
    """The root goes first: it becomes the default branch, which nobody can delete."""
    there = ws.engine.remote_heads(known) | ws.engine.foreign_heads(known)
    heads = {name: head for name, head in there.items() if ws.engine.has_revision(head)}
    ws.engine.push(fresh.key, fresh.url, {ROOT_BRANCH: read_root(ws.engine)} | heads)
    publish(ws.engine, fresh.key, DirectTransport(ws.engine, fresh), PublishRequest({}, pinned))


def _measure(peer: GitTransport) -> RemoteSize:
    return RemoteSize(*peer.measure_size())


class DroppedCollection(Record, frozen=True):
    """`collection`: its name in the knowledge base, as the server says; `records` it says, too."""

    name: str
    collection: str
    records: int


class ServerGcReport(Record, frozen=True):
    """`applied` False: nothing was done. `kept` of ours that a pin reaches or that are young;
    `others`: collections that are not of this knowledge base.
    """

    applied: bool
    server: str
    dropped: tuple[DroppedCollection, ...]
    kept: int
    others: int


def gc_server(ws: Workspace, *, apply: bool = False, days: int = KEEP_DAYS) -> ServerGcReport:
    """Drop collections of this knowledge base alone, by the mark in their names, that are older
    than `days`.

    What git's refs and reflogs pin, heads of KB branches, and what was fetched keep theirs. Raises
    `UsageInvalid` without a server, `RevisionMissing` where a pinned revision is not here, so that
    nobody knows what it needs, and `ChromaServerFailed`.
    """
    if ws.chroma.server is None:
        raise UsageInvalid(
            "The settings name no Chroma server (chroma.mode: embedded).", hint="git config vmrag.chroma.mode http"
        )
    client = ChromaClient(ws.chroma.server)
    owner = contents.make_owner_mark(read_root(ws.engine))
    wanted = _needed_collections(ws, owner)
    there = client.list_collections()
    ours = [each for each in there if contents.belongs_to(each.name, owner)]
    going = [our for our in ours if our.name not in wanted and _is_old(our, time.time() - days * _DAY)]
    if apply:
        for each in going:
            remove_collection(client, each)
    dropped = tuple(_describe(each) for each in sorted(going, key=lambda each: each.name))
    return ServerGcReport(apply, ws.chroma.server.display_text, dropped, len(ours) - len(going), len(there) - len(ours))


def _is_old(found: RemoteCollection, before: float) -> bool:
    """Whether it may go if nothing needs it."""
    if found.name.endswith(contents.BUILDING):
        return not is_lease_current(found.metadata or {})
    seal = contents.parse_seal(found.metadata) if contents.is_sealed_name(found.name) else None
    return seal is None or seal.made < before


def _describe(found: RemoteCollection) -> DroppedCollection:
    seal = contents.parse_seal(found.metadata)
    label = (found.metadata or {}).get("collection", "")
    return DroppedCollection(found.name, label if isinstance(label, str) else "", seal.count if seal else 0)


def _needed_collections(ws: Workspace, owner: str) -> set[str]:
    """The names of all collections that some revision needs."""
    revisions = list(dict.fromkeys(_revisions(ws)))
    with ws.progress.task(LOOKING_UP, len(revisions)) as task:
        found = set[str]()
        for revision in revisions:
            found |= {contents.collection_name(owner, each) for each in _contents_of(ws, revision)}
            task.advance()
    return found


def _revisions(ws: Workspace) -> Iterator[str]:
    missing = [each for each in list_pinned(ws) if not ws.engine.has_revision(each)]
    if missing:
        raise RevisionMissing(
            f"Nothing was dropped: {plural(len(missing), 'pinned revision')} are not here, {missing[0][:12]} for one, and what "
            "they need is not known.",
            hint="vmrag fetch",
            revision=missing[0],
        )
    yield from (each for each in list_needed(ws) if ws.engine.has_revision(each))
    yield from (branch.head for branch in ws.engine.list_branches() if not is_reserved(branch.name))
    yield from (head for head in ws.engine.all_remote_heads() if ws.engine.has_revision(head))


def _contents_of(ws: Workspace, revision: str) -> Iterable[str]:
    rows = read_rows_at(ws.engine, revision)
    headers = ws.engine.read_headers(revision)
    for name, some in itertools.groupby(headers, key=attrgetter("collection")):
        yield contents.fingerprint_contents(rows.get(name) or assume_collection(name, ws.models.load_for), some)
