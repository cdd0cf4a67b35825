"""Has a file changed since somebody looked? Asked without reading it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

FileStamp = tuple[int, int, int, int]


def file_stamp(path: Path) -> FileStamp | None:
    """Another one after the file was written to, or replaced as git does; None if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116  Path's own is slower, and every call of a tool asks for several
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def file_stamps(paths: Iterable[Path]) -> tuple[FileStamp | None, ...]:
    return tuple(map(file_stamp, paths))
