"""How long the file of a knowledge base has to be.

The engine opens a file whose end was cut off at the last state that is whole, and says nothing. So
each writer notes the length afterwards, beside the file, and each opening compares. The file only
grows. A garbage collection makes a new one, whose first bytes differ; appending never changes
them. A program that writes no note does no harm, nor does a kill between the two writes: the file
is longer than the note says.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path

from vmrag_link import permissions
from vmrag_link.engines.doltlite.library import FETCH_AGAIN
from vmrag_link.errors import EngineFailed, quoted
from vmrag_link.models import Record
from vmrag_link.paths import read_regular

EXTENT_NAME = "extent"

_HEADER = 168
"""Bytes at the beginning that the engine writes once in the life of a file."""

_LIMIT = 1000


class Extent(Record, frozen=True):
    """`inode`: of the file that was noted, to save reading the header again."""

    inode: int
    size: int
    header: bytes


def note_length(file: Path) -> None:
    """Note the length of a file that ends with what was written whole. Hold the write lock.

    A length that cannot be noted is no reason to fail: what was to be stored is stored.
    """
    path = file.with_name(EXTENT_NAME)
    with contextlib.suppress(OSError):
        found, before = file.stat(), _read(path)
        known = before is not None and before.inode == found.st_ino and before.size <= found.st_size
        header = before.header if before and known else _header(file)
        _write(path, Extent(found.st_ino, found.st_size, header))


def forget_length(file: Path) -> None:
    """Call it before the file is replaced by a shorter one."""
    file.with_name(EXTENT_NAME).unlink(missing_ok=True)


def require_whole(file: Path) -> None:
    """Raise `EngineFailed` for a file whose end is gone. Costs a look at two files."""
    path = file.with_name(EXTENT_NAME)
    noted = _read(path)
    if noted is None:
        return
    try:
        size = file.stat().st_size
    except FileNotFoundError:
        return  # whoever opens it says so
    if size >= noted.size or not noted.header.startswith(_header(file)):
        return

    def cut(path: Path) -> str:
        return quoted(path.with_name(f"{path.name}.cut"))

    go_on = (
        f"cp {quoted(file)} {cut(file)} && mv {quoted(path)} {cut(path)}   (goes on with what is left, and vmrag fetch "
        "brings what was pushed; a copy of the file from a backup may have all of it)"
    )
    raise EngineFailed(
        f"The end of {file} is gone: it has {size:,} bytes of the {noted.size:,} that were written. What was stored last is not in it: "
        "documents that were not committed, or revisions that were not pushed, are nowhere else.",
        hint=FETCH_AGAIN if size < _HEADER else go_on,
        path=str(file),
        size=size,
        expected=noted.size,
    )


def _header(file: Path) -> bytes:
    """Read only where a length does not fit, or a file is new: closing it gives up the engine's
    locks of this process, which are those of readers.
    """
    return read_regular(file, _HEADER)


def _read(path: Path) -> Extent | None:
    """None where there is none, or none that was written whole."""
    try:
        inode, size, header, checksum = read_regular(path, _LIMIT).decode("ascii").split()
        fields = f"{inode} {size} {header}"
        found = Extent(int(inode), int(size), bytes.fromhex(header))
    except (OSError, ValueError):
        return None
    return found if checksum == _checksum(fields) else None


def _write(path: Path, extent: Extent) -> None:
    """In place, because it is done after every write, and has always the same length."""
    fields = f"{extent.inode:020} {extent.size:020} {extent.header.hex()}"
    content = f"{fields} {_checksum(fields)}\n".encode("ascii")
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, permissions.choose_file_mode(path))
    try:
        permissions.restore_mode(descriptor, path)
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checksum(fields: str) -> str:
    return f"{zlib.crc32(fields.encode()):08x}"
