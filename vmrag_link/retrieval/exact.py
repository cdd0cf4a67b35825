"""Exact scores over the whole-number vectors of one collection, memory-mapped.

Float dot products differ in their last bits between BLAS kernels, so ranks would differ between
machines. Sums of products of int8 values stay below 2^24 up to 1,040 dimensions (2^53 in float64
beyond): exact in any order, on any CPU.
"""

from __future__ import annotations

import functools
import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

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
    return ThreadPoolExecutor(THREADS, thread_name_prefix="scores")


class ExactVectors:
    """`slots` rows of int8; those in `dead` belong to no chunk."""

    def __init__(self, path: Path, *, slots: int, dimensions: int, dead: list[int]) -> None:
        self._slots = slots
        self._dead = np.array(dead, dtype=np.int64)
        self._rows: npt.NDArray[np.int8] = (
            np.memmap(path, dtype=np.int8, mode="r", shape=(slots, dimensions))
            if slots
            else np.empty((0, dimensions), dtype=np.int8)
        )
        self._number: Any = np.float32 if dimensions <= EXACT_IN_FLOAT32 else np.float64

    def scores(self, query: bytes) -> npt.NDArray[Any]:
        """The whole-number score of each slot for a query of int8 bytes; -inf for the dead ones."""
        vector = np.frombuffer(query, dtype=np.int8).astype(self._number)
        scores = np.empty(self._slots, dtype=self._number)
        if self._slots < PARALLEL:
            self._score(vector, scores, range(0, self._slots, BLOCK))
        else:  # whole numbers: how the work is shared out cannot show in the result
            shares = [range(BLOCK * number, self._slots, BLOCK * THREADS) for number in range(THREADS)]
            list(_pool().map(lambda share: self._score(vector, scores, share), shares))
        scores[self._dead] = -np.inf
        return scores

    def _score(self, vector: npt.NDArray[Any], scores: npt.NDArray[Any], starts: range) -> None:
        block = np.empty((min(BLOCK, self._slots), len(vector)), dtype=self._number)
        for at in starts:
            rows = self._rows[at : at + BLOCK]
            block[: len(rows)] = rows
            # A product a row, not one of matrix and vector: BLAS's own threads wait for each other,
            # 50 ms on a busy machine.
            np.vecdot(block[: len(rows)], vector, out=scores[at : at + BLOCK])

    def cosines(self, query: bytes, slots: list[int]) -> list[float]:
        """The cosines of some slots' vectors with the query, the same on any CPU.

        Unlike scores, they do not depend on lengths, which rounding and clipping change.
        """
        vector, rows = np.frombuffer(query, dtype=np.int8).astype(np.float64), self._rows[slots].astype(np.float64)
        lengths = np.sqrt(np.vecdot(rows, rows) * np.vecdot(vector, vector))
        found: list[float] = (np.vecdot(rows, vector) / lengths).tolist()
        return found

    def mean_cosine(self, query: bytes, slots: list[int]) -> float:
        """The cosine of the mean of some slots' vectors with the query, the same on any CPU."""
        vector, total = np.frombuffer(query, dtype=np.int8).astype(np.int64), self._rows[slots].sum(0, dtype=np.int64)
        length = math.sqrt(int(total @ total) * int(vector @ vector))
        return int(total @ vector) / length if length else 0.0

    def scores_of(self, query: bytes, slots: list[int]) -> list[int]:
        """The whole-number scores of some slots."""
        vector = np.frombuffer(query, dtype=np.int8).astype(np.float64)
        found: list[int] = np.vecdot(self._rows[slots].astype(np.float64), vector).astype(np.int64).tolist()
        return found

    def best(self, query: bytes, depth: int, *, among: list[int] | None = None) -> list[tuple[int, int]]:
        """(slot, score) of the best `depth` slots and all ties with the last, unordered.

        `among`: only these slots.
        """
        scores = self.scores(query)
        if among is not None:
            chosen = np.full(self._slots, -np.inf, dtype=self._number)
            chosen[among] = scores[among]
            scores = chosen
        lowest = np.float64(np.finfo(np.float32).min)
        if self._slots > depth:
            lowest = max(lowest, np.partition(scores, self._slots - depth)[self._slots - depth])
        slots = np.flatnonzero(scores >= lowest)
        return [(int(slot), int(scores[slot])) for slot in slots]
