"""Scores by words and by vectors as one, in whole numbers."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmrag_link.retrieval.fusion import WHOLE, fuse


def test_the_best_by_both_has_the_score_of_one():
    scores, one = fuse({1: 500, 2: 250}, {1: 3 * 10**9, 2: 10**9}, 0.4)
    assert scores[1] == one
    assert Fraction(scores[2], one) == Fraction(4, 10) / 2 + Fraction(6, 10) / 3


@pytest.mark.parametrize(("weight", "first"), [(0.0, 1), (0.4, 1), (0.6, 2), (1.0, 2)])
def test_the_weight_decides_between_the_best_by_words_and_the_best_by_vectors(weight, first):
    scores, _ = fuse({1: 0, 2: 7}, {1: 9, 2: 0}, weight)
    assert max(scores, key=scores.__getitem__) == first


def test_a_kind_that_knows_nothing_leaves_the_order_to_the_other():
    assert fuse({1: 4, 2: 8}, {1: 0, 2: 0}, 0.4) == ({1: 4 * 400, 2: 8 * 400}, 8 * WHOLE)
    assert fuse({1: 0, 2: 0}, {1: 5, 2: 10}, 0.4) == ({1: 5 * 600, 2: 10 * 600}, 10 * WHOLE)
    assert fuse({1: 0}, {1: 0}, 0.4) == ({1: 0}, WHOLE)
    assert fuse({}, {}, 0.4) == ({}, WHOLE)


def test_what_is_far_from_the_query_by_vectors_is_not_counted_for_more_than_its_share():
    scores, one = fuse({1: 5, 2: -500}, {1: 0, 2: 100}, 0.4)
    assert scores[2] > scores[1]
    assert fuse({1: -3, 2: -6}, {1: 0, 2: 0}, 0.4)[0] == {1: -3 * 400, 2: -6 * 400}
    assert all(-one <= score <= one for score in scores.values())


@given(
    st.dictionaries(st.integers(0, 50), st.tuples(st.integers(-(2**24), 2**24), st.integers(0, 10**11))),
    st.integers(0, WHOLE),
)
def test_scores_are_whole_and_none_is_above_one(parts, weight):
    vectors, words = ({row: each[kind] for row, each in parts.items()} for kind in (0, 1))
    scores, one = fuse(vectors, words, weight / WHOLE)
    assert scores.keys() == parts.keys()
    assert all(type(score) is int and abs(score) <= one for score in scores.values())
