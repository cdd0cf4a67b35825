"""Decide which of many revisions contains which, and find merge bases of code commits.

One request to the engine is enough. In a shallow clone, merge bases are found as far as its history
decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter

from vmrag_link.engines.base import Engine
from vmrag_link.git import history, pin_merge
from vmrag_link.models import RevisionInfo
from vmrag_link.paths import Places


def carry_bits(parents: Mapping[str, Iterable[str]], own_bits: Mapping[str, int]) -> dict[str, int]:
    """Return the bits of each node and of everything before it.

    In `parents`, parents come before children. Parents that are not in it have no bits.
    """
    bits: dict[str, int] = {}
    for node, before in parents.items():
        node_bits = own_bits.get(node, 0)
        for parent in before:
            node_bits |= bits.get(parent, 0)
        bits[node] = node_bits
    return bits


def list_ancestors(
    parents: Mapping[str, Iterable[str]], heads: Iterable[str], without: Iterable[str] = ()
) -> Iterator[str]:
    """Yield the heads and all their ancestors once, except `without` and what only those lead to.

    `parents`: the parents of all of them.
    """
    seen, waiting = set(without), list(heads)
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            yield node
            waiting.extend(parents[node])


class Ancestry:
    """Answers questions about the given revisions. Other revisions are unknown.

    Each revision has a bit. Each revision of the history has the bits of all that it contains, so
    that an answer costs nothing.
    """

    def __init__(self, engine: Engine, revisions: Iterable[str]) -> None:
        known_revisions = dict.fromkeys(revisions)
        self._engine = engine
        self._parents = engine.map_parents(known_revisions)
        self._bits = {
            revision: 1 << number for number, revision in enumerate(known_revisions) if revision in self._parents
        }
        ordered = {revision: self._parents[revision] for revision in TopologicalSorter(self._parents).static_order()}
        self._held = carry_bits(ordered, self._bits)
        self._infos: dict[str, RevisionInfo] = {}
        self._answers: dict[tuple[str, str], bool] = {}
        self._accepted: dict[str, frozenset[str]] = {}

    def has_revision(self, revision: str) -> bool:
        return revision in self._bits

    def is_descendant(self, revision: str, ancestor: str) -> bool:
        """Return whether a revision contains another one. Both are known."""
        return bool(self._held[revision] & self._bits[ancestor])

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Return whether a revision contains another one, or has picked its changes
        (`merging.revisions.holds_revision`).
        """
        if self.is_descendant(descendant, ancestor):
            return True
        if self.is_descendant(ancestor, descendant):
            return False
        pair = (ancestor, descendant)
        if pair not in self._answers:
            from vmrag_link.merging import revisions

            self._answers[pair] = revisions.holds_revision(
                self._engine, list(self._list_own(descendant, ancestor)), ancestor
            )
        return self._answers[pair]

    def accepts_loss(self, revision: str, lost: str) -> bool:
        """Return whether a known revision accepts the loss of an unknown one."""
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
        """Yield the revisions that accept a loss, of those that one contains and the other does
        not.
        """
        from vmrag_link.merging import revisions

        common = set(list_ancestors(self._parents, [other])) if other in self._parents else set()
        only_here = set(list_ancestors(self._parents, [revision], common))
        for info in self._engine.log(revision) if only_here else ():
            if info.revision in only_here:
                only_here.remove(info.revision)
                if revisions.read_accepted_losses(info.message):
                    yield info
            if not only_here:
                return

    def _list_own(self, revision: str, other: str) -> Iterator[RevisionInfo]:
        """Yield what the revision contains and the other does not, parents before children."""
        common = set(list_ancestors(self._parents, [other]))
        only_here = set(list_ancestors(self._parents, [revision], common))
        within = {node: [parent for parent in self._parents[node] if parent in only_here] for node in only_here}
        for node in TopologicalSorter(within).static_order():
            if node not in self._infos:
                self._infos[node] = self._engine.read_revision(node)
            yield self._infos[node]


class MergeBases:
    """Finds merge bases of commits that some tips reach.

    A shallow clone ends at its boundary, at commits whose parents are missing. Each commit has a
    bit for every boundary commit that it reaches. If two commits reach different parts of the
    boundary, the missing history may be older than their merge base, or have it. If both reach the
    same part, the clone has everything that only one of them has, and also a merge base. But of
    several bases, one may be an ancestor of another behind the boundary.
    """

    def __init__(self, places: Places, *tips: str) -> None:
        self._places = places
        self._cut: dict[str, int] = {}
        if boundary := history.read_shallow_boundary(places):
            bits = {commit: 1 << number for number, commit in enumerate(sorted(boundary))}
            self._cut = carry_bits(history.list_commits(places, tips), bits)

    def find_bases(self, commit: str, *others: str) -> list[str] | None:
        """Return all best common ancestors; None if this clone cannot decide."""
        cut = self._cut.get(commit, 0)
        if cut != self._join_bits(others):
            return None
        bases = pin_merge.list_merge_bases(self._places, [commit, *others])
        return None if cut and len(bases) > 1 else bases

    def is_settled(self, head: str, base: str, commits: Mapping[str, Sequence[str]]) -> bool:
        """Return whether `commits` are complete: all commits that the head has and the base does
        not.

        `commits`: those in this clone, with their parents. One of them could be in the base's
        history behind the boundary. Then that history would also have all its ancestors. But the
        commit reaches the whole boundary itself, and no commit is its own ancestor.
        """
        if self.find_bases(head, base) is None:
            return False
        cut = self._cut.get(head, 0)
        return not cut or all(
            sides and all(side in commits or self._cut.get(side, 0) == cut for side in sides)
            for sides in commits.values()
        )

    def _join_bits(self, commits: tuple[str, ...]) -> int:
        bits = 0
        for commit in commits:
            bits |= self._cut.get(commit, 0)
        return bits


def is_comparable(places: Places, base: str | None, head: str) -> bool:
    """Return whether this clone can decide which commits `head` has and `base` does not.

    It must also decide where each merge among them comes from. Both commits exist here. `base`
    None: the head has no parent.
    """
    if not history.read_shallow_boundary(places):
        return True
    merge_bases = MergeBases(places, *([head, base] if base else [head]))
    commits = history.list_commits(places, [head], without=base)
    if base and not merge_bases.is_settled(head, base, commits):
        return False
    merges = (sides for sides in commits.values() if len(sides) > 1)
    return all(
        merge_bases.find_bases(side, *(other for other in sides if other != side)) is not None
        for sides in merges
        for side in sides
    )
