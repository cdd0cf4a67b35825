"""Which lines of two texts are the same: the matcher of every merge by line.

Its answer decides what a merged revision holds, so it must be the same on every machine: it counts
lines, never seconds, and takes nothing from the installed git. Whatever changes its answer changes
`merging.text.VERSION`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import Match, SequenceMatcher
from itertools import accumulate

from vmrag_link.worddiff import common_ends, longest_chain

Block = tuple[int, int, int]
"""Where equal lines begin in the first text and in the second, and how many there are."""

MOST_PAIRS = 1_000_000
"""Pairs of equal lines that are compared in one text; what would need more does not match.

It bounds the whole text: lines between unique ones, all alike, would take difflib hours.
"""


def matching_blocks(a: Sequence[str], b: Sequence[str]) -> list[Block]:
    """In order and maximal; the last is empty and stands at both ends.

    Lines that both texts have once are anchors, as in git's patience diff. Between two of them
    difflib finds the longest matches, without its guess that frequent lines are junk. Texts of
    10,000 lines take well under a second.
    """
    joined: list[Block] = []
    i = j = n = 0
    for next_i, next_j, more in _blocks(a, b):
        if i + n == next_i and j + n == next_j:
            n += more
            continue
        if n:
            joined.append((i, j, n))
        i, j, n = next_i, next_j, more
    return [*joined, *([(i, j, n)] if n else []), (len(a), len(b), 0)]


def _blocks(a: Sequence[str], b: Sequence[str]) -> Iterator[Block]:
    """In order, some of them empty or adjacent."""
    head, tail = common_ends(a, b)
    yield 0, 0, head
    left, right = (each[head : len(each) - tail] for each in (a, b))
    at_left = at_right = 0
    allowance = MOST_PAIRS
    for i, j in (*_anchors(left, right), (len(left), len(right))):
        if i > at_left and j > at_right:
            between, allowance = _longest_matches(left[at_left:i], right[at_right:j], allowance)
            yield from ((head + at_left + x, head + at_right + y, n) for x, y, n in between)
        if i < len(left):
            yield head + i, head + j, 1
        at_left, at_right = i + 1, j + 1
    yield len(a) - tail, len(b) - tail, tail


def _anchors(left: Sequence[str], right: Sequence[str]) -> list[tuple[int, int]]:
    """The longest ascending sequence of lines that each text has exactly once."""
    once = {line for line, count in Counter(left).items() if count == 1}
    once &= {line for line, count in Counter(right).items() if count == 1}
    places = {line: number for number, line in enumerate(right) if line in once}
    pairs = [(number, places[line]) for number, line in enumerate(left) if line in once]
    return longest_chain(pairs)


def _longest_matches(left: Sequence[str], right: Sequence[str], allowance: int) -> tuple[Sequence[Block], int]:
    """Returns what is left of the allowance, too."""
    if left == right:
        return [(0, 0, len(left))], allowance
    if set(left).isdisjoint(right):  # most of a text with a million changes
        return [], allowance
    matcher = _BoundedMatcher(left, right, allowance)
    return matcher.get_matching_blocks()[:-1], matcher.allowance


class _BoundedMatcher(SequenceMatcher[str]):
    """Compares `allowance` pairs of lines at most, and tells how many are left."""

    def __init__(self, left: Sequence[str], right: Sequence[str], allowance: int) -> None:
        super().__init__(None, left, right, autojunk=False)
        self.allowance = allowance
        counts = Counter(right)
        self._pairs = list(accumulate((1 + counts[line] for line in left), initial=0))

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """Empty where the comparison costs more than is left; difflib goes no further there."""
        cost = self._pairs[-1 if ahi is None else ahi] - self._pairs[alo]
        if cost > self.allowance:
            return Match(alo, blo, 0)
        self.allowance -= cost
        return super().find_longest_match(alo, ahi, blo, bhi)
