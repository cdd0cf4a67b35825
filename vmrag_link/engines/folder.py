"""The files in the folder of a knowledge base: which engine they belong to, and whether one
changed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

EngineName = Literal["doltlite", "dolt"]
Stamp = tuple[object, ...]
"""A value that differs after a file was written."""

DOLTLITE_FILE = "kb.doltlite"
"""The file of the embedded engine. It makes a folder a knowledge base, like the next two names."""
DOLT_FOLDER = ".dolt"
"""The folder of Dolt."""
SERVER_FILE = "server.json"
"""The file that names a database of a running Dolt server."""

LOCK_NAME = "write.lock"
"""The lock file in the folder of the knowledge base. Each writer holds it."""

UNCOMMITTED_NAME = "uncommitted"
"""A file in the knowledge base's folder that marks uncommitted rows.

Without it no branch has uncommitted rows. Shell scripts test for it.
"""

CREATING_NAME = ".creating"
"""The folder in which a knowledge base is created before its file or folder is moved up."""

_JOURNAL = f"{DOLT_FOLDER}/noms/{'v' * 32}"
_MANIFEST = f"{DOLT_FOLDER}/noms/manifest"


def detect_engine(folder: Path) -> EngineName | None:
    """Return the engine of the knowledge base in a folder, or None if the folder has none.

    A killed creation leaves none. If the folder has files of both engines, a migration is about to
    replace Dolt's, or has just replaced them.
    """
    if (folder / DOLTLITE_FILE).exists():
        return "doltlite"
    return "dolt" if (folder / DOLT_FOLDER).exists() or (folder / SERVER_FILE).exists() else None


def read_doltlite_stamp(folder: Path) -> Stamp:
    """Return the stamp of the file, which grows with each write. Raises `FileNotFoundError`."""
    return _stamp_file(folder / DOLTLITE_FILE)


def read_dolt_stamp(folder: Path) -> Stamp:
    """Return the stamp of Dolt's journal, or of its manifest without a journal.

    The journal grows with each write and is new after a garbage collection. Reading only changes
    its time, so the time is ignored. Without a journal, each change rewrites the manifest; the end
    of each session also does. Raises `FileNotFoundError`.
    """
    try:
        return _stamp_file(folder / _JOURNAL)[:2]
    except FileNotFoundError:
        return _stamp_file(folder / _MANIFEST)


def _stamp_file(path: Path) -> Stamp:
    state = os.stat(path)  # noqa: PTH116  Path.stat is slower, and every call of a tool needs this
    return state.st_ino, state.st_size, state.st_mtime_ns
