"""Merge bases of code commits, and whether a shallow clone has enough of the history to tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmrag_link.git import history, pin_merge
from vmrag_link.ops.commits.ancestry import carried
from vmrag_link.paths import Places


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
        if boundary := history.boundary(places):
            bits = {commit: 1 << number for number, commit in enumerate(sorted(boundary))}
            self._cut = carried(history.commits(places, tips), bits)

    def of(self, commit: str, *others: str) -> list[str] | None:
        """All best common ancestors of a commit and the others; None where this clone cannot
        tell.
        """
        cut = self._cut.get(commit, 0)
        if cut != self._reached(others):
            return None
        found = pin_merge.merge_bases(self._places, [commit, *others])
        return None if cut and len(found) > 1 else found

    def settle(self, head: str, base: str, found: Mapping[str, Sequence[str]]) -> bool:
        """Whether `found`, the commits with their parents that the head reaches here and the base
        does not, are those of the whole history.

        One of them could be the base's behind the boundary. Then so is all that it comes from: but
        that reaches the whole boundary itself, and nothing is its own ancestor.
        """
        if self.of(head, base) is None:
            return False
        cut = self._cut.get(head, 0)
        return not cut or all(
            sides and all(each in found or self._cut.get(each, 0) == cut for each in sides) for sides in found.values()
        )

    def _reached(self, commits: tuple[str, ...]) -> int:
        bits = 0
        for each in commits:
            bits |= self._cut.get(each, 0)
        return bits


def is_comparable(places: Places, base: str | None, head: str) -> bool:
    """Whether this clone has all that decides which commits `head` has and `base` has not, and from
    where each merge among them comes. Both commits are here.

    `base` None: the head has no parent.
    """
    if not history.boundary(places):
        return True
    known = MergeBases(places, *([head, base] if base else [head]))
    found = history.commits(places, [head], without=base)
    if base and not known.settle(head, base, found):
        return False
    merges = (sides for sides in found.values() if len(sides) > 1)
    return all(
        known.of(side, *(each for each in sides if each != side)) is not None for sides in merges for side in sides
    )
