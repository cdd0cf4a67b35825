"""Decide which revisions contain others, and find merge bases of code commits in shallow clones.

`Ancestry` answers for many revisions of the knowledge base after one walk of the history. Each
revision gets a bit, and each commit the bits of all that it contains. `MergeBases` uses the same
bits to find out if the missing history of a shallow clone could change a merge base.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter

from vmrag_link.engines.base import Engine
from vmrag_link.git import history, pin_merge
from vmrag_link.models import RevisionInfo
from vmrag_link.paths import Places


def carry_bits(parents: Mapping[str, Iterable[str]], own_bits: Mapping[str, int]) -> dict[str, int]:
    """Return for each commit its own bits and those of all its ancestors.

    `parents`: the parents of each commit, in an order in which parents come before children.
    """
    bits: dict[str, int] = {}
    for node, node_parents in parents.items():
        node_bits = own_bits.get(node, 0)
        for parent in node_parents:
            node_bits |= bits.get(parent, 0)
        bits[node] = node_bits
    return bits


def list_ancestors(
    parents: Mapping[str, Iterable[str]], heads: Iterable[str], without: Iterable[str] = ()
) -> Iterator[str]:
    """Yield the heads and their ancestors, each once. The search does not go beyond `without`.

    `parents`: the parents of each commit.
    """
    seen = set(without)
    waiting = list(heads)
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            yield node
            waiting.extend(parents[node])


class Ancestry:
    """Answer which of the given revisions contain each other.

    A revision is *known* if it was given and exists in this clone.
    """

    def __init__(self, engine: Engine, revisions: Iterable[str]) -> None:
        given = dict.fromkeys(revisions)
        self._engine = engine
        self._parents = engine.map_parents(given)
        self._bits = {revision: 1 << number for number, revision in enumerate(given) if revision in self._parents}
        ordered = {revision: self._parents[revision] for revision in TopologicalSorter(self._parents).static_order()}
        self._contained_bits = carry_bits(ordered, self._bits)
        self._infos: dict[str, RevisionInfo] = {}
        self._answers: dict[tuple[str, str], bool] = {}
        self._accepted: dict[str, frozenset[str]] = {}

    def has_revision(self, revision: str) -> bool:
        """Return whether a revision is known."""
        return revision in self._bits

    def is_descendant(self, revision: str, ancestor: str) -> bool:
        """Return whether a known revision contains another known one."""
        return bool(self._contained_bits[revision] & self._bits[ancestor])

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Return whether a known revision contains another one or its cherry-picked changes
        (`merging.revisions.holds_revision`).
        """
        if self.is_descendant(descendant, ancestor):
            return True
        if self.is_descendant(ancestor, descendant):
            return False
        pair = (ancestor, descendant)
        if pair not in self._answers:
            from vmrag_link.merging import revisions

            infos = list(self._list_infos_beyond(descendant, ancestor))
            self._answers[pair] = revisions.holds_revision(self._engine, infos, ancestor)
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
        """Yield the revisions that record a loss, and that `revision` contains and `other` does
        not.
        """
        from vmrag_link.merging import revisions

        remaining = self._find_beyond(revision, other)
        for info in self._engine.log(revision) if remaining else ():
            if info.revision in remaining:
                remaining.remove(info.revision)
                if revisions.read_accepted_losses(info.message):
                    yield info
            if not remaining:
                return

    def _find_beyond(self, revision: str, other: str | None) -> set[str]:
        """Return the revisions that `revision` contains and `other` does not."""
        common = set(list_ancestors(self._parents, [other])) if other in self._parents else set()
        return set(list_ancestors(self._parents, [revision], common))

    def _list_infos_beyond(self, revision: str, other: str) -> Iterator[RevisionInfo]:
        """Yield the revisions that `revision` contains and `other` does not, parents first."""
        beyond = self._find_beyond(revision, other)
        within = {node: [parent for parent in self._parents[node] if parent in beyond] for node in beyond}
        for node in TopologicalSorter(within).static_order():
            if node not in self._infos:
                self._infos[node] = self._engine.read_revision(node)
            yield self._infos[node]


class MergeBases:
    """Find merge bases of code commits. `tips`: commits that contain all of them.

    A shallow clone ends at its boundary: commits whose parents are missing. Each commit gets a bit
    for every boundary commit that it contains:

    * If two commits contain different parts of the boundary, their merge base may be in the missing
      history.
    * If both contain the same part, the clone has all commits that only one of them contains, and a
      merge base. If there are several bases, one may be an ancestor of another behind the boundary.
    """

    def __init__(self, places: Places, *tips: str) -> None:
        self._places = places
        self._boundary_bits: dict[str, int] = {}
        if boundary := history.read_shallow_boundary(places):
            bits = {commit: 1 << number for number, commit in enumerate(sorted(boundary))}
            self._boundary_bits = carry_bits(history.list_commits(places, tips), bits)

    def find_bases(self, commit: str, *others: str) -> list[str] | None:
        """Return all best common ancestors; None if this clone cannot decide."""
        boundary = self._boundary_bits.get(commit, 0)
        if boundary != self._join_bits(others):
            return None
        bases = pin_merge.list_merge_bases(self._places, [commit, *others])
        return None if boundary and len(bases) > 1 else bases

    def is_settled(self, head: str, base: str, commits: Mapping[str, Sequence[str]]) -> bool:
        """Return whether this clone knows all commits that `head` contains and `base` does not.

        `commits`: those that this clone has, with their parents. One of them could still be in the
        missing history of the base. Then this history would also have all its ancestors. That is
        impossible if the commit contains the whole boundary, because no commit is its own ancestor.
        """
        if self.find_bases(head, base) is None:
            return False
        boundary = self._boundary_bits.get(head, 0)
        if not boundary:
            return True
        for parents in commits.values():
            if not parents:
                return False
            if any(parent not in commits and self._boundary_bits.get(parent, 0) != boundary for parent in parents):
                return False
        return True

    def _join_bits(self, commits: tuple[str, ...]) -> int:
        """Return the boundary bits that any of the commits has."""
        bits = 0
        for commit in commits:
            bits |= self._boundary_bits.get(commit, 0)
        return bits


def is_comparable(places: Places, base: str | None, head: str) -> bool:
    """Return whether this clone can decide which commits `head` contains and `base` does not.

    It must also have the merge bases of each merge among them. Both commits exist here. `base`:
    None if the head has no parent.
    """
    if not history.read_shallow_boundary(places):
        return True
    merge_bases = MergeBases(places, *([head, base] if base else [head]))
    commits = history.list_commits(places, [head], without=base)
    if base and not merge_bases.is_settled(head, base, commits):
        return False
    for parents in commits.values():
        for side in parents if len(parents) > 1 else ():
            others = [parent for parent in parents if parent != side]
            if merge_bases.find_bases(side, *others) is None:
                return False
    return True
