"""Which of many revisions contains which, asked of the engine once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from graphlib import TopologicalSorter

from vmrag_link.engines.base import Engine
from vmrag_link.models import RevisionInfo


def carried(parents: Mapping[str, Iterable[str]], own: Mapping[str, int]) -> dict[str, int]:
    """The bits of each, and of everything before it.

    In `parents`, parents come before children; those that are not in it have none.
    """
    bits: dict[str, int] = {}
    for each, before in parents.items():
        found = own.get(each, 0)
        for parent in before:
            found |= bits.get(parent, 0)
        bits[each] = found
    return bits


def reached(parents: Mapping[str, Iterable[str]], heads: Iterable[str], without: Iterable[str] = ()) -> Iterator[str]:
    """The heads and all their ancestors, each once; not those in `without`, nor what only these
    lead to.

    `parents`: of all of them.
    """
    seen, left = set(without), list(heads)
    while left:
        each = left.pop()
        if each not in seen:
            seen.add(each)
            yield each
            left.extend(parents[each])


class Ancestry:
    """Of the revisions given at first; others are not here.

    Each has a bit, and each revision of the history the bits of all that it contains: a question
    costs nothing then.
    """

    def __init__(self, engine: Engine, revisions: Iterable[str]) -> None:
        asked = dict.fromkeys(revisions)
        self._engine = engine
        self._parents = engine.parents(asked)
        self._bits = {each: 1 << number for number, each in enumerate(asked) if each in self._parents}
        ordered = {each: self._parents[each] for each in TopologicalSorter(self._parents).static_order()}
        self._held = carried(ordered, self._bits)
        self._infos: dict[str, RevisionInfo] = {}
        self._answers: dict[tuple[str, str], bool] = {}
        self._accepted: dict[str, frozenset[str]] = {}

    def has_revision(self, revision: str) -> bool:
        return revision in self._bits

    def descends(self, revision: str, ancestor: str) -> bool:
        """Both are here."""
        return bool(self._held[revision] & self._bits[ancestor])

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """As `descends`, or the one has picked what the other has (`merging.picked`)."""
        if self.descends(descendant, ancestor):
            return True
        if self.descends(ancestor, descendant):
            return False
        pair = (ancestor, descendant)
        if pair not in self._answers:
            from vmrag_link.merging import revisions

            self._answers[pair] = revisions.holds(self._engine, list(self._own(descendant, ancestor)), ancestor)
        return self._answers[pair]

    def accepts_loss(self, revision: str, lost: str) -> bool:
        """Whether a revision that is here accepts the loss of one that is not."""
        if lost in self._bits or revision not in self._bits:
            return False
        if revision not in self._accepted:
            from vmrag_link.merging import messages

            log = self._engine.log(revision)
            self._accepted[revision] = frozenset(
                each for info in log for each in messages.accepted_losses(info.message)
            )
        return lost in self._accepted[revision]

    def recording(self, revision: str, other: str | None) -> Iterator[RevisionInfo]:
        """The revisions that accept a loss, of those that one contains and the other does not."""
        from vmrag_link.merging import messages

        common = set(reached(self._parents, [other])) if other in self._parents else set()
        own = set(reached(self._parents, [revision], common))
        for info in self._engine.log(revision) if own else ():
            if info.revision in own:
                own.remove(info.revision)
                if messages.accepted_losses(info.message):
                    yield info
            if not own:
                return

    def _own(self, revision: str, other: str) -> Iterator[RevisionInfo]:
        """What the revision contains and the other does not, parents before children."""
        common = set(reached(self._parents, [other]))
        own = set(reached(self._parents, [revision], common))
        within = {each: [parent for parent in self._parents[each] if parent in own] for each in own}
        for each in TopologicalSorter(within).static_order():
            if each not in self._infos:
                self._infos[each] = self._engine.info(each)
            yield self._infos[each]
