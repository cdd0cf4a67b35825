"""BM25 scores of the chunks of one collection, by numpy.

It applies the same operations to the same floats in the same order as `bm25`, so the scores have
the same bits: `add.at` adds the words of a chunk in their order.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from vmrag_link.index.flat_files import DOCUMENT, NUMBER, NUMBERS
from vmrag_link.index.keywords import LAST_SLOT, SLOT_BITS
from vmrag_link.index.postings import WordOccurrences
from vmrag_link.numpy_loading import np, npt
from vmrag_link.retrieval.bm25 import BILLION, NAME_WEIGHT, Corpus, WordFactors, WordScores

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Lengths = npt.NDArray[np.uint32]

_LOCAL = threading.local()
"""`zeros`: an array that each thread reuses, because the operating system has to clear the pages of
a new array.
"""


class _WordCounts(NamedTuple):
    """The counts of words in the texts of a piece. The arrays have one element for each text with a
    word.
    """

    words: Numbers
    """Numbers of words."""

    slots: Numbers
    frequencies: Floats
    names: Floats | None = None
    """How many of the frequencies are among declared names, if any are."""

    def select(self, positions: npt.NDArray[Any]) -> _WordCounts:
        """Return the counts at these positions."""
        names = None if self.names is None else self.names[positions]
        return _WordCounts(self.words[positions], self.slots[positions], self.frequencies[positions], names)

    def score_texts(self, factors: Sequence[WordFactors], tokens: Lengths) -> Floats:
        """Return what each word adds to the score of its text. `tokens`: the lengths of all
        texts.
        """
        gains = np.array([factor.gain for factor in factors])[self.words]
        norms = factors[0].base + factors[0].slope * tokens[self.slots].astype(np.float64)  # equal for all words
        weighted = self.frequencies
        if self.names is not None:
            weighted = weighted + self.names * (NAME_WEIGHT * norms - 1)
        scores: Floats = gains * weighted / (weighted + norms)
        return scores


class _Sums(NamedTuple):
    """Scores of texts by slot, in ascending order."""

    slots: Numbers
    scores: Floats

    def scores_at(self, slots: Numbers) -> Floats:
        """Return the scores of these slots; 0 for a text without a word."""
        positions = np.minimum(np.searchsorted(self.slots, slots), len(self.slots) - 1)
        return np.where(self.slots[positions] == slots, self.scores[positions], 0.0)


class _PieceScores(NamedTuple):
    """The scores of the chunks and documents of a piece."""

    lengths: Lengths
    chunks: _Sums
    documents: _Sums
    totals: _Sums
    """The scores of chunks, including those of their documents."""


class _PieceCounts:
    """The counts of the query's words in one piece of a collection.

    A document has the slot of its first chunk. `lists`: the number of a word in the query, and its
    occurrences.
    """

    def __init__(self, lengths: Sequence[int], lists: Sequence[tuple[int, WordOccurrences]]) -> None:
        self._lengths: Lengths = np.asarray(lengths, np.uint32).reshape(-1, NUMBERS)
        sizes = [len(occurrences.slots) for _, occurrences in lists]
        words = np.repeat([word for word, _ in lists], sizes)
        slots = np.concatenate([occurrences.slots for _, occurrences in lists]).astype(np.int64)
        frequencies = np.concatenate([occurrences.frequencies for _, occurrences in lists]).astype(np.float64)
        counts = _WordCounts(words, slots, frequencies)
        if any(occurrences.names for _, occurrences in lists):
            are_names = np.repeat([occurrences.names for _, occurrences in lists], sizes)
            counts = counts._replace(names=frequencies * are_names)
        alive = lists[0][1].alive
        if alive:
            is_alive = np.frombuffer(alive, np.bool_)[slots]
            if not is_alive.all():
                counts = counts.select(is_alive)
        self.in_chunks = self._add_up_texts(counts)
        first_slots = _find_first_slots(self._lengths, self.in_chunks.slots)
        self.in_documents = self._add_up_texts(
            _WordCounts(self.in_chunks.words, first_slots, self.in_chunks.frequencies)
        )

    def _add_up_texts(self, counts: _WordCounts) -> _WordCounts:
        """Add up the counts of a word in several fields of a chunk, or in several chunks of a
        document.
        """
        keys = counts.words * len(self._lengths) + counts.slots
        if np.any(keys[1:] < keys[:-1]):
            order = np.argsort(keys, kind="stable")
            keys = keys[order]
            counts = counts.select(order)
        changes = keys[1:] != keys[:-1]
        if changes.all():
            return counts
        begins = np.append(0, np.flatnonzero(changes) + 1)
        names = None if counts.names is None else np.add.reduceat(counts.names, begins)
        return _WordCounts(
            counts.words[begins], counts.slots[begins], np.add.reduceat(counts.frequencies, begins), names
        )

    def compute_scores(
        self, of_chunks: Sequence[WordFactors], of_documents: Sequence[WordFactors], document_weight: float
    ) -> _PieceScores:
        """Return the scores of the piece. The factors are by the number of the word."""
        size = len(self._lengths)
        zeros: Floats | None = _LOCAL.__dict__.pop("zeros", None)  # after an error there is none
        if zeros is None or len(zeros) < size:
            zeros = np.zeros(size)
        chunk_scores = self.in_chunks.score_texts(of_chunks, self._lengths[:, 0])
        chunks = _sum_by_slot(zeros[:size], self.in_chunks.slots, chunk_scores)
        document_scores = self.in_documents.score_texts(of_documents, self._lengths[:, DOCUMENT])
        documents = _sum_by_slot(zeros[:size], self.in_documents.slots, document_scores)
        _LOCAL.zeros = zeros
        first_slots = _find_first_slots(self._lengths, chunks.slots)
        totals = _Sums(chunks.slots, chunks.scores + document_weight * documents.scores_at(first_slots))
        return _PieceScores(self._lengths, chunks, documents, totals)


def _find_first_slots(lengths: Lengths, slots: Numbers) -> Numbers:
    """Return the slot of the first chunk of each chunk's document."""
    first_slots: Numbers = slots - lengths[slots, NUMBER]
    return first_slots


def _sum_by_slot(zeros: Floats, slots: Numbers, scores: Floats) -> _Sums:
    """Return the sum of the scores of each slot. `zeros` has only zeros again afterwards."""
    np.add.at(zeros, slots, scores)
    nonzero = np.flatnonzero(zeros != 0)
    sums = zeros[nonzero]
    zeros[nonzero] = 0
    return _Sums(nonzero, sums)


class ArrayScores(WordScores):
    """Scores by numpy. See `WordScores`."""

    def __init__(
        self,
        words: Sequence[Sequence[WordOccurrences]],
        lengths: Mapping[int, Sequence[int]],
        *,
        chunks: Corpus,
        documents: Corpus,
        document_weight: float,
    ) -> None:
        # The base class would add up the words one by one.
        super().__init__((), lengths, chunks=chunks, documents=documents, document_weight=document_weight)
        by_piece: dict[int, list[tuple[int, WordOccurrences]]] = {}
        for number, occurrences in enumerate(words):
            for occurrence in occurrences:
                by_piece.setdefault(occurrence.piece, []).append((number, occurrence))
        chunk_totals = np.zeros(len(words), np.int64)  # the number of chunks with each word
        document_totals = np.zeros(len(words), np.int64)
        counts: dict[int, _PieceCounts] = {}
        for piece, lists in by_piece.items():
            piece_counts = _PieceCounts(lengths[piece], lists)
            if len(piece_counts.in_chunks.words):
                counts[piece] = piece_counts
                chunk_totals += np.bincount(piece_counts.in_chunks.words, minlength=len(words))
                document_totals += np.bincount(piece_counts.in_documents.words, minlength=len(words))
        of_chunks = [chunks.compute_factors(count) for count in chunk_totals.tolist()]
        of_documents = [documents.compute_factors(count) for count in document_totals.tolist()]
        for in_chunk, in_document in zip(of_chunks, of_documents, strict=True):
            self._max_score += in_chunk.gain
            self._max_score += document_weight * in_document.gain
        self._pieces = {
            piece: piece_counts.compute_scores(of_chunks, of_documents, document_weight)
            for piece, piece_counts in counts.items()
        }

    def score_row(self, row: int) -> int:
        piece_scores = self._pieces.get(row >> SLOT_BITS)
        if piece_scores is None:
            return 0
        slots = np.array([row & LAST_SLOT])
        document_scores = piece_scores.documents.scores_at(_find_first_slots(piece_scores.lengths, slots))
        [score] = piece_scores.chunks.scores_at(slots) + self._document_weight * document_scores
        return round(float(score) * BILLION)

    @property
    def rows(self) -> Collection[int]:
        return [
            (piece << SLOT_BITS) | slot
            for piece, piece_scores in self._pieces.items()
            for slot in piece_scores.chunks.slots.tolist()
        ]

    def select_best(self, depth: int, among: Sequence[int] | None = None) -> dict[int, int]:
        rows = [np.empty(0, np.int64)]
        totals = [np.empty(0)]
        allowed = None if among is None else np.array(among, dtype=np.int64)
        for piece, piece_scores in self._pieces.items():
            slots, scores = piece_scores.totals
            if allowed is not None:
                is_allowed = np.isin(slots, allowed[allowed >> SLOT_BITS == piece] & LAST_SLOT)
                slots, scores = slots[is_allowed], scores[is_allowed]
            rows.append(slots | (piece << SLOT_BITS))
            totals.append(scores)
        all_rows = np.concatenate(rows)
        all_scores = np.concatenate(totals)
        if len(all_scores) > depth:
            position = len(all_scores) - depth
            best = all_scores >= np.partition(all_scores, position)[position] - 1 / BILLION
            all_rows, all_scores = all_rows[best], all_scores[best]
        return {row: round(score * BILLION) for row, score in zip(all_rows.tolist(), all_scores.tolist(), strict=True)}
