"""Which lines of two texts are the same: the matcher of every merge by line.

Its answer decides what a merged revision holds, so it must be the same on every machine: it counts
lines, never seconds, and takes nothing from the installed git. Whatever changes its answer changes
`merging.text.VERSION`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher

from vmrag_link.worddiff import longest_chain

Block = tuple[int, int, int]
"""Where equal lines begin in the first text and in the second, and how many there are."""

MOST_PAIRS = 1_000_000
"""Pairs of equal lines that are compared between two anchors; with more, nothing there matches."""


class LineMatcher:
    """As `difflib.SequenceMatcher`, for texts of 10,000 lines: what merge3 asks.

    Lines that both texts have once are anchors, as in git's patience diff. Between two of them
    difflib finds the longest matches, without its guess that frequent lines are junk.
    """

    def __init__(
        self,
        isjunk: Callable[[str], bool] | None = None,
        a: Sequence[str] = "",
        b: Sequence[str] = "",
        autojunk: bool = False,
    ) -> None:
        del isjunk, autojunk  # merge3 names them
        self._a, self._b = a, b

    def get_matching_blocks(self) -> list[Block]:
        """In order and maximal; the last is empty and stands at both ends."""
        joined: list[Block] = []
        for block in self._blocks():
            before = joined[-1] if joined else (0, 0, 0)
            if joined and (before[0] + before[2], before[1] + before[2]) == block[:2]:
                joined[-1] = (before[0], before[1], before[2] + block[2])
            else:
                joined.append(block)
        return [*joined, (len(self._a), len(self._b), 0)]

    def _blocks(self) -> Iterator[Block]:
        head = _common_prefix(self._a, self._b)
        left, right = self._a[head:], self._b[head:]
        tail = _common_prefix(left[::-1], right[::-1])
        if head:
            yield 0, 0, head
        left, right = left[: len(left) - tail], right[: len(right) - tail]
        at_left = at_right = 0
        for i, j in (*_anchors(left, right), (len(left), len(right))):
            between = _longest_matches(left[at_left:i], right[at_right:j])
            yield from ((head + at_left + x, head + at_right + y, n) for x, y, n in between)
            if i < len(left):
                yield head + i, head + j, 1
            at_left, at_right = i + 1, j + 1
        if tail:
            yield len(self._a) - tail, len(self._b) - tail, tail


def _common_prefix(left: Sequence[str], right: Sequence[str]) -> int:
    return next((n for n, (x, y) in enumerate(zip(left, right, strict=False)) if x != y), min(len(left), len(right)))


def _anchors(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]]:
    """The longest ascending sequence of lines that each text has exactly once."""
    once = {line for line, count in Counter(left).items() if count == 1}
    once &= {line for line, count in Counter(right).items() if count == 1}
    places = {line: number for number, line in enumerate(right) if line in once}
    pairs = [(number, places[line]) for number, line in enumerate(left) if line in once]
    return longest_chain(pairs)


def _longest_matches(left: Sequence[str], right: Sequence[str]) -> Sequence[Block]:
    if left == right:
        return [(0, 0, len(left))] if left else []
    if not left or not right:
        return []
    counts = Counter(right)
    if sum(counts[line] for line in left) > MOST_PAIRS:
        return []
    return SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks()[:-1]
