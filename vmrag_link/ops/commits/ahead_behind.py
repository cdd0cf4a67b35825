"""How far commits are apart, in commits.

What is not here counts for nothing, and neither does what nobody has made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from vmrag_link.engines.base import Engine, reserved
from vmrag_link.models import Record
from vmrag_link.ops.commits import revisions


class AheadBehind(Record, frozen=True):
    """Numbers of commits that only we have (`ahead`), and only the other side."""

    ahead: int = 0
    behind: int = 0


class Distances:
    """Distances between any of these commits and their ancestors, from one walk through the
    history.
    """

    def __init__(self, engine: Engine, heads: Collection[str]) -> None:
        self._parents: Mapping[str, tuple[str, ...]] = engine.parents(heads) if heads else {}
        self._before = revisions.beginning(engine)

    def apart(self, ours: Iterable[str], theirs: Iterable[str]) -> AheadBehind:
        """All commits of both sides count, however many they are."""
        mine, other = self._ancestors(ours), self._ancestors(theirs)
        return AheadBehind(len(mine - other - self._before), len(other - mine - self._before))

    def _ancestors(self, heads: Iterable[str]) -> set[str]:
        from vmrag_link.ops.commits.ancestry import reached

        return set(reached(self._parents, [each for each in heads if each in self._parents]))


def beyond(engine: Engine, heads: Collection[str], others: Collection[str] = ()) -> int:
    """How many commits these heads reach and the others do not."""
    return Distances(engine, [*heads, *others]).apart(heads, others).ahead


def from_remote(engine: Engine, head: str, name: str, there: Mapping[str, str]) -> AheadBehind:
    """Against a remote's KB branch of this name. `there` has the heads of all its branches.

    If it has none of this name, every commit that it does not have is ahead.
    """
    heads = {each: at for each, at in there.items() if not reserved(each)}
    theirs = [heads[name]] if name in heads else [*heads.values()]
    if theirs == [head]:
        return AheadBehind()
    found = Distances(engine, [head, *theirs]).apart([head], theirs)
    return found if name in heads else AheadBehind(found.ahead)
