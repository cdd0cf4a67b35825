"""The expected length of a knowledge base's file.

If the end of a file was cut off, the engine silently opens it at the last complete state. So each
writer records the length next to the file, and each opening compares it. The file only grows. A
garbage collection creates a new file with different first bytes. Appending never changes the first
bytes. A program that writes no record does no harm, and neither does a kill between the two writes:
then the file is longer than recorded.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path

from vmrag_link import permissions
from vmrag_link.engines.doltlite.library import FETCH_AGAIN
from vmrag_link.errors import EngineFailed, quoted
from vmrag_link.file_access import read_regular
from vmrag_link.models import Record

EXTENT_NAME = "extent"

_HEADER = 168
"""Bytes at the beginning that the engine writes once in the life of a file."""

_LIMIT = 1000


class Extent(Record, frozen=True):
    """The recorded inode, size and first bytes of a file."""

    inode: int
    """The inode of the file. If it is unchanged, the header need not be read again."""
    size: int
    header: bytes


def record_length(file: Path) -> None:
    """Record the length of a file that ends with a complete write. Hold the write lock.

    A failure to write the record is ignored, because the data itself is stored.
    """
    path = file.with_name(EXTENT_NAME)
    with contextlib.suppress(OSError):
        state, recorded = file.stat(), _read_record(path)
        is_same_file = recorded is not None and recorded.inode == state.st_ino and recorded.size <= state.st_size
        header = recorded.header if recorded and is_same_file else _read_header(file)
        _write_record(path, Extent(state.st_ino, state.st_size, header))


def forget_length(file: Path) -> None:
    """Remove the record. Call this before the file is replaced by a shorter one."""
    file.with_name(EXTENT_NAME).unlink(missing_ok=True)


def require_whole(file: Path) -> None:
    """Raise `EngineFailed` for a file whose end is missing. This reads the state of two files."""
    path = file.with_name(EXTENT_NAME)
    recorded = _read_record(path)
    if recorded is None:
        return
    try:
        size = file.stat().st_size
    except FileNotFoundError:
        return  # opening the file raises the error
    if size >= recorded.size or not recorded.header.startswith(_read_header(file)):
        return

    def quote_cut_name(path: Path) -> str:
        return quoted(path.with_name(f"{path.name}.cut"))

    recovery = (
        f"restore the file from a backup, or run 'cp {quoted(file)} {quote_cut_name(file)} && "
        f"mv {quoted(path)} {quote_cut_name(path)}' to continue with the rest"
    )
    raise EngineFailed(
        f"the end of {file} is missing: it has {size:,} of {recorded.size:,} bytes. The data stored last is lost, "
        "unless it was committed and pushed.",
        hint=FETCH_AGAIN if size < _HEADER else recovery,
        path=str(file),
        size=size,
        expected=recorded.size,
    )


def _read_header(file: Path) -> bytes:
    """Return the first bytes of a file.

    Call this only for a new file or an unexpected length: closing the file releases the engine's
    read locks of this process.
    """
    return read_regular(file, _HEADER)


def _read_record(path: Path) -> Extent | None:
    """Return the record, or None if it is missing or not complete."""
    try:
        inode, size, header, checksum = read_regular(path, _LIMIT).decode("ascii").split()
        fields = f"{inode} {size} {header}"
        extent = Extent(int(inode), int(size), bytes.fromhex(header))
    except (OSError, ValueError):
        return None
    return extent if checksum == _compute_checksum(fields) else None


def _write_record(path: Path, extent: Extent) -> None:
    """Write the record in place.

    It is written after every change and always has the same length.
    """
    fields = f"{extent.inode:020} {extent.size:020} {extent.header.hex()}"
    content = f"{fields} {_compute_checksum(fields)}\n".encode("ascii")
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, permissions.choose_file_mode(path))
    try:
        permissions.restore_mode(descriptor, path)
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _compute_checksum(fields: str) -> str:
    return f"{zlib.crc32(fields.encode()):08x}"
