"""Combine scores of words and vectors, and define the version, settings and fingerprint of the
ranking.

It also defines the similarity from which a document is a result.

Both scores of a chunk are divided by the best of their kind in its collection and added by weight
(convex combination: Bruch, Gai and Ingber, 2023), in integers. If a query has several collections,
the scores of each are weighted by how close its best ones come to the best of all. So no collection
reorders another, and a collection without matches comes last. Reciprocal ranks (version 1) gave the
weaker of the two scores equal weight and ignored distances. bench/README.md has the measurements.

Models have different ranges of cosines: a matching text gets 0.8 from a model for retrieval, and
0.4 from a static model. So each model has its own threshold, which applies if neither the call nor
the project sets one. Other models have the default thresholds of the tools.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from vmrag_link.models import Collection, DocumentHeader, Record, encode_canonical_json
from vmrag_link.settings import RetrievalSettings

VERSION = 7
"""Increase it with every change that ranks equal contents and settings differently: in how texts
are cut and split into words, how vectors are rounded, and how scores are computed and ordered.
"""

FULL_WEIGHT = 1000
"""Weights are in thousandths."""


_DEFAULTS = RetrievalSettings()


class Ranking(Record, frozen=True):
    """How chunks are ranked: settings of the section `retrieval`."""

    version: int = VERSION
    vector_weight: float = _DEFAULTS.vector_weight
    """The share of the vectors in a hybrid score. The words have the rest. For questions in
    languages other than English, an English model has half of this share.
    """

    document_weight: float = _DEFAULTS.document_weight
    """The weight of the BM25 score of a chunk's document, compared with the chunk's own score."""

    per_document: int = _DEFAULTS.per_document
    """Maximum number of chunks of one document in an answer; 0 for any number."""


DEFAULT_RANKING = Ranking()
"""The ranking without settings."""


def read_ranking(settings: RetrievalSettings) -> Ranking:
    """Return the ranking with these settings."""
    return Ranking(
        vector_weight=settings.vector_weight,
        document_weight=settings.document_weight,
        per_document=settings.per_document,
    )


UNIT = 10**18
"""The score of a chunk that is the best by both words and vectors."""


_SHARES = 10**9


class CollectionScores(Record, frozen=True):
    """The scores of the same chunks of one collection, by vectors and by words."""

    vectors: Mapping[int, int]
    words: Mapping[int, int]
    max_word_score: int
    """See `WordScores.max_score`."""

    vector_share: int = FULL_WEIGHT
    """The weight of the vectors in thousandths of their usual weight."""


def fuse_scores(collections: Sequence[CollectionScores], vector_weight: float) -> dict[int, int]:
    """Return the scores of all these chunks, in `UNIT`.

    A kind of score that is not positive for any chunk is ignored.
    """
    by_vector = round(FULL_WEIGHT * vector_weight)
    weights = weigh_nearness([measure_nearness(part) for part in collections], by_vector)
    scores: dict[int, int] = {}
    for collection, (weight, whole) in zip(collections, weights, strict=True):
        nearest, wordiest = _find_largest(collection.vectors), _find_largest(collection.words)
        unit, near_weight = FULL_WEIGHT * nearest * wordiest * whole, by_vector * collection.vector_share // FULL_WEIGHT
        word_weight = FULL_WEIGHT - near_weight
        scores |= {
            row: UNIT * weight * (near_weight * near * wordiest + word_weight * collection.words[row] * nearest) // unit
            for row, near in collection.vectors.items()
        }
    return scores


class Nearness(NamedTuple):
    """The nearness of the best chunks to a question."""

    near: int
    """By vectors."""

    share: int
    """By words, as a part of the maximum score of a chunk."""


def measure_nearness(part: CollectionScores) -> Nearness:
    """Return the nearness of the best chunks of one collection."""
    share = max(0, *part.words.values()) * _SHARES // part.max_word_score if part.words else 0
    return Nearness(max(0, *part.vectors.values()) if part.vectors else 0, share)


def combine_nearness(nearnesses: Iterable[Nearness]) -> Nearness:
    """Return the nearness of the best chunks of several collections."""
    near, shares = zip((0, 0), *nearnesses, strict=True)
    return Nearness(max(near), max(shares))


def weigh_nearness(nearnesses: Sequence[Nearness], by_vector: int) -> list[tuple[int, int]]:
    """Return the nearness of each collection in relation to the best of all, as numerator and
    denominator.

    A single collection gets 1. `by_vector`: the weight of the vectors in thousandths.
    """
    by_words = FULL_WEIGHT - by_vector
    nearest, largest = combine_nearness(nearnesses)
    used_weight = by_vector * (nearest > 0) + by_words * (largest > 0)
    if not used_weight:
        return [(1, 1)] * len(nearnesses)
    whole = used_weight * (nearest or 1) * (largest or 1)
    return [
        (by_vector * near * (largest or 1) + by_words * share * (nearest or 1), whole) for near, share in nearnesses
    ]


def normalize_scores(collections: Sequence[tuple[Mapping[int, int], int]]) -> dict[int, int]:
    """Return comparable scores by words of several collections.

    Each collection is given as its scores and its maximum (`WordScores.max_score`). The scores of a
    single collection stay the same.
    """
    largest = max((maximum for _, maximum in collections), default=1)
    return {row: score * largest // maximum for scores, maximum in collections for row, score in scores.items()}


def _find_largest(scores: Mapping[int, int]) -> int:
    """Return the best score, or a divisor that keeps the scores between -1 and 0 if none is
    positive.
    """
    return max((abs(score) for score in scores.values()), default=0) or 1


def compute_fingerprint(
    ranking: Ranking, collections: Iterable[Collection], headers: Iterable[DocumentHeader], *, files: str = ""
) -> str:
    """Return a SHA-256 over the documents, their models and the ranking, as 64 hex digits.

    `files` identifies the documents of sources; empty if there are none. The order of the inputs
    does not matter. Titles are included, because filters use them. The format of the index is not
    included.
    """
    digest = hashlib.sha256(encode_canonical_json(["vmrag-fingerprint", 2, ranking]).encode())
    for collection in sorted(collections, key=lambda row: row.name):
        decisive = [
            collection.name,
            collection.embedding_function,
            collection.embedding_model,
            collection.embedding_dimensions,
            collection.distance,
        ]
        digest.update(encode_canonical_json([*decisive, collection.chunking]).encode())
    rows = (
        (header.collection, header.doc_id, header.title, header.content_hash, header.metadata) for header in headers
    )
    for row in sorted(rows):
        digest.update(encode_canonical_json(row).encode())
    if files:
        digest.update(encode_canonical_json(["files", files]).encode())
    return digest.hexdigest()


class SearchPurpose(enum.StrEnum):
    """The purpose of a search."""

    ANSWER = "answer"
    """Documents that an answer is composed of."""

    SEARCH = "search"
    """Documents from which a person chooses."""

    EXTERNAL = "external"
    """Documents of a project's external documentation."""

    THOUGHTS = "thoughts"
    """Thoughts that resemble a thought."""


DEFAULT_THRESHOLDS: Mapping[SearchPurpose, float] = {
    SearchPurpose.ANSWER: 0.7,
    SearchPurpose.SEARCH: 0.5,
    SearchPurpose.EXTERNAL: 0.7,
    SearchPurpose.THOUGHTS: 0.75,
}
"""The thresholds that the tools document. They were chosen for embedding services."""


def _make_thresholds(near: float, search: float) -> Mapping[SearchPurpose, float]:
    return {
        SearchPurpose.ANSWER: near,
        SearchPurpose.SEARCH: search,
        SearchPurpose.EXTERNAL: near,
        SearchPurpose.THOUGHTS: near,
    }


MEASURED_THRESHOLDS: Mapping[str, Mapping[SearchPurpose, float]] = {
    "default": _make_thresholds(0.18, 0.14),
    "minilm": _make_thresholds(0.20, 0.16),
    "hash": _make_thresholds(0.25, 0.22),
}
"""Thresholds by embedding function, from 60 questions and 60 texts (`bench/thresholds.py`). At most
5 of 100 unrelated pairs reach them, or 10 if a person chooses. 68 % of the related pairs reach them
with `default`, 97 % with `minilm`, and none reaches the default of 0.75.
"""


def choose_threshold(
    purpose: SearchPurpose, embedding_function: str, *, given: float | None = None, configured: float | None = None
) -> float:
    """Return the minimum similarity: of the call, or else of the project, the model, or the
    default.
    """
    threshold = given if given is not None else configured
    return (
        threshold if threshold is not None else MEASURED_THRESHOLDS.get(embedding_function, DEFAULT_THRESHOLDS)[purpose]
    )
