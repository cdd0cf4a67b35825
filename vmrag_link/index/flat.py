"""Files of rows of one size, of which a slot of a collection has one each."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

LARGE = 1_000_000
"""Bytes of a file that is mapped rather than read."""


def append(path: Path, rows: bytes) -> None:
    with path.open("ab") as out:
        out.write(rows)


def size(path: Path) -> int:
    """Bytes of a file; 0 where none was written."""
    return path.stat().st_size if path.exists() else 0


def mapped(path: Path) -> mmap.mmap | bytes:
    """The bytes of a file, readable after it is removed; a large one memory-mapped.

    A mapping keeps a descriptor, of which a process has a thousand or fewer; many collections are
    small ones.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < LARGE:
            return file.read()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
