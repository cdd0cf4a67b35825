"""What is another one in a knowledge base's folder after anything was written there."""

from __future__ import annotations

import os
from pathlib import Path

from vmrag_link.engines.base import DOLT_FOLDER, DOLTLITE_FILE

Stamp = tuple[object, ...]

_JOURNAL = f"{DOLT_FOLDER}/noms/{'v' * 32}"
_MANIFEST = f"{DOLT_FOLDER}/noms/manifest"


def doltlite(folder: Path) -> Stamp:
    """The file grows with everything that is written. Raises `FileNotFoundError`."""
    return _stamp(folder / DOLTLITE_FILE)


def dolt(folder: Path) -> Stamp:
    """The journal grows with everything that is written, and is new after a garbage collection;
    reading touches it.

    Where there is none, every change writes the manifest anew, and so does the end of each session.
    Raises `FileNotFoundError`.
    """
    try:
        return _stamp(folder / _JOURNAL)[:2]
    except FileNotFoundError:
        return _stamp(folder / _MANIFEST)


def _stamp(path: Path) -> Stamp:
    found = os.stat(path)  # noqa: PTH116  Path's own is slower, and every call of a tool asks
    return found.st_ino, found.st_size, found.st_mtime_ns
