"""The text of a file or of standard input that a person names, read up to a document's limit."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from vmrag_link import terminal_text
from vmrag_link.conversion.limits import MAX_BYTES
from vmrag_link.errors import FileFailed, quoted


def file_text(path: Path) -> str:
    """The text of a regular file; raises as `open_file`."""
    with open_file(path) as opened:
        return _decode(opened.read(MAX_BYTES + 1), terminal_text.one_line(str(path)))


def open_file(path: Path) -> BinaryIO:
    """A regular file, to read it.

    Raises `FileFailed` for anything else, without reading any of it.
    """
    name = terminal_text.one_line(str(path))
    try:
        # A pipe that nobody writes to would keep the open waiting.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        kind = _kind(path)
        reason = f"it is {kind}" if kind else error.strerror
        raise FileFailed(f"Cannot read {name}: {reason}.", hint=f"ls -la {quoted(path)}", path=name) from error
    if kind := _kind(descriptor):
        os.close(descriptor)
        hint = "vmrag import FOLDER" if kind == "a folder" else f"cat {quoted(path)} | vmrag … -"
        raise FileFailed(f"{name} is {kind}, and a document comes from a file.", hint=hint, path=name)
    return os.fdopen(descriptor, "rb")


def stream_text(stream: BinaryIO) -> str:
    """The text of standard input, to its end."""
    return _decode(stream.read(MAX_BYTES + 1), "Standard input")


def _kind(place: Path | int) -> str | None:
    """What it is instead of a regular file; None for one, and for what is not there."""
    try:
        mode = os.stat(place).st_mode  # noqa: PTH116  a descriptor has no path
    except OSError:
        return None
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode))


def _decode(data: bytes, name: str) -> str:
    if len(data) > MAX_BYTES:
        raise FileFailed(
            f"{name} holds more than {MAX_BYTES >> 20} MiB, the most that a document can have.",
            hint="Cut it into several documents.",
            path=name,
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FileFailed(
            f"{name}: the text is not UTF-8 (byte {error.start}).", hint="iconv -t UTF-8 FILE | vmrag … -", path=name
        ) from None
