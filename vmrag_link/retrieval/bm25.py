"""BM25 of chunks by their own words and by the words of their documents.

The score is `bm25(chunk) + document_weight * bm25(document)`. A piece of 500 characters lacks the
topic of its page, and the document adds it. A document has the words and the length of all its
chunks. Each collection is a separate corpus, so a change in one collection does not reorder
another. The formula for chunks is that of SQLite's `bm25()` with another weight of words (see
`Corpus.idf`).

A chunk of code has two fields (BM25F: Robertson, Zaragoza and Taylor, 2004): the names that it
declares, and everything else. A word among the names has a higher weight, independent of the length
of the chunk.

A word is given as `WordOccurrences`: the chunks of one piece of a collection that contain it in one
field. `score_collection` adds up all of them.

The result has the same bits on every machine and for every order of rows and segments: logarithms
are correctly rounded (`decimal`), and floats are added in the order of the words of the query.
"""

from __future__ import annotations

import decimal
import functools
import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from vmrag_link.index import flat_files
from vmrag_link.index.flat_files import DOCUMENT, NUMBER, NUMBERS
from vmrag_link.index.keywords import LAST_SLOT, SLOT_BITS
from vmrag_link.index.postings import WordOccurrences
from vmrag_link.index.view import IndexedCollection
from vmrag_link.models import Record

K1, B = 1.2, 0.75

CODE_K1 = 1.8
"""`k1` for chunks of code. It is higher than usual, because repeated words matter more in a
function.
"""

NAME_WEIGHT = 3.5
"""The amount that a word among the declared names of a chunk adds to its frequency, for a norm of 1
(`WordFactors`).

In a chunk of mean length the norm is `CODE_K1`, so such a word has the weight of 6.3 words.
"""

PRIOR_TEXTS = 8
"""Number of texts without words that are added to each corpus. A small corpus does not show which
of its words are common.
"""

BILLION = 10**9

_EXACT = decimal.Context(prec=25)


class WordFactors(NamedTuple):
    """The factors of a word. It adds `gain * frequency / (frequency + norm)` to the score of a
    text, with `norm` = `base + slope * tokens`.
    """

    gain: float
    base: float
    slope: float


class Corpus(Record, frozen=True):
    """The texts of one kind in a collection: its chunks, or its documents."""

    texts: int
    """Number of texts."""

    tokens: int
    """Number of tokens of all texts together."""

    k1: float = K1
    """The higher, the more a repeated word adds."""

    def idf(self, count: int) -> float:
        """Return the inverse document frequency of a word that is in `count` texts.

        It is `ln(1 + (texts - count + 0.5) / (count + 0.5))`, with `PRIOR_TEXTS` added to the
        texts. It is positive even for a word in all texts, so the only note of a collection can be
        found.
        """
        texts = self.texts + PRIOR_TEXTS
        return _compute_logarithm(2 * texts + 2, 2 * count + 1)

    def compute_factors(self, count: int) -> WordFactors:
        """Return the factors of a word that is in `count` texts."""
        return WordFactors(
            gain=self.idf(count) * (self.k1 + 1),
            base=self.k1 * (1 - B),
            slope=self.k1 * B * self.texts / (self.tokens or 1),
        )


@functools.lru_cache(maxsize=1024)
def _compute_logarithm(dividend: int, divisor: int) -> float:
    """Return the natural logarithm of a quotient."""
    return float(_EXACT.ln(_EXACT.divide(decimal.Decimal(dividend), decimal.Decimal(divisor))))


class WordScores:
    """The scores of a collection's chunks for the words of a query.

    `words`: the occurrences of each word. `lengths`: the result of `flat_files.decode_lengths` for
    each piece. The loops contain no function calls, because a query of common words runs them ten
    thousand times.
    """

    def __init__(
        self,
        words: Sequence[Sequence[WordOccurrences]],
        lengths: Mapping[int, Sequence[int]],
        *,
        chunks: Corpus,
        documents: Corpus,
        document_weight: float,
    ) -> None:
        self._lengths = lengths
        self._document_weight = document_weight
        self._chunks: dict[int, float] = {}
        self._documents: dict[int, float] = {}
        self._first_rows: dict[int, int] = {}
        self._max_score = 0.0
        for occurrences in words:
            self._add_word(occurrences, chunks, documents)

    def _add_word(self, occurrences: Sequence[WordOccurrences], chunks: Corpus, documents: Corpus) -> None:
        """Add the score of a word to each chunk that contains it, and to the chunk's document."""
        in_chunks = _add_fields(occurrences)
        in_names = _add_fields(occurrence for occurrence in occurrences if occurrence.names)
        gain, base, slope = chunks.compute_factors(sum(map(len, in_chunks.values())))
        self._max_score += gain
        by_piece = self._lengths
        scores = self._chunks
        first_rows = self._first_rows
        in_documents: dict[int, int] = {}
        for piece, frequencies in in_chunks.items():
            lengths = by_piece[piece]
            first_row_of_piece = piece << SLOT_BITS
            names = in_names.get(piece, {})
            for slot, frequency in frequencies.items():
                row = first_row_of_piece + slot
                position = NUMBERS * slot
                norm = base + slope * lengths[position]
                weighted = frequency + names[slot] * (NAME_WEIGHT * norm - 1) if slot in names else frequency
                scores[row] = scores.get(row, 0.0) + gain * weighted / (weighted + norm)
                first_rows[row] = first = row - lengths[position + NUMBER]
                in_documents[first] = in_documents.get(first, 0) + frequency
        gain, base, slope = documents.compute_factors(len(in_documents))
        self._max_score += self._document_weight * gain
        scores = self._documents
        for row, frequency in in_documents.items():
            tokens = by_piece[row >> SLOT_BITS][NUMBERS * (row & LAST_SLOT) + DOCUMENT]
            scores[row] = scores.get(row, 0.0) + gain * frequency / (frequency + (base + slope * tokens))

    def score_row(self, row: int) -> int:
        """Return the score of a chunk in billionths."""
        document = self._documents.get(flat_files.find_first_row(self._lengths, row), 0.0)
        return round((self._chunks.get(row, 0.0) + self._document_weight * document) * BILLION)

    @property
    def max_score(self) -> int:
        """The maximum score of a chunk in billionths: the score of a chunk that consists of the
        query's words.

        The scores of two collections are compared as shares of their maximum, because a rare word
        has a higher weight in a large collection.
        """
        return max(1, round(self._max_score * BILLION))

    @property
    def rows(self) -> Collection[int]:
        """The chunks that contain a word of the query."""
        return self._chunks.keys()

    def select_best(self, depth: int, among: Sequence[int] | None = None) -> dict[int, int]:
        """Return the best `depth` chunks that contain a word, and all ties with the last, in
        billionths.

        `among`: select only from these rows.
        """
        weight = self._document_weight
        documents = self._documents
        first_rows = self._first_rows
        rows: Iterable[int] = self._chunks if among is None else self._chunks.keys() & set(among)
        scores = {row: self._chunks[row] + weight * documents[first_rows[row]] for row in rows}
        if len(scores) > depth:
            lowest = heapq.nlargest(depth, scores.values())[-1] - 1 / BILLION  # may be equal after rounding
            scores = {row: score for row, score in scores.items() if score >= lowest}
        return {row: round(score * BILLION) for row, score in scores.items()}


def _add_fields(occurrences: Iterable[WordOccurrences]) -> dict[int, dict[int, int]]:
    """Return how often each chunk contains a word in all its fields, by piece and slot."""
    frequencies: dict[int, dict[int, int]] = {}
    for occurrence in occurrences:
        if occurrence.piece not in frequencies:
            frequencies[occurrence.piece] = dict(occurrence.alive_pairs())
        else:
            counts = frequencies[occurrence.piece]
            for slot, frequency in occurrence.alive_pairs():
                counts[slot] = counts.get(slot, 0) + frequency
    return frequencies


def score_collection(
    indexed: IndexedCollection,
    words: Sequence[Sequence[WordOccurrences]],
    lengths: Mapping[int, Sequence[int]],
    *,
    document_weight: float,
    by: type[WordScores] = WordScores,
) -> WordScores:
    """Return the scores of a collection's chunks.

    `words`, `lengths`: see `WordScores`. `by`: the class to use.
    """
    k1 = CODE_K1 if indexed.collection.is_code else K1
    return by(
        words,
        lengths,
        chunks=Corpus(indexed.chunks, indexed.tokens, k1),
        documents=Corpus(indexed.documents, indexed.tokens),
        document_weight=document_weight,
    )
