"""What the files of a work tree held when they were last read, so that few have to be read again.

As git's index does it: a file whose size and time are as they were is as it was. What a file holds
as a document is remembered by its bytes, so a file that a checkout brings back need not be
converted again. All of it is derived: without it files are read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vmrag_link.conversion import formats
from vmrag_link.conversion.limits import MAX_BYTES
from vmrag_link.errors import ConversionFailed, FileFailed, FormatUnsupported
from vmrag_link.models import Record, canonical_json, content_hash
from vmrag_link.paths import write_atomically

if TYPE_CHECKING:
    from vmrag_link.conversion.converter import Converter

FORMAT = 1
_RACY_NS = 2_000_000_000
"""What changed so shortly before it was read may have changed again within its time stamp."""

_SPARE = 2000
"""Contents that are remembered beyond those of present files."""


class SeenText(Record, frozen=True):
    """What a file holds as a document: the hash of the text, and its front matter as JSON."""

    content_hash: str
    metadata: str


class FileSelection(Record, frozen=True):
    """What of a folder is imported.

    `exclude`: patterns as in a `.gitignore` at the root of the repository; for a folder outside of
    it, in the import base.
    """

    exclude: tuple[str, ...] = ()
    include_ignored: bool = False
    include_generated: bool = False


class _Stamp(Record, frozen=True):
    """`at`: size and times (see `_at`); empty for a file that changed too shortly before it was
    read.
    """

    at: tuple[int, ...]
    digest: str


class _Stored(Record, frozen=True):
    """`edited`: by path, a document that no version of the file said, and the commit in whose
    history that was looked up.
    """

    format: int
    files: dict[str, _Stamp]
    texts: dict[str, SeenText]
    folders: dict[str, dict[str, FileSelection]]
    edited: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class FileRecord:
    """`file` is the record of a work tree. Two programs that write it at once lose one's part."""

    def __init__(self, file: Path) -> None:
        self._file = file
        stored = _read(file)
        self._files, self._texts, self._folders = dict(stored.files), dict(stored.texts), dict(stored.folders)
        self._edited = dict(stored.edited)
        self._before = stored

    def known(self, path: str) -> bool:
        """Whether the file has been here."""
        return path in self._files

    def folders(self, collection: str) -> dict[str, FileSelection]:
        """The folders that were imported into a collection in this work tree, and what of them."""
        return self._folders.get(collection, {})

    def remember_folders(self, collection: str, folders: Iterable[str], selection: FileSelection) -> None:
        self._folders[collection] = self.folders(collection) | dict.fromkeys(folders, selection)

    def forget_folder(self, collection: str, folder: str) -> None:
        """Drop a folder that is gone, and of whose files there is no document."""
        self._folders[collection] = {each: what for each, what in self.folders(collection).items() if each != folder}

    def remember(self, path: str, status: os.stat_result, content: bytes, text: SeenText) -> None:
        """What was read; `status` of the file when it was open."""
        self._stamp(path, status, _digest(content), text)

    def texts_of(self, text_hash: str) -> list[SeenText]:
        """What files of this text have been here, under whatever path."""
        return [each for each in self._texts.values() if each.content_hash == text_hash]

    def version(self, content: bytes) -> SeenText | None:
        """What is remembered of a file of that content."""
        return self._texts.get(_digest(content))

    def remember_version(self, content: bytes, text: SeenText) -> None:
        """What a file held once, wherever that was read."""
        self._texts[_digest(content)] = text

    def is_edited(self, path: str, key: tuple[str, ...]) -> bool:
        """Whether it was looked up already that no version of the file had this text."""
        return self._edited.get(path) == key

    def remember_edited(self, path: str, key: tuple[str, ...]) -> None:
        self._edited[path] = key

    def text(self, path: str, status: os.stat_result, converter: Converter | None) -> SeenText | None:
        """What a file holds now, which is read only if its stamp differs.

        None where that is not known: it cannot be read or converted, or only by another process,
        and there is no `converter`.
        """
        stamp = self._files.get(path)
        if stamp and stamp.at == _at(status) and stamp.digest in self._texts:
            return self._texts[stamp.digest]
        content = _content(path, status)
        if content is None:
            return None
        digest = _digest(content)
        text = self._texts.get(digest) or converted(path, content, converter)
        if text:
            self._stamp(path, status, digest, text)
        return text

    def forget_gone(self, top: Path, asked: Container[str]) -> None:
        """Keep the files that were `asked` for, and those that are in the work tree; others were
        renamed or removed.
        """
        here = f"{top}/"
        for path in [each for each in self._files if each not in asked]:
            if not path.startswith(here) or not os.path.lexists(path):
                del self._files[path]
        self._edited = {path: key for path, key in self._edited.items() if path in asked}

    def save(self) -> None:
        """Write what has changed; a work tree that cannot be written to reads files again."""
        held = {each.digest for each in self._files.values()}
        spare = [digest for digest in self._texts if digest not in held]
        for digest in spare[: max(0, len(spare) - _SPARE)]:
            del self._texts[digest]
        now = _Stored(FORMAT, self._files, self._texts, self._folders, self._edited)
        if now != self._before:
            with contextlib.suppress(OSError, FileFailed):
                write_atomically(self._file, msgspec.json.encode(now), durable=False)

    def _stamp(self, path: str, status: os.stat_result, digest: str, text: SeenText) -> None:
        racy = status.st_mtime_ns > time.time_ns() - _RACY_NS
        self._files[path] = _Stamp(() if racy else _at(status), digest)
        self._texts[digest] = text


def _at(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _read(file: Path) -> _Stored:
    with contextlib.suppress(OSError, msgspec.DecodeError):
        stored = msgspec.json.decode(file.read_bytes(), type=_Stored)
        if stored.format == FORMAT:
            return stored
    return _Stored(FORMAT, {}, {}, {})


def _content(path: str, status: os.stat_result) -> bytes | None:
    if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
        return None
    try:
        with open(path, "rb") as opened:  # noqa: PTH123  thousands of them
            return opened.read(MAX_BYTES + 1)
    except OSError:
        return None


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def line_end_variants(content: bytes) -> Iterator[bytes]:
    """The content, and the same with the line ends that another machine's checkout gives it."""
    yield content
    if b"\n" in content:
        plain = content.replace(b"\r\n", b"\n")
        yield from (each for each in (plain, plain.replace(b"\n", b"\r\n")) if each != content)


def converted(path: str, content: bytes, converter: Converter | None) -> SeenText | None:
    """What a file of that name and content says as a document; None as `FileRecord.text`."""
    from vmrag_link.conversion.converter import Converter

    found = formats.by_suffix(path)
    if found is None or (found.where != "here" and converter is None):
        return None
    with contextlib.suppress(ConversionFailed, FormatUnsupported):
        read = (converter or Converter()).convert(content, name=path)
        return SeenText(content_hash(read.text), canonical_json(read.metadata))
    return None
