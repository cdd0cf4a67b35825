"""The files of a folder that become documents, their ids, and the documents themselves.

Every file that is left out is listed with its reason. One that cannot be read is an error.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from vmrag_link import clock, terminal_text
from vmrag_link.conversion import formats
from vmrag_link.conversion.converter import Converter
from vmrag_link.conversion.limits import MAX_BYTES
from vmrag_link.documents.doc_ids import id_problem
from vmrag_link.documents.import_base import ImportBase, located
from vmrag_link.errors import ConversionFailed, FileFailed, UsageInvalid
from vmrag_link.models import Record, canonical_json, content_hash


class SourceFile(Record, frozen=True):
    """A file that can become a document; `doc_id` and `source` as the import base forms them."""

    doc_id: str
    source: str
    path: Path


class Skipped(Record, frozen=True):
    """What was left out, and why: `name` as a document id would be."""

    name: str
    reason: str


class Scan(Record, frozen=True):
    """Files sorted by document id, and skipped ones. A skipped folder is listed once."""

    files: tuple[SourceFile, ...]
    skipped: tuple[Skipped, ...]


class ImportedDocument(Record, frozen=True):
    """A file as a document.

    `metadata` is canonical JSON text; `source` as in `ImportBase`, empty if it came from no file.
    """

    doc_id: str
    title: str
    content: str
    content_hash: str
    file_type: str
    metadata: str
    source: str
    last_modified: str


def scan(sources: Sequence[Path], base: ImportBase) -> Scan:
    """The files of these files and folders, which lie in the base. No file is listed twice.

    Raises `UsageInvalid` for a missing source, and `FileFailed` for a folder that cannot be read.
    """
    found: dict[str, SourceFile] = {}
    skipped: set[Skipped] = set()
    for source in sources:
        for item in _items(source, base):
            if isinstance(item, Skipped):
                skipped.add(item)
            else:
                found[item.doc_id] = item
    return Scan(
        tuple(found[doc_id] for doc_id in sorted(found)),
        tuple(sorted(skipped, key=lambda item: (item.name, item.reason))),
    )


def existing(source: Path) -> Path:
    """Where the file or folder that a person named lies (see `located`).

    Raises `UsageInvalid` if it is not there.
    """
    try:
        there = source.exists()
    except OSError as error:
        raise _read_error(source, error) from error
    if not there:
        raise UsageInvalid(f"There is no file or folder {source}.", hint="Check the path.", path=str(source))
    return located(source)


def read(file: SourceFile, converter: Converter) -> ImportedDocument | Skipped:
    """The file as a document; `Skipped` if its contents cannot be converted or stored.

    Raises `FileFailed` if the file is gone or cannot be read.
    """
    try:
        with file.path.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
            modified = os.fstat(opened.fileno()).st_mtime
    except OSError as error:
        raise _read_error(file.path, error) from error
    try:
        found = converter.convert(content, name=file.path.name)
    except ConversionFailed as failed:
        return Skipped(file.doc_id, failed.details["reason"])
    return ImportedDocument(
        doc_id=file.doc_id,
        title=found.title or file.path.stem,
        content=found.text,
        content_hash=content_hash(found.text),
        file_type=found.file_type,
        metadata=canonical_json(found.metadata),
        source=file.source,
        last_modified=clock.at(int(modified)),
    )


_TOO_LARGE = f"is larger than {MAX_BYTES >> 20} MiB"


def _items(source: Path, base: ImportBase) -> Iterator[SourceFile | Skipped]:
    found = existing(source)
    if found.is_dir():
        yield from _below(found, base)
    else:
        yield _file(found, found.parent, base)


def _below(folder: Path, base: ImportBase) -> Iterator[SourceFile | Skipped]:
    """Everything in the folder. Subfolders wait in a list, so that depth is no recursion error."""
    waiting = [folder]
    while waiting:
        current = waiting.pop()
        try:
            entries = list(os.scandir(current))
        except OSError as error:
            raise _read_error(current, error) from error
        for entry in entries:
            path = Path(entry.path)
            if entry.name.startswith("."):
                yield Skipped(terminal_text.one_line(base.doc_id(path)), "is hidden")
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(path)
            else:
                yield _file(path, folder, base)


def _file(path: Path, folder: Path, base: ImportBase) -> SourceFile | Skipped:
    """A file in the folder that is imported."""
    doc_id = base.doc_id(path)
    try:
        reason = _name_problem(doc_id) or _link_problem(path, folder) or _type_problem(path) or _size_problem(path)
    except OSError as error:
        raise _read_error(path, error) from error
    if reason:
        return Skipped(terminal_text.one_line(doc_id), reason)
    return SourceFile(doc_id, base.source(path), path)


def _name_problem(doc_id: str) -> str | None:
    why = id_problem(doc_id)
    return f"its path {why}" if why else None


def _type_problem(path: Path) -> str | None:
    found = formats.by_suffix(path.name)
    if found:
        return formats.missing_extra(found) or None
    return f"its type {path.suffix.lower()} is not supported" if path.suffix else "has no file type"


def _size_problem(path: Path) -> str | None:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    return _TOO_LARGE if status.st_size > MAX_BYTES else None


def _link_problem(path: Path, folder: Path) -> str | None:
    """The reason not to follow a link; None to follow it, to a file that could be imported itself.

    Hidden files and files outside of the folder stay where they are.
    """
    if not path.is_symlink():
        return None
    target = Path(os.path.realpath(path))
    if not path.exists():
        return "is a broken symbolic link"
    if path.is_dir():
        return "is a symbolic link to a folder"
    if not target.is_relative_to(folder):
        return "is a symbolic link that leaves the imported folder"
    if any(part.startswith(".") for part in target.relative_to(folder).parts):
        return "is a symbolic link to a hidden file"
    return None


def _read_error(path: Path, error: OSError) -> FileFailed:
    name = terminal_text.one_line(str(path))
    return FileFailed(
        f"Cannot read {name}: {error.strerror}.",
        hint="Check that it exists and may be read, and run the command again.",
        path=name,
    )
