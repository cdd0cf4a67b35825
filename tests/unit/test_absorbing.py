"""Choice of the segments that a new segment absorbs."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from vmrag_link.index.draft import MOST_PARTS, SMALL_SEGMENT, PartSize, choose_absorbed


def whole(chunks: int) -> PartSize:
    return PartSize(chunks, chunks)


def test_removal_absorbs_no_segment():
    assert choose_absorbed([whole(10_000), whole(3)], 0) == []


def test_addition_absorbs_small_segments():
    assert choose_absorbed([whole(10_000), whole(SMALL_SEGMENT), whole(SMALL_SEGMENT - 1), whole(1)], 5) == [2, 3]


def test_empty_part_is_not_taken_in():
    assert choose_absorbed([whole(10_000), PartSize(0, 50)], 5) == []


def test_segment_with_mostly_dead_slots_is_absorbed_without_additions():
    assert choose_absorbed([PartSize(100, 1_000), whole(500)], 0) == [0]
    assert choose_absorbed([PartSize(500, 1_000), whole(500)], 0) == []


def test_segment_is_not_absorbed_if_added_chunks_equal_removed_chunks():
    """Otherwise a branch that changes the larger half of the code would index the rest again."""
    assert choose_absorbed([PartSize(400, 1_000)], 600) == []
    assert choose_absorbed([PartSize(400, 1_000)], 100) == [0]


@given(st.lists(st.integers(1, 400), min_size=1, max_size=300), st.integers(0, 20_000))
def test_view_has_few_segments_and_documents_move_rarely(changes, first):
    """However many are added at once: what was written in all is a small multiple of what was
    added, times the logarithm of its number.
    """
    parts = [first] if first else []
    written = 0
    for added in changes:
        taken = choose_absorbed([whole(part) for part in parts], added)
        total = added + sum(parts[number] for number in taken)
        written += total
        parts = [part for number, part in enumerate(parts) if number not in taken] + [total]
        assert len(parts) <= MOST_PARTS
    added = sum(changes)
    small = len(changes) * SMALL_SEGMENT  # each write may take in a segment that is still small
    assert written <= small + 6 * (added + first) * max(1, math.log2(added + first))
    assert sum(parts) == added + first


def test_many_small_writes_leave_segments_of_falling_sizes():
    parts: list[int] = [10_000]
    for _ in itertools.repeat(None, 2_000):
        taken = choose_absorbed([whole(part) for part in parts], 10)
        parts = [part for number, part in enumerate(parts) if number not in taken] + [
            10 + sum(parts[number] for number in taken)
        ]
    assert len(parts) <= MOST_PARTS
    assert sum(parts) == 30_000
