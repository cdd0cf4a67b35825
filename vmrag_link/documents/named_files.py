"""Read the text of files that the user names on the command line, and of standard input."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from vmrag_link import terminal_text
from vmrag_link.conversion.limits import MAX_BYTES
from vmrag_link.errors import FileFailed, quoted


def read_text(path: Path) -> str:
    """Return the text of a regular file. Raises `FileFailed`."""
    with open_regular_file(path) as opened:
        return _decode_text(opened.read(MAX_BYTES + 1), terminal_text.escape_line(str(path)))


def open_regular_file(path: Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises `FileFailed` for any other file, without reading it.
    """
    name = terminal_text.escape_line(str(path))
    try:
        # Opening a pipe without a writer would block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        kind = _describe_kind(path)
        reason = f"it is {kind}" if kind else error.strerror
        hint = f"run 'ls -la {quoted(path)}' to check its permissions"
        if isinstance(error, FileNotFoundError):
            hint = "check the path"
        raise FileFailed(f"cannot read {name}: {reason}.", hint=hint, path=name) from error
    if kind := _describe_kind(descriptor):
        os.close(descriptor)
        hint = "run 'vmrag import FOLDER'" if kind == "a folder" else f"run 'cat {quoted(path)} | vmrag … -'"
        raise FileFailed(f"{name} is {kind}, not a file.", hint=hint, path=name)
    return os.fdopen(descriptor, "rb")


def read_stream(stream: BinaryIO) -> str:
    """Return the text of standard input, up to its end. Raises `FileFailed`."""
    return _decode_text(stream.read(MAX_BYTES + 1), "standard input")


def _describe_kind(file: Path | int) -> str | None:
    """Return what a file is if it is not a regular file; None for a regular or missing file."""
    try:
        mode = os.stat(file).st_mode  # noqa: PTH116  a descriptor has no path
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


def _decode_text(data: bytes, name: str) -> str:
    if len(data) > MAX_BYTES:
        raise FileFailed(
            f"{name} has more than {MAX_BYTES >> 20} MiB, the maximum of a document.",
            hint="split it into several documents",
            path=name,
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FileFailed(
            f"{name}: the text is not UTF-8 (byte {error.start}).",
            hint="run 'iconv -f ENCODING -t UTF-8 FILE | vmrag … -' with the encoding of the text, such as LATIN1",
            path=name,
        ) from None
