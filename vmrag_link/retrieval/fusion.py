"""The ranking's version and settings, and how words and vectors become one score.

Both scores of a chunk are divided by the best of their kind and added by weight (convex
combination: Bruch, Gai and Ingber, 2023), in whole numbers. Reciprocal ranks, version 1, gave the
weaker of the two an equal say and threw the distances away: bench/README.md has the figures.
"""

from __future__ import annotations

from collections.abc import Mapping

from vmrag_link.models import Record
from vmrag_link.settings import RetrievalSettings

VERSION = 3
"""Rises with every change that ranks equal contents and settings otherwise: in how texts are cut
and taken apart into words, how vectors are rounded, how scores are made and ordered.
"""

WHOLE = 1000
"""The weight of the vectors counts in thousandths."""


_USUAL = RetrievalSettings()


class Ranking(Record, frozen=True):
    """How chunks are ranked: settings of the section `retrieval`.

    `vector_weight`: the share of the vectors in a hybrid score; the words have the rest.
    `document_weight`: how much of its document's BM25 a chunk's own gets. `per_document`: at most
    so many chunks of one document in an answer; 0: any number.
    """

    version: int = VERSION
    vector_weight: float = _USUAL.vector_weight
    document_weight: float = _USUAL.document_weight
    per_document: int = _USUAL.per_document


RANKING = Ranking()
"""As it is where no setting says otherwise."""


def ranking(settings: RetrievalSettings) -> Ranking:
    """How queries rank under these settings."""
    return Ranking(
        vector_weight=settings.vector_weight,
        document_weight=settings.document_weight,
        per_document=settings.per_document,
    )


def fuse(vectors: Mapping[int, int], words: Mapping[int, int], vector_weight: float) -> tuple[dict[int, int], int]:
    """The scores of the same chunks by vectors and by words, as one; and the score of a chunk that
    is the best by both.

    A kind in which no chunk has more than nothing does not count.
    """
    by_vector = round(WHOLE * vector_weight)
    nearest, wordiest = _largest(vectors), _largest(words)
    scores = {
        row: by_vector * near * wordiest + (WHOLE - by_vector) * words[row] * nearest for row, near in vectors.items()
    }
    return scores, WHOLE * nearest * wordiest


def _largest(scores: Mapping[int, int]) -> int:
    """The best score; where none is positive, what keeps the others between -1 and 0."""
    return max((abs(score) for score in scores.values()), default=0) or 1
