"""`vmrag gc --remote`: rewrite a remote's knowledge base without garbage, or repair it."""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.engines.own_branches import ROOT_BRANCH, read_root
from vmrag_link.errors import KnowledgeRefused, RemoteDamaged
from vmrag_link.models import Record
from vmrag_link.transport import connection
from vmrag_link.transport.address import Address
from vmrag_link.transport.direct_transport import DirectTransport
from vmrag_link.transport.git_transport import GitTransport
from vmrag_link.transport.publish import PublishRequest, publish
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.pins import history_pins
from vmrag_link.workspace.remotes import destinations
from vmrag_link.workspace.remotes.fetch import build_remote_empty


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
        damaged = ""
        before = None
        pinned: list[str] = []
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
            return RemoteGcReport(applied=False, remote=address.text, damaged=damaged, before=before, after=None)

        def write_contents(key: str, url: str) -> None:
            _write_remote(ws, address.key, Address(key, address.text, url=url), pinned)

        peer.replace_contents(write_contents)
        after = _measure_remote(peer)
        return RemoteGcReport(applied=True, remote=address.text, damaged=damaged, before=before, after=after)


def _measure_remote(peer: GitTransport) -> RemoteSize:
    return RemoteSize(*peer.measure_size())


def _list_pins(ws: Workspace) -> list[str]:
    """Return the revisions that git's refs pin and this clone has, newest first.

    Nothing else was ever meant to be pushed.
    """
    revisions = (pin.dolt_commit for pin, _ in history_pins.read_pins(ws.places, reflogs=False))
    return [revision for revision in dict.fromkeys(revisions) if ws.engine.has_revision(revision)]


def _write_remote(ws: Workspace, former_key: str, fresh: Address, pinned: Sequence[str]) -> None:
    """Push everything to the empty repository `fresh`, and the revisions `pinned` without a branch.

    `former_key` is the key of the remote's branches at the last fetch. The root is pushed first,
    because it becomes the default branch, which cannot be deleted.
    """
    remote_heads = ws.engine.remote_heads(former_key) | ws.engine.foreign_heads(former_key)
    heads = {name: head for name, head in remote_heads.items() if ws.engine.has_revision(head)}
    ws.engine.push(fresh.key, fresh.url, {ROOT_BRANCH: read_root(ws.engine)} | heads)
    publish(ws.engine, fresh.key, DirectTransport(ws.engine, fresh), PublishRequest({}, pinned))
