"""The remote: does it still hold what it held when it was last asked?

`git push --mirror` from an ordinary clone takes it away.

And is the pin one of this knowledge base's revisions? Another one's may have come here from a
remote.
"""

from __future__ import annotations

from collections.abc import Iterator

from vmrag_link.engines.base import ROOT_BRANCH
from vmrag_link.errors import RemoteError, quoted
from vmrag_link.git import remotes, transfer
from vmrag_link.ops.remotes import destinations
from vmrag_link.ops.upkeep.doctor.findings import DOCTOR, Finding, Topic
from vmrag_link.transport import connection, direct_transport, git_transport
from vmrag_link.transport.address import Address
from vmrag_link.workspace import Workspace


def check(ws: Workspace) -> Iterator[Finding]:
    """Asks those remotes that have been asked before, and are trusted."""
    if not ws.initialized:
        return
    yield from _foreign(ws)
    try:
        known = [each for each in _addresses(ws) if each.peer and git_transport.last_seen(ws.places, each.key)]
        for each in known:
            yield from _lost(ws, each)
    except RemoteError as error:
        yield Finding("REMOTE_UNREACHABLE", "note", error.message, error.hint)


def _foreign(ws: Workspace) -> Iterator[Finding]:
    pin, root = ws.target().pin, ws.engine.branch(ROOT_BRANCH)
    if pin is None or root is None or not ws.engine.has_revision(pin.dolt_commit):
        return
    if not ws.engine.is_ancestor(root.head, pin.dolt_commit):
        message = (
            f"The code pins {pin.dolt_commit[:12]}, a revision of another knowledge base than the one that is here."
        )
        yield Finding(
            "PIN_FOREIGN", "error", message, f"To go on with that one: {direct_transport.start_over(ws.engine)}"
        )


def _addresses(ws: Workspace) -> list[Address]:
    if not remotes.names(ws.places):
        return []
    return destinations.named(ws, destinations.stated_remote(ws))


def _lost(ws: Workspace, address: Address) -> Iterator[Finding]:
    peer = address.peer
    if peer and transfer.advertised(ws.places, peer, peer.ref) is None:
        message = f"{address.text} does not hold the knowledge base any more: somebody deleted {peer.ref} there."
        yield Finding("REMOTE_LOST", "error", message, DOCTOR, address.key)


def _put_back(ws: Workspace, finding: Finding) -> str:
    for address in _addresses(ws):
        if address.key == finding.subject:
            with connection.opened(ws.places, ws.engine, address, timeout=ws.lock_timeout) as peer:
                peer.put_back()
            return f"Pushed back what {quoted(address.text)} held when it was last asked."
    return "Nothing was left to do."


TOPIC = Topic("remote", check, {"REMOTE_LOST": _put_back})
