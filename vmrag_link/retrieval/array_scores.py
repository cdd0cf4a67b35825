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
from vmrag_link.retrieval.bm25 import BILLION, NAME_WEIGHT, Corpus, WordScores

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Lengths = npt.NDArray[np.uint32]

_LOCAL = threading.local()
"""`zeros`: an array that each thread reuses, because the operating system has to clear the pages of
a new array.
"""


class _WordCounts(NamedTuple):
    """The counts of words in the texts of a piece, sorted by word and slot."""

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

    def score_texts(self, factors: Sequence[tuple[float, float, float]], tokens: Lengths) -> Floats:
        """Return what each word adds to the score of its text. `tokens`: the lengths of all
        texts.
        """
        gains = np.array([gain for gain, _, _ in factors])[self.words]
        _, base, slope = factors[0]
        norms = base + slope * tokens[self.slots].astype(np.float64)
        often = self.frequencies
        if self.names is not None:
            often = often + self.names * (NAME_WEIGHT * norms - 1)
        scores: Floats = gains * often / (often + norms)
        return scores


class _Sums(NamedTuple):
    """Scores of texts by slot, in ascending order."""

    slots: Numbers
    scores: Floats

    def scores_at(self, slots: Numbers) -> Floats:
        """Return the scores of these slots; 0 for a text without a word."""
        positions = np.minimum(np.searchsorted(self.slots, slots), len(self.slots) - 1)
        return np.where(self.slots[positions] == slots, self.scores[positions], 0.0)


class _Piece:
    """A piece of a collection. A document has the slot of its first chunk."""

    def __init__(self, numbers: Sequence[int], lists: Sequence[tuple[int, WordOccurrences]]) -> None:
        self.numbers: Lengths = np.asarray(numbers, np.uint32).reshape(-1, NUMBERS)
        lengths = [len(holding.slots) for _, holding in lists]
        words = np.repeat([word for word, _ in lists], lengths)
        slots = np.concatenate([holding.slots for _, holding in lists]).astype(np.int64)
        often = np.concatenate([holding.frequencies for _, holding in lists]).astype(np.float64)
        counts = _WordCounts(words, slots, often)
        if any(holding.names for _, holding in lists):
            counts = counts._replace(names=often * np.repeat([holding.names for _, holding in lists], lengths))
        if alive := lists[0][1].alive:
            counted = np.frombuffer(alive, np.bool_)[slots]
            if not counted.all():
                counts = counts.select(counted)
        self.in_chunks = self._add_up_texts(counts)
        words, slots, often, _ = self.in_chunks
        self.in_documents = self._add_up_texts(_WordCounts(words, self.find_first_slots(slots), often))

    def _add_up_texts(self, counts: _WordCounts) -> _WordCounts:
        """Add up the counts of a word in several fields of a chunk, or in several chunks of a
        document.
        """
        keys = counts.words * len(self.numbers) + counts.slots
        if np.any(keys[1:] < keys[:-1]):
            order = np.argsort(keys, kind="stable")
            keys, counts = keys[order], counts.select(order)
        changes = keys[1:] != keys[:-1]
        if changes.all():
            return counts
        begins = np.append(0, np.flatnonzero(changes) + 1)
        words, slots, often, names = counts
        sums = None if names is None else np.add.reduceat(names, begins)
        return _WordCounts(words[begins], slots[begins], np.add.reduceat(often, begins), sums)

    def find_first_slots(self, slots: Numbers) -> Numbers:
        find_first_slots: Numbers = slots - self.numbers[slots, NUMBER]
        return find_first_slots

    def add_up_scores(
        self,
        of_chunks: Sequence[tuple[float, float, float]],
        of_documents: Sequence[tuple[float, float, float]],
        weight: float,
    ) -> None:
        """Compute the scores. The factors are those of the words (`Corpus.compute_factors`)."""
        size = len(self.numbers)
        zeros: Floats | None = _LOCAL.__dict__.pop("zeros", None)  # after an error there is none
        if zeros is None or len(zeros) < size:
            zeros = np.zeros(size)
        self.chunks = _sum_by_slot(
            zeros[:size], self.in_chunks.slots, self.in_chunks.score_texts(of_chunks, self.numbers[:, 0])
        )
        scores = self.in_documents.score_texts(of_documents, self.numbers[:, DOCUMENT])
        self.documents = _sum_by_slot(zeros[:size], self.in_documents.slots, scores)
        _LOCAL.zeros = zeros
        slots, scores = self.chunks
        self.totals = _Sums(slots, scores + weight * self.documents.scores_at(self.find_first_slots(slots)))


def _sum_by_slot(zeros: Floats, slots: Numbers, scores: Floats) -> _Sums:
    """Return the sum of the scores of each slot. `zeros` has only zeros again afterwards."""
    np.add.at(zeros, slots, scores)
    nonzero = np.flatnonzero(zeros != 0)
    sums = zeros[nonzero]
    zeros[nonzero] = 0
    return _Sums(nonzero, sums)


class ArrayScores(WordScores):
    """Scores by numpy. See `WordScores`."""

    def __init__(self, numbers: Mapping[int, Sequence[int]], document_weight: float) -> None:
        super().__init__(numbers, document_weight)
        self._pieces: dict[int, _Piece] = {}

    def add_words(self, words: Sequence[Sequence[WordOccurrences]], chunks: Corpus, documents: Corpus) -> None:
        lists: dict[int, list[tuple[int, WordOccurrences]]] = {}
        for number, occurrences in enumerate(words):
            for occurrence in occurrences:
                lists.setdefault(occurrence.piece, []).append((number, occurrence))
        pieces = {name: _Piece(self._lengths[name], piece_lists) for name, piece_lists in lists.items()}
        self._pieces = {name: piece for name, piece in pieces.items() if len(piece.in_chunks.words)}
        in_chunks, in_documents = np.zeros(len(words), np.int64), np.zeros(len(words), np.int64)
        for piece in self._pieces.values():
            in_chunks += np.bincount(piece.in_chunks.words, minlength=len(words))
            in_documents += np.bincount(piece.in_documents.words, minlength=len(words))
        of_chunks = [chunks.compute_factors(count) for count in in_chunks.tolist()]
        of_documents = [documents.compute_factors(count) for count in in_documents.tolist()]
        for (chunk_gain, _, _), (document_gain, _, _) in zip(of_chunks, of_documents, strict=True):
            self._max_score += chunk_gain
            self._max_score += self._document_weight * document_gain
        for piece in self._pieces.values():
            piece.add_up_scores(of_chunks, of_documents, self._document_weight)

    def score_row(self, row: int) -> int:
        if (piece := self._pieces.get(row >> SLOT_BITS)) is None:
            return 0
        slots = np.array([row & LAST_SLOT])
        [score] = piece.chunks.scores_at(slots) + self._document_weight * piece.documents.scores_at(
            piece.find_first_slots(slots)
        )
        return round(float(score) * BILLION)

    @property
    def rows(self) -> Collection[int]:
        return [
            (name << SLOT_BITS) | slot for name, piece in self._pieces.items() for slot in piece.chunks.slots.tolist()
        ]

    def select_best(self, depth: int, among: Sequence[int] | None = None) -> dict[int, int]:
        rows, totals = [np.empty(0, np.int64)], [np.empty(0)]
        allowed = None if among is None else np.array(among, dtype=np.int64)
        for name, piece in self._pieces.items():
            slots, scores = piece.totals
            if allowed is not None:
                is_allowed = np.isin(slots, allowed[allowed >> SLOT_BITS == name] & LAST_SLOT)
                slots, scores = slots[is_allowed], scores[is_allowed]
            rows.append(slots | (name << SLOT_BITS))
            totals.append(scores)
        all_rows, all_scores = np.concatenate(rows), np.concatenate(totals)
        if len(all_scores) > depth:
            position = len(all_scores) - depth
            best = all_scores >= np.partition(all_scores, position)[position] - 1 / BILLION
            all_rows, all_scores = all_rows[best], all_scores[best]
        return {row: round(score * BILLION) for row, score in zip(all_rows.tolist(), all_scores.tolist(), strict=True)}
