"""What two sequences have in common, in order: for word diffs and for merges by line.

Merges by line depend on these answers: whatever changes one changes `merging.text.VERSION`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice, takewhile
from operator import eq


def common_ends(left: Sequence[str], right: Sequence[str]) -> tuple[int, int]:
    """How many elements both begin with, and how many both end with after those."""
    head = sum(takewhile(bool, map(eq, left, right)))
    rest = min(len(left), len(right)) - head
    tail = sum(takewhile(bool, islice(map(eq, reversed(left), reversed(right)), rest)))
    return head, tail


def longest_chain(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest chain of pairs, sorted by their first number, whose second numbers rise (patience
    sorting). Of several, always the same one.
    """
    ends: list[int] = []  # the lowest end of a chain of each length …
    holders: list[int] = []  # … and the pair it belongs to
    before: list[int] = []
    for number, (_, value) in enumerate(pairs):
        length = bisect_left(ends, value)
        before.append(holders[length - 1] if length else -1)
        ends[length : length + 1] = [value]
        holders[length : length + 1] = [number]
    chain = []
    at = holders[-1] if holders else -1
    while at >= 0:
        chain.append(pairs[at])
        at = before[at]
    return chain[::-1]
