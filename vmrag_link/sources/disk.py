"""Files of the work tree, read as a stranger may have left them: no link is followed in any part of
a path, and no pipe or device is waited for.

A file is named by what git would store of it, so that it has one name here and there. Line ends and
encodings count as attributes and `core.autocrlf` say; no filter runs, and `ident` is not applied.
Where git knows better, as with line ends that the index has already, the name is another one than
git's: that costs one more look at an equal text. Whether a file is changed at all is asked of git.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from vmrag_link.conversion.formats import decode_text
from vmrag_link.conversion.limits import BINARY_WITHIN, ContentUnreadable
from vmrag_link.paths import FileStamp
from vmrag_link.sources.attributes import ENCODING, EOL, TEXT, Value

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileState(NamedTuple):
    """`stamp` differs after the file was changed, unless that was within a tick of the clock."""

    mode: int
    stamp: FileStamp

    @property
    def size(self) -> int:
        return self.stamp[1]

    @property
    def is_regular(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)

    @property
    def changed_at(self) -> int:
        """The time in nanoseconds that it was last changed in any way."""
        return max(self.stamp[2:])


class Disk:
    """The files below a folder; paths are relative."""

    def __init__(self, top: Path) -> None:
        self._top = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._top)

    def read_state(self, path: str) -> FileState | None:
        """None for what is not there, or cannot be looked at."""
        try:
            return _state(os.stat(path, dir_fd=self._top, follow_symlinks=False))
        except (OSError, ValueError):
            return None

    def read_file(self, path: str, limit: int) -> tuple[bytes, FileState]:
        """All bytes of a regular file. Raises OSError, also for more than `limit`."""
        descriptor = self._open(path)
        try:
            found = _state(os.fstat(descriptor))
            if not found.is_regular:
                raise OSError(errno.EINVAL, "is no regular file", path)
            parts, size = [], 0
            while part := os.read(descriptor, min(limit + 1 - size, 1 << 20)):
                parts.append(part)
                size += len(part)
                if size > limit:
                    raise OSError(errno.EFBIG, "is too large", path)
            return b"".join(parts), found
        finally:
            os.close(descriptor)

    def read_many(self, paths: Iterable[str], limit: int) -> Iterator[tuple[str, bytes, int]]:
        """Yield each path, its bytes and its size. A file that is larger than `limit` has only its
        first bytes; a file that cannot be read has the size -`errno`. The paths should be sorted.
        """
        with contextlib.ExitStack() as held:
            current, descriptor = "", self._top
            for path in paths:
                folder, _, name = path.rpartition("/")
                try:
                    if folder != current:
                        held.close()
                        current, descriptor = "", self._top
                    if folder != current:
                        descriptor = self._open(folder, _FOLDER)
                        held.callback(os.close, descriptor)
                        current = folder
                    yield path, *_read_beginning(os.open(name, _FILE, dir_fd=descriptor), limit)
                except OSError as error:
                    yield path, b"", -(error.errno or errno.EIO)

    def _open(self, path: str, flags: int = _FILE) -> int:
        *folders, name = path.split("/")
        current = self._top
        try:
            for folder in folders:
                inner = os.open(folder, _FOLDER, dir_fd=current)
                if current != self._top:
                    os.close(current)
                current = inner
            return os.open(name, flags, dir_fd=current)
        finally:
            if current != self._top:
                os.close(current)


def _read_beginning(descriptor: int, limit: int) -> tuple[bytes, int]:
    """Return the bytes of a regular file and its size, and close it. Raises OSError."""
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        data = os.read(descriptor, found.st_size + 1 if found.st_size <= limit else BINARY_WITHIN)
        return data, max(found.st_size, len(data))
    finally:
        os.close(descriptor)


def _state(found: os.stat_result) -> FileState:
    return FileState(found.st_mode, (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))


_LONE_RETURN = re.compile(rb"\r(?!\n)")
_CONVERTING = ("true", "input", "yes", "on", "1")


def convert_to_stored(data: bytes, values: Mapping[str, Value], autocrlf: str) -> bytes:
    """`values` of `attributes.FOR_STORING`. Raises `ContentUnreadable` for another encoding than is
    stated.
    """
    encoding = values.get(ENCODING)
    if isinstance(encoding, str):
        data = convert_to_utf8(data, encoding)
    text = values.get(TEXT)
    if text is None and EOL in values:
        text = True
    if text is True:
        return _with_newlines(data)
    guessed = text == "auto" or (text is None and autocrlf.lower() in _CONVERTING)
    if guessed and b"\0" not in data and not _LONE_RETURN.search(data):
        return _with_newlines(data)
    return data


def list_stored_forms(data: bytes, encoding: str) -> Iterator[bytes]:
    """All that `stored_form` may give for these bytes, whatever attributes say of line ends.

    Raises `ContentUnreadable`.
    """
    if encoding:
        data = convert_to_utf8(data, encoding)
    yield data
    if b"\r\n" in data:
        yield _with_newlines(data)


def convert_to_utf8(data: bytes, encoding: str) -> bytes:
    """Raises `ContentUnreadable`."""
    name = encoding.upper().removesuffix("-BOM")
    if name in ("UTF-8", "UTF8"):
        return data
    try:
        return decode_text(data, name).encode()
    except UnicodeEncodeError:
        raise ContentUnreadable(f"is not {encoding}") from None


def _with_newlines(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n")
