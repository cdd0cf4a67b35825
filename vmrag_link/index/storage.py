"""Files of index folders: on the disk, or in memory where the disk takes none.

A folder in memory has the path that it would have on the disk. Only this process sees it, until the
process ends. So a read-only repository and a full disk can still answer from a new index.

SQLite opens no path of more than about 500 bytes. A database at a longer path is written and read
as a whole.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from vmrag_link import permissions
from vmrag_link.errors import is_too_long
from vmrag_link.index import seal
from vmrag_link.paths import write_atomically


class MemoryFolder:
    """A folder in memory. `readers`: how many read it now. Databases last while one connection is
    open, which `kept` holds.
    """

    def __init__(self) -> None:
        self.name = os.urandom(8).hex()
        self.files: dict[str, bytes] = {}
        self.kept: dict[str, sqlite3.Connection] = {}
        self.readers = 0

    def connect_database(self, name: str) -> sqlite3.Connection:
        location = f"file:/{self.name}-{name}?vfs=memdb"
        if name not in self.kept:
            self.kept[name] = sqlite3.connect(location, uri=True, check_same_thread=False)
        return sqlite3.connect(location, uri=True, isolation_level=None, check_same_thread=False)

    def close(self) -> None:
        for connection in self.kept.values():
            connection.close()


class _MemoryFile(io.BytesIO):
    """A file of a folder in memory, stored when it is closed."""

    def __init__(self, folder: MemoryFolder, name: str, mode: str) -> None:
        super().__init__(b"" if mode.startswith("w") else folder.files.get(name, b""))
        self._folder, self._file = folder, name
        if mode.startswith("a"):
            self.seek(0, os.SEEK_END)

    def close(self) -> None:
        if not self.closed:
            self._folder.files[self._file] = self.getvalue()
        super().close()


_FOLDERS: dict[Path, MemoryFolder] = {}

MAKING_LOCK = threading.RLock()
"""Hold it from the first new folder of an index until the index has its name."""


def make_memory_folder(folder: Path) -> None:
    """Make an empty folder in memory."""
    _FOLDERS[folder] = MemoryFolder()
    seal.MEMORY_FOLDERS.add(folder)


def is_in_memory(folder: Path) -> bool:
    return folder in _FOLDERS


def list_memory_folders(root: Path) -> list[Path]:
    """The folders in memory directly below `root`, the newest first."""
    return [path for path in reversed(list(_FOLDERS)) if path.parent == root]


def rename_memory_folder(folder: Path, to: Path) -> None:
    _FOLDERS[to] = _FOLDERS.pop(folder)
    seal.MEMORY_FOLDERS.remove(folder)
    seal.MEMORY_FOLDERS.add(to)


def remove_memory_folder(folder: Path) -> None:
    """Remove a folder from memory, unless it has a reader."""
    if (kept := _FOLDERS.get(folder)) and not kept.readers:
        del _FOLDERS[folder]
        seal.MEMORY_FOLDERS.remove(folder)
        kept.close()


@contextlib.contextmanager
def hold_memory_folder(folder: Path) -> Iterator[None]:
    """Keep a folder in memory while the block reads it."""
    kept = _FOLDERS[folder]
    kept.readers += 1
    try:
        yield
    finally:
        kept.readers -= 1


# -- files -----------------------------------------------------------------------------------------


def make_folder(folder: Path) -> None:
    if folder not in _FOLDERS:
        permissions.make_folder(folder)


def read_file(path: Path) -> bytes:
    """Raises OSError."""
    if kept := _FOLDERS.get(path.parent):
        if path.name not in kept.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return kept.files[path.name]
    return path.read_bytes()


def write_file(path: Path, content: bytes) -> None:
    """Replace a file in one step, not durably. Raises OSError."""
    if kept := _FOLDERS.get(path.parent):
        kept.files[path.name] = content
    else:
        write_atomically(path, content, durable=False)


def open_file(path: Path, mode: str) -> BinaryIO:
    """Raises OSError."""
    if kept := _FOLDERS.get(path.parent):
        return _MemoryFile(kept, path.name, mode)
    return path.open(mode + "b")  # type: ignore[return-value]


def file_size(path: Path) -> int:
    """Bytes of a file; 0 where there is none."""
    if kept := _FOLDERS.get(path.parent):
        return len(kept.files.get(path.name, b""))
    return path.stat().st_size if path.exists() else 0


# -- databases -------------------------------------------------------------------------------------


def connect_database(path: Path, *, frozen: bool) -> sqlite3.Connection:
    """Open a database of an index folder, or make it. A `frozen` file never changes, so it needs
    neither locks nor a writable folder.
    """
    if kept := _FOLDERS.get(path.parent):
        return kept.connect_database(path.name)
    if is_too_long(path):
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        if frozen:
            try:
                connection.deserialize(path.read_bytes())
            except OSError as error:
                raise sqlite3.OperationalError(f"unable to read {path.name}: {error.strerror}") from error
        return connection
    # The threads of a program read one index in turn.
    location = f"{path.absolute().as_uri()}?{'mode=ro&immutable=1' if frozen else 'mode=rwc'}"
    return sqlite3.connect(location, uri=True, isolation_level=None, check_same_thread=False)


def read_database(path: Path) -> bytes:
    """The content of a finished database. Raises OSError."""
    if not (kept := _FOLDERS.get(path.parent)):
        return path.read_bytes()
    with contextlib.closing(kept.connect_database(path.name)) as connection:
        return connection.serialize()


def save_database(path: Path, connection: sqlite3.Connection) -> None:
    """Write a finished database to its file, if SQLite cannot do that."""
    if path.parent not in _FOLDERS and is_too_long(path):
        path.write_bytes(connection.serialize())
