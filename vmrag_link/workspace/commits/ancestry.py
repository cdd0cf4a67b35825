"""Which of many revisions contains which, asked of the engine once; and the merge bases of code
commits, as far as a shallow clone has enough of the history to tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter

from vmrag_link.engines.base import Engine
from vmrag_link.git import history, pin_merge
from vmrag_link.models import RevisionInfo
from vmrag_link.paths import Places


def carry_bits(parents: Mapping[str, Iterable[str]], own: Mapping[str, int]) -> dict[str, int]:
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


def list_ancestors(
    parents: Mapping[str, Iterable[str]], heads: Iterable[str], without: Iterable[str] = ()
) -> Iterator[str]:
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
        self._parents = engine.map_parents(asked)
        self._bits = {each: 1 << number for number, each in enumerate(asked) if each in self._parents}
        ordered = {each: self._parents[each] for each in TopologicalSorter(self._parents).static_order()}
        self._held = carry_bits(ordered, self._bits)
        self._infos: dict[str, RevisionInfo] = {}
        self._answers: dict[tuple[str, str], bool] = {}
        self._accepted: dict[str, frozenset[str]] = {}

    def has_revision(self, revision: str) -> bool:
        return revision in self._bits

    def is_descendant(self, revision: str, ancestor: str) -> bool:
        """Both are here."""
        return bool(self._held[revision] & self._bits[ancestor])

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """As `descends`, or the one has picked what the other has (`merging.picked`)."""
        if self.is_descendant(descendant, ancestor):
            return True
        if self.is_descendant(ancestor, descendant):
            return False
        pair = (ancestor, descendant)
        if pair not in self._answers:
            from vmrag_link.merging import revisions

            self._answers[pair] = revisions.holds_revision(
                self._engine, list(self._own(descendant, ancestor)), ancestor
            )
        return self._answers[pair]

    def accepts_loss(self, revision: str, lost: str) -> bool:
        """Whether a revision that is here accepts the loss of one that is not."""
        if lost in self._bits or revision not in self._bits:
            return False
        if revision not in self._accepted:
            from vmrag_link.merging import revisions

            log = self._engine.log(revision)
            self._accepted[revision] = frozenset(
                accepted_loss for info in log for accepted_loss in revisions.read_accepted_losses(info.message)
            )
        return lost in self._accepted[revision]

    def list_loss_records(self, revision: str, other: str | None) -> Iterator[RevisionInfo]:
        """The revisions that accept a loss, of those that one contains and the other does not."""
        from vmrag_link.merging import revisions

        common = set(list_ancestors(self._parents, [other])) if other in self._parents else set()
        own = set(list_ancestors(self._parents, [revision], common))
        for info in self._engine.log(revision) if own else ():
            if info.revision in own:
                own.remove(info.revision)
                if revisions.read_accepted_losses(info.message):
                    yield info
            if not own:
                return

    def _own(self, revision: str, other: str) -> Iterator[RevisionInfo]:
        """What the revision contains and the other does not, parents before children."""
        common = set(list_ancestors(self._parents, [other]))
        own = set(list_ancestors(self._parents, [revision], common))
        within = {each: [parent for parent in self._parents[each] if parent in own] for each in own}
        for each in TopologicalSorter(within).static_order():
            if each not in self._infos:
                self._infos[each] = self._engine.read_revision(each)
            yield self._infos[each]


class MergeBases:
    """Of commits that some tips reach.

    A shallow clone ends at its boundary: commits without the parents that they name. Each commit
    carries a bit for every commit of the boundary that it reaches. If one of two commits reaches a
    part of the boundary that the other does not, what lies behind it may be older than their merge
    base, or hold it. If both reach the same part, all that only one of them has is here, and so is
    a merge base; but of several, one may be an ancestor of another behind the boundary.
    """

    def __init__(self, places: Places, *tips: str) -> None:
        self._places = places
        self._cut: dict[str, int] = {}
        if boundary := history.read_shallow_boundary(places):
            bits = {commit: 1 << number for number, commit in enumerate(sorted(boundary))}
            self._cut = carry_bits(history.list_commits(places, tips), bits)

    def find_bases(self, commit: str, *others: str) -> list[str] | None:
        """All best common ancestors of a commit and the others; None where this clone cannot
        tell.
        """
        cut = self._cut.get(commit, 0)
        if cut != self._reached(others):
            return None
        found = pin_merge.list_merge_bases(self._places, [commit, *others])
        return None if cut and len(found) > 1 else found

    def is_settled(self, head: str, base: str, found: Mapping[str, Sequence[str]]) -> bool:
        """Whether `found`, the commits with their parents that the head reaches here and the base
        does not, are those of the whole history.

        One of them could be the base's behind the boundary. Then so is all that it comes from: but
        that reaches the whole boundary itself, and nothing is its own ancestor.
        """
        if self.find_bases(head, base) is None:
            return False
        cut = self._cut.get(head, 0)
        return not cut or all(
            sides and all(side in found or self._cut.get(side, 0) == cut for side in sides) for sides in found.values()
        )

    def _reached(self, commits: tuple[str, ...]) -> int:
        bits = 0
        for commit in commits:
            bits |= self._cut.get(commit, 0)
        return bits


def is_comparable(places: Places, base: str | None, head: str) -> bool:
    """Whether this clone has all that decides which commits `head` has and `base` has not, and from
    where each merge among them comes. Both commits are here.

    `base` None: the head has no parent.
    """
    if not history.read_shallow_boundary(places):
        return True
    known = MergeBases(places, *([head, base] if base else [head]))
    found = history.list_commits(places, [head], without=base)
    if base and not known.is_settled(head, base, found):
        return False
    merges = (sides for sides in found.values() if len(sides) > 1)
    return all(
        known.find_bases(side, *(each for each in sides if each != side)) is not None
        for sides in merges
        for side in sides
    )
