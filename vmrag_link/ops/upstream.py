"""The remote that the workspace's knowledge travels to, as it was when it was last asked, and how branches stand to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vmrag_link.engines.base import Engine
from vmrag_link.errors import Remote, RemoteEmpty
from vmrag_link.git import remotes
from vmrag_link.models import Record
from vmrag_link.ops import destinations
from vmrag_link.ops.revisions import beginning, shown
from vmrag_link.travel.address import Address
from vmrag_link.workspace import Workspace


class Upstream(Record, frozen=True):
    """`name` and `url` for people, without credentials; `heads`: its KB branches as last seen, the reserved ones left out.

    `problem`: why it is not to be contacted; then there is no `address`.
    """

    name: str
    url: str
    heads: dict[str, str]
    address: Address | None = None
    problem: str = ""


class Apart(Record, frozen=True):
    """Numbers of commits that only we have (`ahead`), and only the other side."""

    ahead: int = 0
    behind: int = 0


def upstream(ws: Workspace) -> Upstream | None:
    """The first of where pin and settings say; None where git knows no remote. Asks no network."""
    text = destinations.pinned_remote(ws) or ws.config.remote
    try:
        address = destinations.named(ws, text)[0]
    except RemoteEmpty:
        return None
    except Remote as why:
        seen = remotes.shown(text)
        return Upstream(seen, seen, {}, problem=why.message)
    url = address.text
    if address.peer and address.peer.where in remotes.names(ws.places):
        url = remotes.shown(remotes.url(ws.places, address.peer.where))
    heads = {name: head for name, head in sorted(ws.engine.remote_heads(address.key).items()) if shown(name)}
    return Upstream(address.text, url, heads, address)


class Distances:
    """How far pairs of commits are apart: one walk through the history for all of them."""

    def __init__(self, engine: Engine, revisions: Iterable[str]) -> None:
        self._parents: Mapping[str, tuple[str, ...]] = engine.parents(revisions)
        self._before = beginning(engine)

    def apart(self, ours: str, theirs: Iterable[str]) -> Apart:
        """All commits of both sides count, however many they are; what is not here does not."""
        mine, other = self._reached([ours]), self._reached(theirs)
        return Apart(len(mine - other - self._before), len(other - mine))

    def _reached(self, heads: Iterable[str]) -> set[str]:
        found: set[str] = set()
        left = [each for each in heads if each in self._parents]
        while left:
            each = left.pop()
            if each not in found:
                found.add(each)
                left.extend(self._parents[each])
        return found
