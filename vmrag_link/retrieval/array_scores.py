"""BM25 scores of the chunks of one collection, by numpy.

It applies the same operations to the same floats in the same order as `bm25`, so the scores have
the same bits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from vmrag_link.index.flat_files import DOCUMENT, NUMBER, NUMBERS
from vmrag_link.index.keywords import LAST_SLOT, SLOT_BITS
from vmrag_link.numpy_loading import np, npt
from vmrag_link.retrieval.bm25 import BILLION, Corpus, WordScores

Floats = npt.NDArray[np.float64]
Slots = npt.NDArray[np.int64]


class _Piece:
    """The scores of all slots of a piece of a collection; those of documents at their first
    slots.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers: npt.NDArray[np.uint32] = np.asarray(numbers, dtype=np.uint32).reshape(-1, NUMBERS)
        self.chunks, self.documents = np.zeros(len(self.numbers)), np.zeros(len(self.numbers))
        self.holding = np.zeros(len(self.numbers), dtype=bool)

    def firsts(self, slots: Slots) -> Slots:
        found: Slots = slots - self.numbers[slots, NUMBER]
        return found

    def totals(self, slots: Slots, weight: float) -> Floats:
        return self.chunks[slots] + weight * self.documents[self.firsts(slots)]


class _Held(NamedTuple):
    """Where a word is in a piece: slots of chunks, and first slots of documents, and how often."""

    piece: _Piece
    slots: Slots
    often: Floats
    firsts: Slots
    often_in_document: Floats


class ArrayScores(WordScores):
    """See `WordScores`."""

    def __init__(self, numbers: Mapping[int, Sequence[int]], document_weight: float) -> None:
        super().__init__(numbers, document_weight)
        self._pieces: dict[int, _Piece] = {}

    def add(self, occurrences: Sequence[int], chunks: Corpus, documents: Corpus) -> None:
        held = self._held(np.array(occurrences, dtype=np.int64))
        gain, base, slope = chunks.factors(sum(len(each.slots) for each in held))
        self._most += gain
        for piece, slots, often, _, _ in held:
            piece.holding[slots] = True
            piece.chunks[slots] += gain * often / (often + base + slope * piece.numbers[slots, 0].astype(np.float64))
        gain, base, slope = documents.factors(sum(len(each.firsts) for each in held))
        self._most += self._document_weight * gain
        for piece, _, _, firsts, often in held:
            tokens = piece.numbers[firsts, DOCUMENT].astype(np.float64)
            piece.documents[firsts] += gain * often / (often + base + slope * tokens)

    def _held(self, rows: Slots) -> list[_Held]:
        found = []
        names = rows >> SLOT_BITS
        for name in np.unique(names).tolist():
            if name not in self._pieces:
                self._pieces[name] = _Piece(self._lengths[name])
            piece = self._pieces[name]
            slots, often = np.unique(rows[names == name] & LAST_SLOT, return_counts=True)
            in_documents = np.bincount(piece.firsts(slots), weights=often).astype(np.float64)
            firsts = np.flatnonzero(in_documents)
            found.append(_Held(piece, slots, often.astype(np.float64), firsts, in_documents[firsts]))
        return found

    def of(self, row: int) -> int:
        if (piece := self._pieces.get(row >> SLOT_BITS)) is None:
            return 0
        return round(float(piece.totals(np.array([row & LAST_SLOT]), self._document_weight)[0]) * BILLION)

    @property
    def rows(self) -> Collection[int]:
        return [(name << SLOT_BITS) | slot for name, each in self._pieces.items() for slot in _ones(each.holding)]

    def best(self, depth: int, among: Sequence[int] | None = None) -> dict[int, int]:
        rows, totals = [np.empty(0, np.int64)], [np.empty(0)]
        given = None if among is None else np.array(among, dtype=np.int64)
        for name, piece in self._pieces.items():
            slots = np.flatnonzero(piece.holding)
            if given is not None:
                some = given[given >> SLOT_BITS == name] & LAST_SLOT
                slots = np.unique(some[piece.holding[some]])
            rows.append(slots | (name << SLOT_BITS))
            totals.append(piece.totals(slots, self._document_weight))
        all_rows, scores = np.concatenate(rows), np.concatenate(totals)
        if len(scores) > depth:
            lowest = np.partition(scores, len(scores) - depth)[len(scores) - depth] - 1 / BILLION
            all_rows, scores = all_rows[scores >= lowest], scores[scores >= lowest]
        return {row: round(score * BILLION) for row, score in zip(all_rows.tolist(), scores.tolist(), strict=True)}


def _ones(bits: npt.NDArray[np.bool_]) -> list[int]:
    found: list[int] = np.flatnonzero(bits).tolist()
    return found
