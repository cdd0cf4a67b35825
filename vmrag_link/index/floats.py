"""Vectors as float32: one row per slot of a flat file, for those that cannot be made again.

A service is paid for each vector and may answer otherwise tomorrow; what a client gave is nowhere
else. Only collections with such vectors have a file. A row of zeros, which no vector of length 1
is, and one beyond the file's end stand for a vector that its text gives: so the file of a
collection with a few given vectors takes the space of these.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping
from pathlib import Path

FLOAT32 = 4


def file_name(collection_id: int) -> str:
    return f"floats-{collection_id}.f32"


def write(folder: Path, collection_id: int, rows: Mapping[int, bytes]) -> None:
    """Write vectors by slot."""
    path = folder / file_name(collection_id)
    with path.open("r+b" if path.exists() else "w+b") as out:
        for slot, row in rows.items():
            out.seek(slot * len(row))
            out.write(row)


def found(content: mmap.mmap | bytes, slots: Iterable[int], *, dimensions: int) -> dict[int, bytes]:
    """The vectors that a file's content has, by slot."""
    length, there = dimensions * FLOAT32, memoryview(content)
    rows = ((slot, bytes(there[slot * length : (slot + 1) * length])) for slot in slots)
    return {slot: row for slot, row in rows if row.strip(b"\0")}
