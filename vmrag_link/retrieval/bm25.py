"""BM25 of chunks by their own words and by those of their documents.

`bm25(chunk) + document_weight * bm25(document)`: a piece of 500 characters has lost the topic of
its page, and the document's part gives it back. A document has the words and the length of its
chunks together. Each collection is a corpus of its own, so that a change in another one reorders
nothing. The formula for chunks is that of SQLite's `bm25()` with another weight of words (see
`Corpus.idf`).

A chunk of code has two fields (BM25F: Robertson, Zaragoza and Taylor, 2004): the names that it
declares, and all else. A word counts more often among the names, whatever the length of the chunk.

Correctly rounded logarithms (`decimal`), and single operations on floats in the order of the
query's words: the same bits on every machine, whatever the rows and segments.
"""

from __future__ import annotations

import decimal
import functools
import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence

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
"""The part that a word among the declared names of a chunk adds to its frequency, for a norm of 1
(`Corpus.factors`).

In a chunk of mean length the norm is `CODE_K1`, so such a word counts as 6.3 words.
"""

PRIOR_TEXTS = 8
"""Number of texts without any word that are added to each corpus: a small corpus does not show
which of its words are common.
"""

BILLION = 10**9

_EXACT = decimal.Context(prec=25)


class Corpus(Record, frozen=True):
    """The texts of one kind in a collection: how many they are, and their tokens together.

    `k1`: the higher, the more a repeated word adds.
    """

    texts: int
    tokens: int
    k1: float = K1

    def idf(self, holding: int) -> float:
        """Inverse document frequency of a word that `holding` of the texts hold.

        `ln(1 + (texts - holding + 0.5) / (holding + 0.5))`, with `PRIOR_TEXTS` among the texts: it
        is positive also for a word that all texts hold, so a note is found that is the only one.
        """
        texts = self.texts + PRIOR_TEXTS
        return _logarithm(2 * texts + 2, 2 * holding + 1)

    def compute_factors(self, holding: int) -> tuple[float, float, float]:
        """Of a word that `holding` of the texts hold: gain, base and slope in what it adds to the
        score of a text, `gain * frequency / (frequency + norm)`. `norm` is `base + slope * tokens`.
        """
        k1 = self.k1
        return self.idf(holding) * (k1 + 1), k1 * (1 - B), k1 * B * self.texts / (self.tokens or 1)


@functools.lru_cache(maxsize=1024)
def _logarithm(dividend: int, divisor: int) -> float:
    """Return the natural logarithm of a quotient."""
    return float(_EXACT.ln(_EXACT.divide(decimal.Decimal(dividend), decimal.Decimal(divisor))))


class WordScores:
    """The scores of a collection's chunks by the words of a query.

    `numbers`: what `flat_files.numbers` gives, by piece. The loops hold no calls: a query of common
    words goes through them ten thousand times.
    """

    def __init__(self, numbers: Mapping[int, Sequence[int]], document_weight: float) -> None:
        self._lengths = numbers
        self._document_weight = document_weight
        self._chunks: dict[int, float] = {}
        self._documents: dict[int, float] = {}
        self._first: dict[int, int] = {}
        self._most = 0.0

    def add_words(self, words: Sequence[Sequence[WordOccurrences]], chunks: Corpus, documents: Corpus) -> None:
        """Add the words of a query, each given as the chunks that hold it."""
        for holdings in words:
            self._add_word(holdings, chunks, documents)

    def _add_word(self, holdings: Sequence[WordOccurrences], chunks: Corpus, documents: Corpus) -> None:
        by_piece, scores, first_of, in_documents = self._lengths, self._chunks, self._first, dict[int, int]()
        in_chunks, in_names = _add_fields(holdings), _add_fields(holding for holding in holdings if holding.names)
        gain, base, slope = chunks.compute_factors(sum(map(len, in_chunks.values())))
        self._most += gain
        for piece, frequencies in in_chunks.items():
            numbers, start, names = by_piece[piece], piece << SLOT_BITS, in_names.get(piece, {})
            for slot, frequency in frequencies.items():
                row, at = start + slot, NUMBERS * slot
                norm = base + slope * numbers[at]
                often = frequency + names[slot] * (NAME_WEIGHT * norm - 1) if slot in names else frequency
                scores[row] = scores.get(row, 0.0) + gain * often / (often + norm)
                first_of[row] = first = row - numbers[at + NUMBER]
                in_documents[first] = in_documents.get(first, 0) + frequency
        scores = self._documents
        gain, base, slope = documents.compute_factors(len(in_documents))
        self._most += self._document_weight * gain
        for row, frequency in in_documents.items():
            tokens = by_piece[row >> SLOT_BITS][NUMBERS * (row & LAST_SLOT) + DOCUMENT]
            scores[row] = scores.get(row, 0.0) + gain * frequency / (frequency + (base + slope * tokens))

    def score_row(self, row: int) -> int:
        """The score of any chunk, in billionths."""
        document = self._documents.get(flat_files.find_first_row(self._lengths, row), 0.0)
        return round((self._chunks.get(row, 0.0) + self._document_weight * document) * BILLION)

    @property
    def max_score(self) -> int:
        """What no chunk of the collection can exceed, in billionths: the score of one that consists
        of the query's words.

        The scores of two collections are compared by their shares of it: a rare word is worth more
        in a large collection.
        """
        return max(1, round(self._most * BILLION))

    @property
    def rows(self) -> Collection[int]:
        """The chunks that hold a word."""
        return self._chunks.keys()

    def select_best(self, depth: int, among: Sequence[int] | None = None) -> dict[int, int]:
        """The best `depth` chunks that hold a word, and all ties with the last; scores in
        billionths. `among`: only of these rows.
        """
        weight, documents, first_of = self._document_weight, self._documents, self._first
        rows: Iterable[int] = self._chunks if among is None else self._chunks.keys() & set(among)
        scores = {row: self._chunks[row] + weight * documents[first_of[row]] for row in rows}
        if len(scores) > depth:
            lowest = heapq.nlargest(depth, scores.values())[-1] - 1 / BILLION  # what may be equal when rounded
            scores = {row: score for row, score in scores.items() if score >= lowest}
        return {row: round(score * BILLION) for row, score in scores.items()}


def _add_fields(holdings: Iterable[WordOccurrences]) -> dict[int, dict[int, int]]:
    """Return how often each chunk holds a word in all its fields, by piece and slot."""
    frequencies: dict[int, dict[int, int]] = {}
    for holding in holdings:
        if holding.piece not in frequencies:
            frequencies[holding.piece] = dict(holding.alive_pairs())
        else:
            counts = frequencies[holding.piece]
            for slot, frequency in holding.alive_pairs():
                counts[slot] = counts.get(slot, 0) + frequency
    return frequencies


def score_collection(
    held: IndexedCollection,
    words: Sequence[Sequence[WordOccurrences]],
    numbers: Mapping[int, Sequence[int]],
    *,
    document_weight: float,
    by: type[WordScores] = WordScores,
) -> WordScores:
    """Return the scores of a collection's chunks. `words`: for each word the chunks with it."""
    scores = by(numbers, document_weight)
    k1 = CODE_K1 if held.collection.is_code else K1
    scores.add_words(words, Corpus(held.chunks, held.tokens, k1), Corpus(held.documents, held.tokens))
    return scores
