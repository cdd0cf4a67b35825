"""BM25 of chunks by their own words and by those of their documents.

`bm25(chunk) + document_weight * bm25(document)`: a piece of 500 characters has lost the topic of
its page, and the document's part gives it back. A document has the words and the length of its
chunks together. The formula for chunks is that of SQLite's `bm25()`, which takes three times as
long because it searches for the length of every hit.

Correctly rounded logarithms (`decimal`), and single operations on floats in the order of the
query's words: the same bits on every machine, whatever the rows and slots.
"""

from __future__ import annotations

import decimal
import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from vmrag_link.index import lengths
from vmrag_link.index.keywords import LAST_SLOT, SLOT_BITS, Postings
from vmrag_link.index.lengths import DOCUMENT, NUMBER, NUMBERS

K1, B = 1.2, 0.75

LEAST_IDF = 1e-6
"""Of a word that half of all texts hold: it still tells them apart by how often."""

BILLION = 10**9

_EXACT = decimal.Context(prec=25)


class Corpus(NamedTuple):
    """The texts of one kind in the whole index: how many they are, and their tokens together."""

    texts: int
    tokens: int

    def idf(self, holding: int) -> float:
        """Inverse document frequency of a word that `holding` of the texts hold."""
        ratio = _EXACT.divide(decimal.Decimal(2 * (self.texts - holding) + 1), decimal.Decimal(2 * holding + 1))
        return max(LEAST_IDF, float(_EXACT.ln(ratio)))

    def factors(self, holding: int) -> tuple[float, float, float]:
        """Of a word that `holding` of the texts hold: gain, base and slope in what it adds to the
        score of a text, `gain * frequency / (frequency + base + slope * tokens)`.
        """
        return self.idf(holding) * (K1 + 1), K1 * (1 - B), K1 * B * self.texts / self.tokens


class WordScores:
    """The scores of chunks by the words of a query.

    The loops hold no calls: a query of common words goes through them ten thousand times.
    """

    def __init__(self, numbers: Mapping[int, Sequence[int]], document_weight: float) -> None:
        self._lengths = numbers
        self._document_weight = document_weight
        self._chunks: dict[int, float] = {}
        self._documents: dict[int, float] = {}
        self._first: dict[int, int] = {}

    def add(self, occurrences: Sequence[int], chunks: Corpus, documents: Corpus) -> None:
        """Count a word in, by the rows (`keywords.row_id`) of its occurrences."""
        by_collection, scores, first_of, in_documents = self._lengths, self._chunks, self._first, dict[int, int]()
        in_chunks = Counter(occurrences)
        gain, base, slope = chunks.factors(len(in_chunks))
        for row, frequency in in_chunks.items():
            numbers, at = by_collection[row >> SLOT_BITS], NUMBERS * (row & LAST_SLOT)
            scores[row] = scores.get(row, 0.0) + gain * frequency / (frequency + base + slope * numbers[at])
            first_of[row] = first = row - numbers[at + NUMBER]
            in_documents[first] = in_documents.get(first, 0) + frequency
        scores = self._documents
        gain, base, slope = documents.factors(len(in_documents))
        for row, frequency in in_documents.items():
            tokens = by_collection[row >> SLOT_BITS][NUMBERS * (row & LAST_SLOT) + DOCUMENT]
            scores[row] = scores.get(row, 0.0) + gain * frequency / (frequency + base + slope * tokens)

    def of(self, row: int) -> int:
        """The score of any chunk, in billionths."""
        document = self._documents.get(lengths.first_row(self._lengths, row), 0.0)
        return round((self._chunks.get(row, 0.0) + self._document_weight * document) * BILLION)

    @property
    def rows(self) -> Collection[int]:
        """The chunks that hold a word."""
        return self._chunks.keys()

    def best(self, depth: int, rows: Iterable[int]) -> dict[int, int]:
        """The best `depth` of these `rows`, and all ties with the last; scores in billionths."""
        weight, documents, first_of = self._document_weight, self._documents, self._first
        scores = {row: self._chunks[row] + weight * documents[first_of[row]] for row in rows}
        if len(scores) > depth:
            lowest = heapq.nlargest(depth, scores.values())[-1] - 1 / BILLION  # what may be equal when rounded
            scores = {row: score for row, score in scores.items() if score >= lowest}
        return {row: round(score * BILLION) for row, score in scores.items()}


class WordIndex:
    """BM25 over one index of so many documents, which nobody changes meanwhile.

    `numbers`: what `lengths.read` gives, by collection id.
    """

    def __init__(self, postings: Postings, numbers: Mapping[int, Sequence[int]], *, documents: int) -> None:
        self._postings = postings
        self._lengths = numbers
        chunks, tokens = postings.totals
        self._chunks, self._documents = Corpus(chunks, tokens), Corpus(documents, tokens)

    def scores(self, query: str, *, document_weight: float) -> WordScores:
        scores = WordScores(self._lengths, document_weight)
        for occurrences in self._postings.of(query):
            scores.add(occurrences, self._chunks, self._documents)
        return scores
