"""The remote of the workspace's knowledge, as of the last fetch."""

from __future__ import annotations

from vmrag_link.engines.base import reserved
from vmrag_link.errors import RemoteEmpty, RemoteError
from vmrag_link.git import remotes
from vmrag_link.models import Record
from vmrag_link.transport.address import Address
from vmrag_link.workspace import Workspace


class Upstream(Record, frozen=True):
    """`name` and `url` for people, without credentials; `heads` of its KB branches as last seen.

    `problem`: why it is not to be contacted; then there is no `address`.
    """

    name: str
    url: str
    heads: dict[str, str]
    address: Address | None = None
    problem: str = ""


def upstream(ws: Workspace) -> Upstream | None:
    """The first remote of pin and settings; None where git knows no remote. Uses no network."""
    from vmrag_link.ops.remotes import destinations

    text = destinations.stated_remote(ws)
    try:
        address = destinations.named(ws, text)[0]
    except RemoteEmpty:
        return None
    except RemoteError as why:
        seen = remotes.shown(text)
        return Upstream(seen, seen, {}, problem=why.message)
    url = address.text
    if address.peer and address.peer.where in remotes.names(ws.places):
        url = remotes.shown(remotes.url(ws.places, address.peer.where))
    heads = {name: head for name, head in sorted(ws.engine.remote_heads(address.key).items()) if not reserved(name)}
    return Upstream(address.text, url, heads, address)
