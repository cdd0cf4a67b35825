"""`vmrag gc --remote`: write anew what a remote holds, without what it has gathered; or what it held last, where it is damaged."""

from __future__ import annotations

from vmrag_link.engines.base import ROOT_BRANCH
from vmrag_link.errors import RemoteDamaged
from vmrag_link.models import Record
from vmrag_link.ops import destinations
from vmrag_link.ops.fetch import nothing_at
from vmrag_link.travel import exchange
from vmrag_link.travel.exchange import Exchange
from vmrag_link.workspace import Workspace


class Held(Record, frozen=True):
    """Bytes of the knowledge base there, and the pushes whose segments the host keeps besides."""

    bytes: int
    pushes: int


class RemoteGcReport(Record, frozen=True):
    """`applied` False: nothing was done. `after` None then. `damaged`: what is there cannot be read; `before` is None then."""

    applied: bool
    remote: str
    damaged: str
    before: Held | None
    after: Held | None


def gc_remote(ws: Workspace, remote: str | None = None, *, apply: bool = False) -> RemoteGcReport:
    """Everything that the remote's branches reach stays; what is put in place of a damaged one is what it held when it was last fetched.

    Raises `RemoteMoved` where somebody pushed meanwhile (nothing changed then), `RemoteInvalid` for a server, and as `ops.fetch.fetch`.
    """
    address = destinations.asked(ws, remote)[0]
    with exchange.opened(ws.places, ws.engine, address, timeout=ws.lock_timeout) as peer:
        damaged, before = "", None
        try:
            if not peer.fetch():
                raise nothing_at(address)
            before = _held(peer)
        except RemoteDamaged as error:
            damaged = error.message
        if not apply:
            return RemoteGcReport(False, address.text, damaged, before, None)
        peer.replace(lambda key, url: _everything(ws, address.key, key, url))
        return RemoteGcReport(True, address.text, damaged, before, _held(peer))


def _everything(ws: Workspace, known: str, key: str, url: str) -> None:
    """The root goes first: it becomes the default branch, which nobody can delete."""
    root = ws.engine.branch(ROOT_BRANCH)
    assert root is not None  # noqa: S101  every knowledge base has its root branch
    heads = {name: head for name, head in ws.engine.remote_heads(known).items() if ws.engine.has_revision(head)}
    ws.engine.push(key, url, {ROOT_BRANCH: root.head})
    ws.engine.push(key, url, heads)


def _held(peer: Exchange) -> Held:
    return Held(*peer.size())
