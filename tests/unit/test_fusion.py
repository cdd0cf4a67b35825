"""Scores by words and by vectors as one, in whole numbers, of one collection or of several."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmrag_link.retrieval.fusion import FULL_WEIGHT, UNIT, CollectionScores, fuse_scores, normalize_scores

MOST = 10**12


def fused(vectors: dict[int, int], words: dict[int, int], weight: float) -> dict[int, int]:
    """Fuse the scores of a single collection."""
    return fuse_scores([CollectionScores(vectors, words, MOST)], weight)


def exact(vectors: dict[int, int], words: dict[int, int], weight: int) -> dict[int, Fraction]:
    """The scores of a single collection, not rounded; `weight` in thousandths."""
    nearest, wordiest = (max(map(abs, scores.values()), default=0) or 1 for scores in (vectors, words))
    return {
        row: Fraction(weight * near, FULL_WEIGHT * nearest)
        + Fraction((FULL_WEIGHT - weight) * words[row], FULL_WEIGHT * wordiest)
        for row, near in vectors.items()
    }


# -- one collection


def test_best_by_both_has_the_score_of_one():
    scores = fused({1: 500, 2: 250}, {1: 3 * 10**9, 2: 10**9}, 0.4)
    assert scores[1] == UNIT
    assert scores[2] == UNIT * (Fraction(4, 10) / 2 + Fraction(6, 10) / 3)


@pytest.mark.parametrize(("weight", "first"), [(0.0, 1), (0.4, 1), (0.6, 2), (1.0, 2)])
def test_weight_decides_between_best_by_words_and_best_by_vectors(weight, first):
    scores = fused({1: 0, 2: 7}, {1: 9, 2: 0}, weight)
    assert max(scores, key=scores.__getitem__) == first


def test_kind_that_knows_nothing_leaves_the_order_to_the_other():
    assert fused({1: 4, 2: 8}, {1: 0, 2: 0}, 0.4) == {1: UNIT * 4 // 8 * 4 // 10, 2: UNIT * 4 // 10}
    assert fused({1: 0, 2: 0}, {1: 5, 2: 10}, 0.4) == {1: UNIT * 5 // 10 * 6 // 10, 2: UNIT * 6 // 10}
    assert fused({1: 0}, {1: 0}, 0.4) == {1: 0}
    assert fused({}, {}, 0.4) == {}
    assert fuse_scores([], 0.4) == {}


def test_distant_vectors_lower_a_score_by_at_most_their_share():
    scores = fused({1: 5, 2: -500}, {1: 0, 2: 100}, 0.4)
    assert scores[2] > scores[1]
    assert fused({1: -3, 2: -6}, {1: 0, 2: 0}, 0.4) == {1: -UNIT * 3 // 6 * 4 // 10, 2: -UNIT * 4 // 10}
    assert all(-UNIT <= score <= UNIT for score in scores.values())


SCORED = st.dictionaries(st.integers(0, 50), st.tuples(st.integers(-(2**24), 2**24), st.integers(0, 10**11)))


def kinds(scored: dict[int, tuple[int, int]]) -> tuple[dict[int, int], dict[int, int]]:
    vectors, words = ({row: value[kind] for row, value in scored.items()} for kind in (0, 1))
    return vectors, words


@given(SCORED, st.integers(0, FULL_WEIGHT))
def test_scores_are_whole_and_none_is_above_one(scored, weight):
    scores = fused(*kinds(scored), weight / FULL_WEIGHT)
    assert scores.keys() == scored.keys()
    assert all(type(score) is int and abs(score) <= UNIT for score in scores.values())


@given(SCORED, st.integers(0, FULL_WEIGHT), st.integers(0, 10**12))
def test_single_collection_keeps_its_earlier_scores(scored, weight, more):
    """Each kind divided by its best and added by weight, rounded down; what the words could reach
    at most does not matter.
    """
    vectors, words = kinds(scored)
    most = max(1, *words.values(), 1) + more
    assert fuse_scores([CollectionScores(vectors, words, most)], weight / FULL_WEIGHT) == {
        row: UNIT * score // 1 for row, score in exact(vectors, words, weight).items()
    }


# -- several


@st.composite
def collections(draw: st.DrawFn) -> list[CollectionScores]:
    """No row is in two of them, and no score by words is above what it can be at most."""
    made = []
    for number in range(draw(st.integers(1, 4))):
        vectors, words = kinds({100 * number + row: value for row, value in draw(SCORED).items()})
        made.append(CollectionScores(vectors, words, max([1, *words.values()]) + draw(st.integers(0, 10**12))))
    return made


def order(scores: dict[int, int], rows: Sequence[int]) -> list[int]:
    return sorted(rows, key=lambda row: (-scores[row], row))


def test_other_collections_do_not_change_order_within_a_collection():
    one = CollectionScores({1: 900, 2: 300, 3: 800, 4: -100}, {1: 0, 2: 700, 3: 500, 4: 0}, 1_000)
    before = order(fuse_scores([one], 0.4), [1, 2, 3, 4])
    assert before == [3, 2, 1, 4]
    for other in (
        CollectionScores({11: 100_000}, {11: 10**11}, 10**11),  # better by both
        CollectionScores({11: 100_000}, {11: 0}, 10**11),
        CollectionScores({11: 1}, {11: 10**11}, 10**11),
        CollectionScores({11: 1}, {11: 1}, 10**11),  # worse by both
        CollectionScores({11: -1}, {11: 0}, 1),
        CollectionScores({}, {}, 1),
    ):
        assert order(fuse_scores([one, other], 0.4), [1, 2, 3, 4]) == before
        assert (
            order(fuse_scores([other, one, msgspec.structs.replace(other, vectors={}, words={})], 0.4), [1, 2, 3, 4])
            == before
        )


@given(collections(), st.integers(0, FULL_WEIGHT))
def test_order_of_a_collection_never_depends_on_the_others(given_collections, weight):
    scores = fuse_scores(given_collections, weight / FULL_WEIGHT)
    assert scores.keys() == {row for given_collection in given_collections for row in given_collection.vectors}
    assert all(type(score) is int and abs(score) <= UNIT for score in scores.values())
    for given_collection in given_collections:
        alone = exact(given_collection.vectors, given_collection.words, weight)
        rows = sorted(alone, key=alone.__getitem__)
        together = [scores[row] for row in rows]
        assert together == sorted(together), "none passes another"
        assert [score < 0 for score in together] == [
            alone[row] < 0 and score < 0 for row, score in zip(rows, together, strict=True)
        ]
        # A collection has a single weight: what is the same share of its best alone is so together.
        if together and alone[rows[-1]] > 0:
            share = Fraction(scores[rows[-1]]) / alone[rows[-1]]
            assert all(abs(scores[row] - share * alone[row]) <= 1 + abs(alone[row] / alone[rows[-1]]) for row in rows)


@given(collections(), st.integers(0, FULL_WEIGHT), st.randoms(use_true_random=False))
def test_fusion_does_not_depend_on_the_order_of_collections(given_collections, weight, dice):
    mixed = dice.sample(given_collections, len(given_collections))
    assert fuse_scores(mixed, weight / FULL_WEIGHT) == fuse_scores(given_collections, weight / FULL_WEIGHT)


@given(collections(), st.integers(0, FULL_WEIGHT), st.integers(1, 2**24), st.integers(1, 10**12))
def test_best_by_both_of_all_collections_has_the_score_of_one(given_collections, weight, further, most):
    nearest = further + max(
        abs(near) for given_collection in given_collections for near in (0, *given_collection.vectors.values())
    )
    best = CollectionScores({1_000: nearest, 1_001: 0}, {1_000: most, 1_001: 0}, most)  # the maximum of any word
    scores = fuse_scores([*given_collections, best], weight / FULL_WEIGHT)
    assert scores[1_000] == UNIT == max(scores.values())


def test_collection_weight_depends_on_distance_of_its_best_scores():
    near = CollectionScores({1: 1_000}, {1: 80}, 100)
    half = CollectionScores({11: 500}, {11: 10}, 100)
    scores = fuse_scores([near, half], 0.4)
    assert scores == {1: UNIT, 11: UNIT * (Fraction(4, 10) / 2 + Fraction(6, 10) / 8)}
    # Words weigh by their share of what they could be: ten times as much of that is as much.
    assert fuse_scores([near, msgspec.structs.replace(half, words={11: 100}, max_word_score=1_000)], 0.4) == scores
    # The best by words of one collection and the best by vectors of another: neither has all.
    mixed = fuse_scores([CollectionScores({1: 1_000}, {1: 20}, 100), CollectionScores({11: 500}, {11: 80}, 100)], 0.4)
    assert mixed == {
        1: UNIT * (Fraction(4, 10) + Fraction(6, 10) / 4),
        11: UNIT * (Fraction(4, 10) / 2 + Fraction(6, 10)),
    }


def test_collection_without_matches_comes_last():
    scores = fuse_scores(
        [
            CollectionScores({1: 10, 2: 9}, {1: 0, 2: 0}, 1_000),
            CollectionScores({11: 900, 12: 300}, {11: 500, 12: 100}, 1_000),
        ],
        0.4,
    )
    assert order(scores, [1, 2, 11, 12]) == [11, 12, 1, 2]


# -- words alone


@given(st.dictionaries(st.integers(0, 50), st.integers(0, 10**11)), st.integers(0, 10**12))
def test_normalize_keeps_the_scores_of_a_single_collection(words, more):
    assert normalize_scores([(words, max([1, *words.values()]) + more)]) == words
    assert normalize_scores([]) == {}


def test_by_share_compares_shares_of_the_possible_score():
    small, large = ({1: 50, 2: 20}, 100), ({11: 400, 12: 900}, 1_000)
    assert normalize_scores([small, large]) == {1: 500, 2: 200, 11: 400, 12: 900}
    assert normalize_scores([large, small]) == normalize_scores([small, large])


@given(collections())
def test_by_share_never_changes_the_order_of_a_collection(given_collections):
    scores = normalize_scores(
        [(given_collection.words, given_collection.max_word_score) for given_collection in given_collections]
    )
    largest = max(given_collection.max_word_score for given_collection in given_collections)
    for given_collection in given_collections:
        rows = list(given_collection.words)
        assert order(scores, rows) == order(given_collection.words, rows)
        assert [scores[row] for row in rows] == [
            given_collection.words[row] * largest // given_collection.max_word_score for row in rows
        ]
        assert all(scores[row] <= largest for row in rows)
