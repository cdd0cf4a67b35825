"""Exact scores of the chunks of one collection, by numpy: of its whole-number vectors, which are
memory-mapped, and of words.

Float dot products differ in their last bits between BLAS kernels, so ranks would differ between
machines. Sums of products of int8 values stay below 2^24 up to 1,040 dimensions (2^53 in float64
beyond): exact in any order, on any CPU. BM25 does the same operations on the same floats in the
same order as `bm25`, so it has the same bits.
"""

from __future__ import annotations

import functools
import itertools
import math
import mmap
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vmrag_link.index import keywords
from vmrag_link.index.flat_files import DOCUMENT, NUMBER, NUMBERS
from vmrag_link.index.keywords import LAST_SLOT, SLOT_BITS
from vmrag_link.models import Record
from vmrag_link.retrieval.bm25 import BILLION, Corpus, WordScores

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


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


BLOCK = 4096
"""Rows converted at a time.

A block fits the processor's cache; one block of all is 70 times slower.
"""

EXACT_IN_FLOAT32 = 1040

PARALLEL = 50_000
"""Rows from which several threads are worth it; numpy computes without the interpreter's lock."""

THREADS = min(4, os.cpu_count() or 1)


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """Kept, because starting threads takes as long as a quarter of their work."""
    from concurrent.futures import ThreadPoolExecutor  # 10 ms that an index of few rows need not wait for

    return ThreadPoolExecutor(THREADS, thread_name_prefix="scores")


class VectorPiece(Record, frozen=True):
    """`slots` rows of a file, from `first_row` on; those with a bit in `dead` do not count."""

    first_row: int
    content: mmap.mmap | bytes
    slots: int
    dead: bytes


class ExactVectors:
    """The vectors of one collection: rows of int8 in the files of some segments."""

    def __init__(self, pieces: Sequence[VectorPiece], *, dimensions: int) -> None:
        self._pieces = pieces
        self._starts = [0, *itertools.accumulate(each.slots for each in pieces)]
        self._rows: list[npt.NDArray[np.int8]] = [
            np.frombuffer(each.content, np.int8, each.slots * dimensions).reshape(each.slots, dimensions)
            for each in pieces
        ]
        self._dead = [_bits(each) for each in pieces]
        self._number_of = {keywords.piece_of(each.first_row): number for number, each in enumerate(pieces)}
        self._dimensions = dimensions
        self._number: Any = np.float32 if dimensions <= EXACT_IN_FLOAT32 else np.float64

    @property
    def _slots(self) -> int:
        return self._starts[-1]

    def scores(self, query: bytes) -> npt.NDArray[Any]:
        """The whole-number score of each slot, piece by piece, for a query of int8 bytes; -inf for
        the dead ones.
        """
        vector = np.frombuffer(query, dtype=np.int8).astype(self._number)
        scores = np.empty(self._slots, dtype=self._number)
        blocks = [(number, at) for number, each in enumerate(self._pieces) for at in range(0, each.slots, BLOCK)]
        if self._slots < PARALLEL:
            self._score(vector, scores, blocks)
        else:  # whole numbers: how the work is shared out cannot show in the result
            shares = [blocks[number::THREADS] for number in range(THREADS)]
            list(_pool().map(lambda share: self._score(vector, scores, share), shares))
        for start, dead in zip(self._starts, self._dead, strict=False):
            if dead is not None:
                scores[start : start + len(dead)][dead] = -np.inf
        return scores

    def _score(self, vector: npt.NDArray[Any], scores: npt.NDArray[Any], blocks: Iterable[tuple[int, int]]) -> None:
        block = np.empty((min(BLOCK, self._slots), len(vector)), dtype=self._number)
        for number, at in blocks:
            rows, start = self._rows[number][at : at + BLOCK], self._starts[number] + at
            block[: len(rows)] = rows
            # A product a row, not one of matrix and vector: BLAS's own threads wait for each other,
            # 50 ms on a busy machine.
            np.vecdot(block[: len(rows)], vector, out=scores[start : start + len(rows)])

    def _vectors(self, rows: Sequence[int]) -> npt.NDArray[np.int8]:
        """The vectors of some chunks, in their order."""
        found = np.empty((len(rows), self._dimensions), dtype=np.int8)
        given = np.array(rows, dtype=np.int64)
        pieces = given >> keywords.SLOT_BITS
        for piece in set(pieces.tolist()):
            mine = pieces == piece
            found[mine] = self._rows[self._number_of[piece]][given[mine] & keywords.LAST_SLOT]
        return found

    def cosines(self, query: bytes, rows: Sequence[int]) -> list[float]:
        """The cosines of some chunks' vectors with the query, the same on any CPU.

        Unlike scores, they do not depend on lengths, which rounding and clipping change.
        """
        vector, vectors = np.frombuffer(query, dtype=np.int8).astype(np.float64), self._vectors(rows).astype(np.float64)
        lengths = np.sqrt(np.vecdot(vectors, vectors) * np.vecdot(vector, vector))
        found: list[float] = (np.vecdot(vectors, vector) / lengths).tolist()
        return found

    def mean_cosine(self, query: bytes, rows: Sequence[int]) -> float:
        """The cosine of the mean of some chunks' vectors with the query, the same on any CPU."""
        vector, total = np.frombuffer(query, dtype=np.int8).astype(np.int64), self._vectors(rows).sum(0, dtype=np.int64)
        length = math.sqrt(int(total @ total) * int(vector @ vector))
        return int(total @ vector) / length if length else 0.0

    def scores_of(self, query: bytes, rows: Sequence[int]) -> list[int]:
        """The whole-number scores of some chunks."""
        vector = np.frombuffer(query, dtype=np.int8).astype(np.float64)
        found: list[int] = np.vecdot(self._vectors(rows).astype(np.float64), vector).astype(np.int64).tolist()
        return found

    def best(self, query: bytes, depth: int, *, among: Sequence[int] | None = None) -> dict[int, int]:
        """The scores of the best `depth` chunks and of all ties with the last, by row.

        `among`: only these rows.
        """
        scores = self.scores(query)
        if among is not None:
            given = np.array(among, dtype=np.int64)
            numbers, which = np.unique(given >> keywords.SLOT_BITS, return_inverse=True)
            starts = np.array([self._starts[self._number_of[piece]] for piece in numbers.tolist()], dtype=np.int64)
            places = starts[which] + (given & keywords.LAST_SLOT)
            chosen = np.full(self._slots, -np.inf, dtype=self._number)
            chosen[places] = scores[places]
            scores = chosen
        lowest = np.float64(np.finfo(np.float32).min)
        if self._slots > depth:
            lowest = max(lowest, np.partition(scores, self._slots - depth)[self._slots - depth])
        found = np.flatnonzero(scores >= lowest)
        pieces = np.searchsorted(self._starts, found, side="right") - 1
        return {
            self._pieces[piece].first_row + place - self._starts[piece]: int(scores[place])
            for piece, place in zip(pieces.tolist(), found.tolist(), strict=True)
        }


def _bits(piece: VectorPiece) -> npt.NDArray[np.bool_] | None:
    if not piece.dead:
        return None
    return np.unpackbits(np.frombuffer(piece.dead, np.uint8), count=piece.slots, bitorder="little").astype(np.bool_)
