"""Read files of a work tree that may be untrusted. No link is followed in any part of a path, and
nothing waits for a pipe or device.

A file is identified by the blob that git would store for it, so that it has one name on disk and in
git. Attributes and `core.autocrlf` decide about line ends and encodings. No filter runs, and
`ident` is not applied. Sometimes git would store another blob, for example for line ends that are
already in the index. Then the caller takes the file for a changed one, and reads its text once
more. git decides whether a file is changed at all.
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
from vmrag_link.file_access import FileStamp
from vmrag_link.sources.attributes import ENCODING, EOL, TEXT, Value

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileState(NamedTuple):
    """Mode and stamp of a file. `stamp` differs after the file was changed, except within one tick
    of the clock.
    """

    mode: int
    stamp: FileStamp

    @property
    def size(self) -> int:
        return self.stamp.size

    @property
    def is_regular(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)

    @property
    def changed_at(self) -> int:
        """Time of the last change of any kind, in nanoseconds."""
        return max(self.stamp.modified_ns, self.stamp.changed_ns)


class Disk:
    """The files below a folder. Paths are relative."""

    def __init__(self, top: Path) -> None:
        self._top = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._top)

    def read_state(self, path: str) -> FileState | None:
        """Return the state of a file, or None if it is missing or cannot be read."""
        try:
            return _build_state(os.stat(path, dir_fd=self._top, follow_symlinks=False))
        except (OSError, ValueError):
            return None

    def read_stamp(self, path: str) -> FileStamp | None:
        """Return the stamp of a file, or None if it is missing or cannot be read."""
        state = self.read_state(path)
        return state.stamp if state else None

    def read_file(self, path: str, limit: int) -> tuple[bytes, FileState]:
        """Return all bytes of a regular file and its state. Raises OSError, also for more than
        `limit` bytes.
        """
        descriptor = self._open_path(path)
        try:
            state = _build_state(os.fstat(descriptor))
            if not state.is_regular:
                raise OSError(errno.EINVAL, "not a regular file", path)
            parts, size = [], 0
            while part := os.read(descriptor, min(limit + 1 - size, 1 << 20)):
                parts.append(part)
                size += len(part)
                if size > limit:
                    raise OSError(errno.EFBIG, "too large", path)
            return b"".join(parts), state
        finally:
            os.close(descriptor)

    def read_many(self, paths: Iterable[str], limit: int) -> Iterator[tuple[str, bytes, int]]:
        """Yield each path, its bytes and its size. The paths should be sorted.

        For a file larger than `limit`, only the first bytes are returned. A file that cannot be
        read has the size -`errno`.
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
                        descriptor = self._open_path(folder, _FOLDER)
                        held.callback(os.close, descriptor)
                        current = folder
                    yield path, *_read_beginning(os.open(name, _FILE, dir_fd=descriptor), limit)
                except OSError as error:
                    yield path, b"", -(error.errno or errno.EIO)

    def _open_path(self, path: str, flags: int = _FILE) -> int:
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
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        data = os.read(descriptor, status.st_size + 1 if status.st_size <= limit else BINARY_WITHIN)
        return data, max(status.st_size, len(data))
    finally:
        os.close(descriptor)


def _build_state(status: os.stat_result) -> FileState:
    stamp = FileStamp(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return FileState(status.st_mode, stamp)


_LONE_RETURN = re.compile(rb"\r(?!\n)")
_CONVERTING = ("true", "input", "yes", "on", "1")


def convert_to_stored(data: bytes, values: Mapping[str, Value], autocrlf: str) -> bytes:
    """Return the bytes that git would store. `values` are those of `attributes.FOR_STORING`.

    Raises `ContentUnreadable` if the file does not have the specified encoding.
    """
    encoding = values.get(ENCODING)
    if isinstance(encoding, str):
        data = convert_to_utf8(data, encoding)
    text = values.get(TEXT)
    if text is None and EOL in values:
        text = True
    if text is True:
        return _convert_line_ends(data)
    guessed = text == "auto" or (text is None and autocrlf.lower() in _CONVERTING)
    if guessed and b"\0" not in data and not _LONE_RETURN.search(data):
        return _convert_line_ends(data)
    return data


def list_stored_forms(data: bytes, encoding: str) -> Iterator[bytes]:
    """Yield all results that `convert_to_stored` may have for these bytes, for any line-end
    attributes.

    Raises `ContentUnreadable`.
    """
    if encoding:
        data = convert_to_utf8(data, encoding)
    yield data
    if b"\r\n" in data:
        yield _convert_line_ends(data)


def convert_to_utf8(data: bytes, encoding: str) -> bytes:
    """Return the text in UTF-8. Raises `ContentUnreadable` if the file does not have the
    encoding.
    """
    name = encoding.upper().removesuffix("-BOM")
    if name in ("UTF-8", "UTF8"):
        return data
    try:
        return decode_text(data, name).encode()
    except UnicodeEncodeError:
        raise ContentUnreadable(f"is not {encoding}") from None


def _convert_line_ends(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n")
