"""Files of rows of one size, of which a slot of a collection has one each."""

from __future__ import annotations

import mmap
from pathlib import Path


def append(path: Path, rows: bytes, *, at: int) -> None:
    """Write rows behind the first `at` bytes, over anything that a killed process left there."""
    with path.open("r+b" if path.exists() else "w+b") as out:
        out.truncate(at)
        out.seek(at)
        out.write(rows)


def size(path: Path) -> int:
    """Bytes of a file; 0 where none was written."""
    return path.stat().st_size if path.exists() else 0


def mapped(path: Path) -> mmap.mmap:
    """The bytes of a file that holds some, memory-mapped: readable after the file is removed."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
