"""Whether files have changed since somebody looked: without reading them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

Looks = tuple[tuple[object, ...], ...]


def looks(files: Iterable[Path]) -> Looks:
    """Equal as long as no file was written to or replaced. Of a folder: which one it is."""
    return tuple(_look(path) for path in files)


def _look(path: Path) -> tuple[object, ...]:
    try:
        found = os.stat(path)  # noqa: PTH116  Path's own is slower, and every call of a tool asks for several
    except OSError:
        return (path, None)
    if stat.S_ISDIR(found.st_mode):
        return (path, found.st_ino)
    return (path, found.st_ino, found.st_size, found.st_mtime_ns)
