"""Vectors as whole numbers: one int8 row per slot of a flat file, so scores are exact on every CPU.

A unit vector x becomes rint(127 · 2.5 · x), clipped to ±127. Products of such rows stay below 2^24
up to 1,040 dimensions, so their sum is the same in any order, in float32 and in integers. Written
without numpy, which a checkout does not import.
"""

from __future__ import annotations

import array
from collections.abc import Mapping, Sequence
from pathlib import Path

from vmrag_link.index import flat

SCALE = 127 * 2.5
LIMIT = 127
STEP = 0.51


def quantise(vector: bytes) -> bytes:
    """float32 little-endian bytes of a unit-length vector → one int8 per dimension."""
    values = array.array("f")
    values.frombytes(vector)
    whole = [round(SCALE * value) for value in values]
    if max(whole) > LIMIT or min(whole) < -LIMIT:  # hardly ever: a component beyond 0.4 in a vector of length 1
        whole = [max(-LIMIT, min(LIMIT, value)) for value in whole]
    return array.array("b", whole).tobytes()


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


def append(folder: Path, collection_id: int, rows: list[bytes], *, slots: int, dimensions: int) -> None:
    """Write rows behind the first `slots` ones, over anything that a killed process left there."""
    flat.append(folder / file_name(collection_id), b"".join(rows), at=slots * dimensions)
