"""With a push goes what a Chroma server has to serve, so that whoever fetches can check it."""

from __future__ import annotations

from vmrag_link.engines.base import VECTORS_BRANCH
from vmrag_link.errors import VmragError
from vmrag_link.sync import chroma_sharing
from vmrag_link.transport.address import Address
from vmrag_link.transport.connection import Transport
from vmrag_link.transport.publish import PublishRequest, publish
from vmrag_link.workspace import Workspace


def publish_digests(ws: Workspace, address: Address, peer: Transport) -> None:
    """Push the digests of shared vectors, those of the bound index included.

    The knowledge itself has been pushed: what fails here is said, and made up for by the next push.
    """
    if ws.config.chroma.mode == "embedded":
        return
    try:
        _vouch_for_bound(ws)
        from vmrag_link.sync import vouchers

        head = vouchers.head_for(ws.engine, peer.heads().get(VECTORS_BRANCH))
        if head:
            publish(ws.engine, address.key, peer, PublishRequest({VECTORS_BRANCH: head}, lenient=True))
    except VmragError as error:
        ws.progress.note(f"Nobody vouches for the vectors on the Chroma server yet: {error.message}")


def _vouch_for_bound(ws: Workspace) -> None:
    """The process that shares the index may not have come to it yet."""
    bound = ws.binding
    if bound is None or ws.views.problem(bound.revision):
        return
    with chroma_sharing.contents_of(ws.sharing, bound.revision, ws.shelf) as collections:
        chroma_sharing.vouch(collections, ws.shelf)
