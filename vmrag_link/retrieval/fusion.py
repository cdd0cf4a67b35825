"""The ranking's version, settings and fingerprint, how words and vectors become one score, and from
which similarity on a document counts as found.

Both scores of a chunk are divided by the best of their kind in its collection and added by weight
(convex combination: Bruch, Gai and Ingber, 2023), in whole numbers. Where several collections are
asked, each one's scores are weighed by how near its best ones come to the best of all: so no
collection reorders another, and one that has nothing to say comes last. Reciprocal ranks, version
1, gave the weaker of the two an equal say and threw the distances away: bench/README.md has the
figures.

Models spread their cosines differently: one that was made for retrieval gives a text that answers
0.8, a static one 0.4. So each model has its own threshold, which counts where neither call nor
project says one, and the tools' usual ones hold for all others.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from vmrag_link.models import Collection, DocumentHeader, Record, encode_canonical_json
from vmrag_link.settings import RetrievalSettings

VERSION = 7
"""Rises with every change that ranks equal contents and settings otherwise: in how texts are cut
and taken apart into words, how vectors are rounded, how scores are made and ordered.
"""

FULL_WEIGHT = 1000
"""The weight of the vectors counts in thousandths."""


_USUAL = RetrievalSettings()


class Ranking(Record, frozen=True):
    """How chunks are ranked: settings of the section `retrieval`.

    `vector_weight`: the share of the vectors in a hybrid score; the words have the rest. For
    questions in other languages than English, an English model has half of it.
    `document_weight`: how much of its document's BM25 a chunk's own gets. `per_document`: at most
    so many chunks of one document in an answer; 0: any number.
    """

    version: int = VERSION
    vector_weight: float = _USUAL.vector_weight
    document_weight: float = _USUAL.document_weight
    per_document: int = _USUAL.per_document


DEFAULT_RANKING = Ranking()
"""As it is where no setting says otherwise."""


def read_ranking(settings: RetrievalSettings) -> Ranking:
    """How queries rank under these settings."""
    return Ranking(
        vector_weight=settings.vector_weight,
        document_weight=settings.document_weight,
        per_document=settings.per_document,
    )


UNIT = 10**18
"""The score of a chunk that is the best of all by both."""


_SHARES = 10**9


class CollectionScores(Record, frozen=True):
    """The scores of the same chunks of one collection, by vectors and by words; `most`: as
    `WordScores.most`. `vector_share`: how much the vectors weigh, as a part of their usual weight.
    """

    vectors: Mapping[int, int]
    words: Mapping[int, int]
    max_word_score: int
    vector_share: int = FULL_WEIGHT


def fuse_scores(collections: Sequence[CollectionScores], vector_weight: float) -> dict[int, int]:
    """The scores of all these chunks, in `UNIT`.

    A kind in which no chunk has more than nothing does not count.
    """
    by_vector = round(FULL_WEIGHT * vector_weight)
    weights = weigh_nearness([measure_nearness(part) for part in collections], by_vector)
    scores: dict[int, int] = {}
    for collection, (weight, whole) in zip(collections, weights, strict=True):
        nearest, wordiest = _largest(collection.vectors), _largest(collection.words)
        unit, near_weight = FULL_WEIGHT * nearest * wordiest * whole, by_vector * collection.vector_share // FULL_WEIGHT
        word_weight = FULL_WEIGHT - near_weight
        scores |= {
            row: UNIT * weight * (near_weight * near * wordiest + word_weight * collection.words[row] * nearest) // unit
            for row, near in collection.vectors.items()
        }
    return scores


class Nearness(NamedTuple):
    """The nearness of the best chunks to a question.

    `near`: by vectors. `share`: by words, as a part of the maximum that a chunk can have.
    """

    near: int
    share: int


def measure_nearness(part: CollectionScores) -> Nearness:
    """Return the nearness of the best chunks of one collection."""
    share = max(0, *part.words.values()) * _SHARES // part.max_word_score if part.words else 0
    return Nearness(max(0, *part.vectors.values()) if part.vectors else 0, share)


def combine_nearness(nearnesses: Iterable[Nearness]) -> Nearness:
    """Return the nearness of the best chunks of several collections."""
    near, shares = zip((0, 0), *nearnesses, strict=True)
    return Nearness(max(near), max(shares))


def weigh_nearness(nearnesses: Sequence[Nearness], by_vector: int) -> list[tuple[int, int]]:
    """Return the nearness of each in relation to the best of all, as numerator and denominator.

    A single one gets 1. `by_vector`: the weight of the vectors, of `WHOLE`.
    """
    by_words = FULL_WEIGHT - by_vector
    nearest, largest = combine_nearness(nearnesses)
    counted = by_vector * (nearest > 0) + by_words * (largest > 0)
    if not counted:
        return [(1, 1)] * len(nearnesses)
    whole = counted * (nearest or 1) * (largest or 1)
    return [
        (by_vector * near * (largest or 1) + by_words * share * (nearest or 1), whole) for near, share in nearnesses
    ]


def normalize_scores(collections: Sequence[tuple[Mapping[int, int], int]]) -> dict[int, int]:
    """Scores by words, and what none can exceed (`WordScores.most`), of some collections: such that
    they can be compared. Those of a single one stay as they are.
    """
    most_of_all = max((most for _, most in collections), default=1)
    return {row: score * most_of_all // most for scores, most in collections for row, score in scores.items()}


def _largest(scores: Mapping[int, int]) -> int:
    """The best score; where none is positive, what keeps the others between -1 and 0."""
    return max((abs(score) for score in scores.values()), default=0) or 1


def compute_fingerprint(
    ranking: Ranking, collections: Iterable[Collection], headers: Iterable[DocumentHeader], *, files: str = ""
) -> str:
    """SHA-256 over the documents, what decides their vectors, and how they are ranked, as 64 hex
    digits.

    `files` names the documents of sources; empty: there are none. The order of the inputs does not
    matter. Titles count, because filters use them. What an index
    looks like on the disk does not count.
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
    """What is looked for: documents that an answer is made of, that a person chooses from, of a
    project's other documentation, or thoughts like one.
    """

    ANSWER = "answer"
    SEARCH = "search"
    EXTERNAL = "external"
    THOUGHTS = "thoughts"


DEFAULT_THRESHOLDS: Mapping[SearchPurpose, float] = {
    SearchPurpose.ANSWER: 0.7,
    SearchPurpose.SEARCH: 0.5,
    SearchPurpose.EXTERNAL: 0.7,
    SearchPurpose.THOUGHTS: 0.75,
}
"""As the tools state them. They were chosen for models that are asked as services."""


def _table(near: float, search: float) -> Mapping[SearchPurpose, float]:
    return {
        SearchPurpose.ANSWER: near,
        SearchPurpose.SEARCH: search,
        SearchPurpose.EXTERNAL: near,
        SearchPurpose.THOUGHTS: near,
    }


MEASURED_THRESHOLDS: Mapping[str, Mapping[SearchPurpose, float]] = {
    "default": _table(0.18, 0.14),
    "minilm": _table(0.20, 0.16),
    "hash": _table(0.25, 0.22),
}
"""By embedding function, from 60 questions and 60 texts (`bench/thresholds.py`): what at most 5 of
100 unrelated pairs reach; where a person chooses, 10. Of the related ones 68 % do with `default`,
97 % with `minilm`, and none the usual 0.75.
"""


def choose_threshold(
    use: SearchPurpose, embedding_function: str, *, given: float | None = None, configured: float | None = None
) -> float:
    """The least similarity: the call's, else the project's, the model's, or the usual one."""
    stated = given if given is not None else configured
    return stated if stated is not None else MEASURED_THRESHOLDS.get(embedding_function, DEFAULT_THRESHOLDS)[use]
