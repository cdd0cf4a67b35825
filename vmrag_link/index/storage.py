"""Files of index folders, on the disk or in memory.

A folder is in memory if it cannot be written to the disk. It has the path that it would have on the
disk, and only this process sees it, until the process ends. So vmrag can answer from a new index in
a read-only repository or on a full disk.

SQLite cannot open a path of more than about 500 bytes. A database at a longer path is read and
written as a whole.
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
from vmrag_link.file_access import write_atomically
from vmrag_link.index import seal


class MemoryFolder:
    """A folder in memory."""

    def __init__(self) -> None:
        self.name = os.urandom(8).hex()
        self.files: dict[str, bytes] = {}
        self.kept: dict[str, sqlite3.Connection] = {}
        """Connections that keep databases alive: a database exists while a connection is open."""

        self.readers = 0
        """Number of blocks that read the folder."""

    def connect_database(self, name: str) -> sqlite3.Connection:
        location = f"file:/{self.name}-{name}?vfs=memdb"
        if name not in self.kept:
            self.kept[name] = sqlite3.connect(location, uri=True, check_same_thread=False)
        return sqlite3.connect(location, uri=True, isolation_level=None, check_same_thread=False)

    def close(self) -> None:
        for connection in self.kept.values():
            connection.close()


class _MemoryFile(io.BytesIO):
    """A file of a folder in memory. It is stored when it is closed."""

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
"""Hold it from the creation of the first folder of an index until the index has its final name."""


def make_memory_folder(folder: Path) -> None:
    """Create an empty folder in memory."""
    _FOLDERS[folder] = MemoryFolder()
    seal.MEMORY_FOLDERS.add(folder)


def is_in_memory(folder: Path) -> bool:
    return folder in _FOLDERS


def list_memory_folders(root: Path) -> list[Path]:
    """Return the folders in memory directly below `root`, the newest first."""
    return [path for path in reversed(list(_FOLDERS)) if path.parent == root]


def rename_memory_folder(folder: Path, target: Path) -> None:
    _FOLDERS[target] = _FOLDERS.pop(folder)
    seal.MEMORY_FOLDERS.remove(folder)
    seal.MEMORY_FOLDERS.add(target)


def remove_memory_folder(folder: Path) -> None:
    """Remove a folder from memory, unless a block reads it."""
    if (memory := _FOLDERS.get(folder)) and not memory.readers:
        del _FOLDERS[folder]
        seal.MEMORY_FOLDERS.remove(folder)
        memory.close()


@contextlib.contextmanager
def hold_memory_folder(folder: Path) -> Iterator[None]:
    """Keep a folder in memory while the block reads it."""
    memory = _FOLDERS[folder]
    memory.readers += 1
    try:
        yield
    finally:
        memory.readers -= 1


# -- files -----------------------------------------------------------------------------------------


def make_folder(folder: Path) -> None:
    if folder not in _FOLDERS:
        permissions.make_folder(folder)


def read_file(path: Path) -> bytes:
    """Return the bytes of a file. Raises `OSError`."""
    if memory := _FOLDERS.get(path.parent):
        if path.name not in memory.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return memory.files[path.name]
    return path.read_bytes()


def write_file(path: Path, content: bytes) -> None:
    """Replace a file in one step, without waiting for the disk. Raises `OSError`."""
    if memory := _FOLDERS.get(path.parent):
        memory.files[path.name] = content
    else:
        write_atomically(path, content, durable=False)


def open_file(path: Path, mode: str) -> BinaryIO:
    """Open a file in a binary mode. Raises `OSError`."""
    if memory := _FOLDERS.get(path.parent):
        return _MemoryFile(memory, path.name, mode)
    return path.open(mode + "b")  # type: ignore[return-value]


def file_size(path: Path) -> int:
    """Return the size of a file in bytes; 0 if it does not exist."""
    if memory := _FOLDERS.get(path.parent):
        return len(memory.files.get(path.name, b""))
    return path.stat().st_size if path.exists() else 0


# -- databases -------------------------------------------------------------------------------------


def connect_database(path: Path, *, frozen: bool) -> sqlite3.Connection:
    """Open or create a database of an index folder.

    A `frozen` file never changes, so it needs neither locks nor a writable folder.
    """
    if memory := _FOLDERS.get(path.parent):
        return memory.connect_database(path.name)
    if is_too_long(path):
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        if frozen:
            try:
                connection.deserialize(path.read_bytes())
            except OSError as error:
                raise sqlite3.OperationalError(f"unable to read {path.name}: {error.strerror}") from error
        return connection
    # The threads of a program take turns to read an index.
    location = f"{path.absolute().as_uri()}?{'mode=ro&immutable=1' if frozen else 'mode=rwc'}"
    return sqlite3.connect(location, uri=True, isolation_level=None, check_same_thread=False)


def save_database(path: Path, connection: sqlite3.Connection) -> None:
    """Write a finished database to its file if SQLite could not write it."""
    if path.parent not in _FOLDERS and is_too_long(path):
        path.write_bytes(connection.serialize())
