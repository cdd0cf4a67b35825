"""`vmrag gc --remote`: rewrite a remote's knowledge base without garbage, or repair it."""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.engines.base import ROOT_BRANCH, root_of
from vmrag_link.errors import KnowledgeRefused, RemoteDamaged
from vmrag_link.models import Record
from vmrag_link.ops.pins import history_pins
from vmrag_link.ops.remotes import destinations
from vmrag_link.ops.remotes.fetch import nothing_at
from vmrag_link.transport import connection
from vmrag_link.transport.address import Address
from vmrag_link.transport.direct_transport import DirectTransport
from vmrag_link.transport.git_transport import GitTransport
from vmrag_link.transport.publish import PublishRequest, publish
from vmrag_link.workspace import Workspace


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
    address = destinations.asked(ws, remote)[0]
    with connection.carried(ws.places, ws.engine, address, timeout=ws.lock_timeout) as peer:
        damaged, before, pinned = "", None, []
        try:
            if not peer.fetch():
                raise nothing_at(address)
            before = _size(peer)
        except (RemoteDamaged, KnowledgeRefused) as error:
            pinned = _pins(ws)
            if not pinned and not peer.heads():
                raise
            damaged = error.message
        if not apply:
            return RemoteGcReport(False, address.text, damaged, before, None)
        peer.replace(lambda key, url: _write(ws, address.key, Address(key, address.text, url=url), pinned))
        return RemoteGcReport(True, address.text, damaged, before, _size(peer))


def _pins(ws: Workspace) -> list[str]:
    """What git's refs pin, and what is here, newest first.

    Nothing else of ours was ever meant to be pushed.
    """
    found = (pin.dolt_commit for pin, _ in history_pins.read(ws.places, reflogs=False))
    return [revision for revision in dict.fromkeys(found) if ws.engine.has_revision(revision)]


def _write(ws: Workspace, known: str, fresh: Address, pinned: Sequence[str]) -> None:
    """The root goes first: it becomes the default branch, which nobody can delete."""
    heads = {name: head for name, head in ws.engine.remote_heads(known).items() if ws.engine.has_revision(head)}
    ws.engine.push(fresh.key, fresh.url, {ROOT_BRANCH: root_of(ws.engine)} | heads)
    publish(ws.engine, fresh.key, DirectTransport(ws.engine, fresh), PublishRequest({}, pinned))


def _size(peer: GitTransport) -> RemoteSize:
    return RemoteSize(*peer.size())
