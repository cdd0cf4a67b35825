"""Combine the scores of chunks by words and by vectors, and compare the scores of collections.

Both scores of a chunk are divided by the best of their kind in its collection and added by weight
(convex combination: Bruch, Gai and Ingber, 2023), in integers. If a query has several collections,
the scores of each are weighted by how close its best ones come to the best of all. So no collection
reorders another, and a collection without matches comes last. Reciprocal ranks (version 1) gave the
weaker of the two scores equal weight and ignored distances. bench/README.md has the measurements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from vmrag_link.models import Record

FULL_WEIGHT = 1000
"""Weights are in thousandths."""

UNIT = 10**18
"""The score of a chunk that is the best by both words and vectors."""

_WORD_SHARE_UNIT = 10**9


class CollectionScores(Record, frozen=True):
    """The scores of the same chunks of one collection, by vectors and by words."""

    vectors: Mapping[int, int]
    words: Mapping[int, int]
    max_word_score: int
    """See `WordScores.max_score`."""

    vector_share: int = FULL_WEIGHT
    """The weight of the vectors in thousandths of their usual weight."""


class Nearness(NamedTuple):
    """How near the best chunks are to a question. The larger, the nearer."""

    by_vector: int
    """The best score by vectors."""

    by_words: int
    """The best score by words, as a part of the maximum score of a chunk, in billionths."""


class Weight(NamedTuple):
    """The weight of a collection in a query: a fraction. Weights of one query have the same
    denominator.
    """

    numerator: int
    denominator: int


def fuse_scores(collections: Sequence[CollectionScores], vector_weight: float) -> dict[int, int]:
    """Return the scores of all these chunks, in `UNIT`.

    A kind of score that is not positive for any chunk is ignored.
    """
    usual_vector_weight = round(FULL_WEIGHT * vector_weight)
    weights = weigh_nearness([measure_nearness(part) for part in collections], usual_vector_weight)
    scores: dict[int, int] = {}
    for collection, weight in zip(collections, weights, strict=True):
        best_vector = _find_largest(collection.vectors)
        best_words = _find_largest(collection.words)
        this_vector_weight = usual_vector_weight * collection.vector_share // FULL_WEIGHT
        word_weight = FULL_WEIGHT - this_vector_weight
        divisor = FULL_WEIGHT * best_vector * best_words * weight.denominator
        for row, by_vector in collection.vectors.items():
            by_words = collection.words[row]
            weighted = this_vector_weight * by_vector * best_words + word_weight * by_words * best_vector
            scores[row] = UNIT * weight.numerator * weighted // divisor
    return scores


def _find_largest(scores: Mapping[int, int]) -> int:
    """Return the best score, or a divisor that keeps the scores between -1 and 0 if none is
    positive.
    """
    return max((abs(score) for score in scores.values()), default=0) or 1


def measure_nearness(part: CollectionScores) -> Nearness:
    """Return the nearness of the best chunks of one collection."""
    by_words = max(0, *part.words.values()) * _WORD_SHARE_UNIT // part.max_word_score if part.words else 0
    return Nearness(max(0, *part.vectors.values()) if part.vectors else 0, by_words)


def combine_nearness(nearnesses: Iterable[Nearness]) -> Nearness:
    """Return the nearness of the best chunks of several collections."""
    by_vector, by_words = zip((0, 0), *nearnesses, strict=True)
    return Nearness(max(by_vector), max(by_words))


def weigh_nearness(nearnesses: Sequence[Nearness], vector_weight: int) -> list[Weight]:
    """Return the nearness of each collection in relation to the best of all. A single collection
    gets 1.

    `vector_weight`: the weight of the vectors in thousandths.
    """
    word_weight = FULL_WEIGHT - vector_weight
    best = combine_nearness(nearnesses)
    used_weight = vector_weight * (best.by_vector > 0) + word_weight * (best.by_words > 0)
    if not used_weight:
        return [Weight(1, 1)] * len(nearnesses)
    best_vector = best.by_vector or 1
    best_words = best.by_words or 1
    return [
        Weight(
            vector_weight * near.by_vector * best_words + word_weight * near.by_words * best_vector,
            used_weight * best_vector * best_words,
        )
        for near in nearnesses
    ]


def normalize_scores(collections: Sequence[tuple[Mapping[int, int], int]]) -> dict[int, int]:
    """Return comparable scores by words of several collections.

    Each collection is given as its scores and its maximum (`WordScores.max_score`). The scores of a
    single collection stay the same.
    """
    largest = max((maximum for _, maximum in collections), default=1)
    return {row: score * largest // maximum for scores, maximum in collections for row, score in scores.items()}
