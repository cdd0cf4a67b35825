"""Vectors as whole numbers: one int8 row per slot of a flat file, so scores are exact on every CPU.

A unit vector x becomes rint(127 · 2.5 · x), clipped to ±127. Products of such rows stay below 2^24
up to 1,040 dimensions, so their sum is the same in any order, in float32 and in integers. A few
vectors are rounded without numpy, which a checkout does not import.
"""

from __future__ import annotations

import array
import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from vmrag_link.index import flat

SCALE = 127 * 2.5
LIMIT = 127
STEP = 0.51
_WHOLE = 1.5 * 2**52
MANY = 800_000
"""Bytes of vectors from which numpy pays, though importing it takes 60 ms."""

_SIGN = bytes(128) + b"\xff" * 128
"""The second byte of a whole number from -128 to 127, by its lowest byte."""


def quantise(vectors: bytes) -> bytes:
    """One or many vectors of length 1, as float32 little-endian → one int8 per dimension."""
    # Added to 1.5 · 2^52, a number is rounded to a whole one by the addition itself (ties to even,
    # as `round` does), whose two's complement are the lowest bytes. Twice as fast as `round`.
    summed = _summed(vectors)
    low, next_byte = (summed[0::8], summed[1::8]) if sys.byteorder == "little" else (summed[7::8], summed[6::8])
    if b"\x80" not in low and low.translate(_SIGN) == next_byte:
        return low
    # Hardly ever: a component beyond 0.4 in a vector of length 1.
    clipped = (max(-LIMIT, min(LIMIT, round(SCALE * value))) for value in array.array("f", vectors))
    return array.array("b", clipped).tobytes()


def _summed(vectors: bytes) -> bytes:
    """Each number times `SCALE` plus `_WHOLE`, as float64: the same by both ways, to the bit."""
    if len(vectors) >= MANY:
        with contextlib.suppress(ImportError):
            import numpy as np

            return (np.frombuffer(vectors, np.float32).astype(np.float64) * SCALE + _WHOLE).tobytes()
    return array.array("d", [SCALE * value + _WHOLE for value in array.array("f", vectors)]).tobytes()


def near(row: bytes, vector: Sequence[float]) -> bool:
    """Whether a row is that of a vector, but for the last digits, which a store may change."""
    if len(row) != len(vector):
        return False
    whole = array.array("b", row)
    for component, value in zip(whole, vector, strict=True):
        exact = max(-LIMIT, min(LIMIT, SCALE * value))
        if not abs(exact - component) <= STEP:  # which is true of NaN
            return False
    return True


def file_name(collection_id: int) -> str:
    return f"vectors-{collection_id}.i8"


def replace(folder: Path, collection_id: int, rows: Mapping[int, bytes]) -> None:
    """Write rows by slot, in the place of those that are there."""
    with (folder / file_name(collection_id)).open("r+b") as out:
        for slot, row in rows.items():
            out.seek(slot * len(row))
            out.write(row)


def append(folder: Path, collection_id: int, rows: bytes) -> None:
    flat.append(folder / file_name(collection_id), rows)
