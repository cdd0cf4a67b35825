"""Compute exact scores of the chunks of one collection by their int8 vectors, which are
memory-mapped.

Float dot products differ in their last bits between kernels, so ranks would differ between
machines. Sums of products of int8 values are integers below 2^31, which every kernel of simsimd
adds up exactly on every processor. simsimd loads in 1 ms, numpy in 60 to 110 ms. numpy is used if
no wheel of simsimd is installed.
"""

from __future__ import annotations

import array
import functools
import heapq
import itertools
import math
import mmap
import sys
from collections.abc import Callable, Sequence
from typing import Any

from vmrag_link.index import keywords
from vmrag_link.models import Record

DEAD_SCORE = -math.inf
"""The score of a slot that the view does not include."""

NUMPY_SCORES = 50_000
"""Number of scores from which numpy selects the best, if it is already loaded."""

Kernel = Callable[[memoryview, memoryview], Sequence[float]]
"""A function of int8 rows (number, dimensions) and a vector (1, dimensions). It returns the product
with each row as float64.
"""


_BLOCK = 4096
"""Number of rows that numpy converts at a time. They fit the processor's cache."""


@functools.cache
def _load_kernel() -> Kernel:
    """Return the fastest kernel that is installed."""
    try:
        import simsimd
    except ImportError:
        return _multiply_by_numpy

    def multiply(rows: memoryview, vector: memoryview) -> Sequence[float]:
        products: Any = simsimd.cdist(rows, vector, metric="dot")
        return memoryview(products).cast("B").cast("d")

    return multiply


def _multiply_by_numpy(rows: memoryview, vector: memoryview) -> Sequence[float]:
    from vmrag_link.numpy_loading import np

    products: list[float] = []
    for start in range(0, len(rows), _BLOCK):
        block = np.asarray(rows[start : start + _BLOCK]).astype(np.float64)
        products += np.vecdot(block, np.asarray(vector)[0].astype(np.float64)).tolist()
    return products


class VectorPiece(Record, frozen=True):
    """`slots` rows of a file, beginning with `first_row`. A slot with its bit set in `dead` is
    ignored.
    """

    first_row: int
    content: mmap.mmap | bytes
    slots: int
    dead: bytes


class ExactVectors:
    """The vectors of one collection: int8 rows in the files of some segments."""

    def __init__(self, pieces: Sequence[VectorPiece], *, dimensions: int) -> None:
        self._pieces = pieces
        self._starts = [0, *itertools.accumulate(piece.slots for piece in pieces)]
        """The index of each piece's first score in the result of `score_slots`."""
        self._positions = {keywords.unpack_piece(piece.first_row): position for position, piece in enumerate(pieces)}
        """The position of each piece in `pieces`, by its number."""
        self._dimensions = dimensions

    def score_slots(self, query: bytes) -> array.array[float]:
        """Return the integer score of each slot, piece by piece, as float64. Dead slots have
        `DEAD_SCORE`.

        `query`: int8 values, one for each dimension.
        """
        vector = self._view_rows(query, 1)
        scores = array.array("d")
        for start, piece in zip(self._starts, self._pieces, strict=False):
            if piece.slots:
                scores.extend(_load_kernel()(self._view_rows(piece.content, piece.slots), vector))
            for slot in _list_dead_slots(piece):
                scores[start + slot] = DEAD_SCORE
        return scores

    def _view_rows(self, content: mmap.mmap | bytes, rows: int) -> memoryview:
        return memoryview(content)[: rows * self._dimensions].cast("b", shape=[rows, self._dimensions])

    def _find_score_index(self, row: int) -> int:
        """Return the index of a chunk's score in the result of `score_slots`."""
        return self._starts[self._positions[keywords.unpack_piece(row)]] + keywords.unpack_slot(row)

    def _list_vectors(self, rows: Sequence[int]) -> list[bytes]:
        """Return the vectors of some chunks, in their order."""
        size = self._dimensions
        vectors = []
        for row in rows:
            piece = self._pieces[self._positions[keywords.unpack_piece(row)]]
            slot = keywords.unpack_slot(row)
            vectors.append(piece.content[slot * size : (slot + 1) * size])
        return vectors

    def compute_cosines(self, query: bytes, rows: Sequence[int]) -> list[float]:
        """Return the cosines of some chunks' vectors with the query, the same on any CPU.

        Unlike scores, they do not depend on lengths, which rounding and clipping change.
        """
        [query_square] = self._multiply_vectors([query], query)
        products = self.score_rows(query, rows)
        squares = [self._multiply_vectors([vector], vector)[0] for vector in self._list_vectors(rows)]
        return [product / math.sqrt(square * query_square) for product, square in zip(products, squares, strict=True)]

    def compute_mean_cosine(self, query: bytes, rows: Sequence[int]) -> float:
        """Return the cosine of the mean of some chunks' vectors with the query, the same on any
        CPU.
        """
        vector = memoryview(query).cast("b")
        total = [
            sum(column) for column in zip(*(memoryview(row).cast("b") for row in self._list_vectors(rows)), strict=True)
        ]
        length = math.sqrt(sum(value * value for value in total) * sum(value * value for value in vector))
        return sum(a * b for a, b in zip(total, vector, strict=True)) / length if length else 0.0

    def score_rows(self, query: bytes, rows: Sequence[int]) -> list[int]:
        """Return the integer scores of some chunks."""
        return self._multiply_vectors(self._list_vectors(rows), query)

    def _multiply_vectors(self, vectors: Sequence[bytes], query: bytes) -> list[int]:
        if not vectors:
            return []
        return [
            int(score)
            for score in _load_kernel()(self._view_rows(b"".join(vectors), len(vectors)), self._view_rows(query, 1))
        ]

    def select_best(self, query: bytes, depth: int, *, among: Sequence[int] | None = None) -> dict[int, int]:
        """Return the scores of the best `depth` chunks and of all ties with the last, by row.

        `among`: select only from these rows.
        """
        scores = self.score_slots(query)
        if among is not None:
            by_row = {row: scores[self._find_score_index(row)] for row in among}
            alive = {row: score for row, score in by_row.items() if score > DEAD_SCORE}
            lowest = _find_lowest(list(alive.values()), depth)
            return {row: int(score) for row, score in alive.items() if score >= lowest}
        lowest = _find_lowest(scores, depth)
        best: dict[int, int] = {}
        for start, piece in zip(self._starts, self._pieces, strict=False):
            piece_scores = itertools.islice(scores, start, start + piece.slots)
            best |= {piece.first_row + slot: int(score) for slot, score in enumerate(piece_scores) if score >= lowest}
        return best


def _find_lowest(scores: Sequence[float], depth: int) -> float:
    """Return the lowest of the best `depth` scores that are not `DEAD_SCORE`."""
    least = -sys.float_info.max
    if len(scores) <= depth:
        return least
    numpy = sys.modules.get("numpy")
    if len(scores) >= NUMPY_SCORES and numpy:
        position = len(scores) - depth
        return max(least, float(numpy.partition(numpy.asarray(scores), position)[position]))
    return max(least, heapq.nlargest(depth, scores)[-1])


def _list_dead_slots(piece: VectorPiece) -> Sequence[int]:
    if not piece.dead:
        return ()
    return [slot for slot in range(piece.slots) if piece.dead[slot >> 3] >> (slot & 7) & 1]
