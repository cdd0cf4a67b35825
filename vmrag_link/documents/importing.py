"""The files of a folder that become documents, their ids, and the documents themselves.

Every file that is left out is listed with its reason. One that cannot be read is an error.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import msgspec

from vmrag_link import clock, terminal_text
from vmrag_link.conversion import formats
from vmrag_link.conversion.limits import MAX_BYTES
from vmrag_link.documents import export_paths
from vmrag_link.documents.import_base import ImportBase, find_id_problem, locate_path
from vmrag_link.errors import ConversionFailed, FileFailed, UsageInvalid
from vmrag_link.models import Record, content_hash, encode_canonical_json

if TYPE_CHECKING:
    from vmrag_link.conversion.converter import Converter

HIDDEN = "is hidden"


class FileSelection(Record, frozen=True):
    """What of a folder is imported.

    `exclude`: patterns as in a `.gitignore` at the root of the repository; for a folder outside of
    it, in the import base.
    """

    exclude: tuple[str, ...] = ()
    include_ignored: bool = False
    include_generated: bool = False


class SourceFile(Record, frozen=True):
    """A file that can become a document; `doc_id` and `source` as the import base forms them."""

    doc_id: str
    source: str
    path: Path


class SkippedFile(Record, frozen=True):
    """What was left out, and why: `name` as a document id would be."""

    name: str
    reason: str


class Scan(Record, frozen=True):
    """Files sorted by document id, and skipped ones. A skipped folder is listed once."""

    files: tuple[SourceFile, ...]
    skipped: tuple[SkippedFile, ...]


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


ExclusionRule = Callable[[Sequence[Path], Sequence[Path], bool], Mapping[Path, str]]
"""Which of these folders and files to leave out, with the reasons; and whether a person named them
themselves.
"""


def _nothing(*_: object) -> Mapping[Path, str]:
    return {}


def scan_sources(sources: Sequence[Path], base: ImportBase, leave_out: ExclusionRule = _nothing) -> Scan:
    """The files of these files and folders, which lie in the base. No file is listed twice.

    `leave_out` is asked for what could be imported, a level of folders at a time. Raises
    `UsageInvalid` for a missing source, and `FileFailed` for a folder that cannot be read.
    """
    found: dict[str, SourceFile] = {}
    skipped: set[SkippedFile] = set()
    level, named = [_entry_of(require_existing(source)) for source in sources], True
    while level:
        files: dict[Path, SourceFile] = {}
        folders: dict[Path, Path] = {}
        for path, top, is_folder in level:
            if path.name.startswith(".") and not named:
                skipped.add(_skipped(path, base, HIDDEN))
            elif is_folder:
                folders[path] = top
            elif isinstance(item := _file(path, top, base), SourceFile):
                files[path] = item
            else:
                skipped.add(item)
        reasons = leave_out(list(folders), list(files), named) if folders or files else {}
        skipped.update(_skipped(path, base, reason) for path, reason in reasons.items())
        found.update((item.doc_id, item) for path, item in files.items() if path not in reasons)
        level, named = (
            [each for path, top in folders.items() if path not in reasons for each in _below(path, top)],
            False,
        )
    return Scan(
        tuple(found[doc_id] for doc_id in sorted(found)),
        tuple(sorted(skipped, key=lambda item: (item.name, item.reason))),
    )


def require_existing(source: Path) -> Path:
    """Where the file or folder that a person named lies (see `located`).

    Raises `UsageInvalid` if it is not there.
    """
    try:
        there = source.exists()
    except OSError as error:
        raise _read_error(source, error) from error
    if not there:
        raise UsageInvalid(f"There is no file or folder {source}.", hint="Check the path.", path=str(source))
    return locate_path(source)


def read_file(file: SourceFile, converter: Converter) -> ImportedDocument | SkippedFile:
    """The file as a document; `Skipped` if its contents cannot be converted or stored.

    Raises `FileFailed` if the file is gone or cannot be read.
    """
    try:
        with file.path.open("rb") as opened:
            content, status = _contents(opened)
    except OSError as error:
        raise _read_error(file.path, error) from error
    try:
        document = _converted(file.path, content, status, converter)
    except ConversionFailed as failed:
        return SkippedFile(file.doc_id, failed.details["reason"])
    title = document.title or file.path.stem
    return msgspec.structs.replace(document, doc_id=file.doc_id, source=file.source, title=title)


def read_named_file(path: Path, converter: Converter) -> ImportedDocument:
    """A file that a person named, without id and source; no title, if it has none itself.

    One of a format that is not known is taken as it is, as text. Raises `FileFailed`,
    `FormatUnsupported` where only an extra reads it, and `ConversionFailed`.
    """
    if formats.find_by_suffix(path.name) is None:
        text = export_paths.read_text(path)
        return ImportedDocument("", "", text, content_hash(text), "text", "{}", "", "")
    with export_paths.open_regular_file(path) as opened:
        content, status = _contents(opened)
    return _converted(path, content, status, converter)


def _contents(opened: BinaryIO) -> tuple[bytes, os.stat_result]:
    """The bytes, a few more than are taken where there are too many."""
    return opened.read(MAX_BYTES + 1), os.fstat(opened.fileno())


def _converted(path: Path, content: bytes, status: os.stat_result, converter: Converter) -> ImportedDocument:
    found = converter.convert(content, name=path.name)
    return ImportedDocument(
        doc_id="",
        title=found.title,
        content=found.text,
        content_hash=content_hash(found.text),
        file_type=found.file_type,
        metadata=encode_canonical_json(found.metadata),
        source="",
        last_modified=clock.format_file_time(int(status.st_mtime)),
    )


_TOO_LARGE = f"is larger than {MAX_BYTES >> 20} MiB"


class _Entry(NamedTuple):
    """A file or folder; `top`: the folder that a person named, or that of the file."""

    path: Path
    top: Path
    is_folder: bool


def _entry_of(path: Path) -> _Entry:
    return _Entry(path, path, True) if path.is_dir() else _Entry(path, path.parent, False)


def _below(folder: Path, top: Path) -> Iterator[_Entry]:
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise _read_error(folder, error) from error
    for entry in entries:
        yield _Entry(Path(entry.path), top, entry.is_dir(follow_symlinks=False))


def _skipped(path: Path, base: ImportBase, reason: str) -> SkippedFile:
    return SkippedFile(terminal_text.escape_line(base.make_doc_id(path)), reason)


def _file(path: Path, folder: Path, base: ImportBase) -> SourceFile | SkippedFile:
    """A file in the folder that is imported."""
    doc_id = base.make_doc_id(path)
    try:
        reason = _name_problem(doc_id) or _link_problem(path, folder) or _type_problem(path) or _size_problem(path)
    except OSError as error:
        raise _read_error(path, error) from error
    return _skipped(path, base, reason) if reason else SourceFile(doc_id, base.make_source(path), path)


def _name_problem(doc_id: str) -> str | None:
    why = find_id_problem(doc_id)
    return f"its path {why}" if why else None


def _type_problem(path: Path) -> str | None:
    found = formats.find_by_suffix(path.name)
    if found:
        return formats.find_missing_extra(found) or None
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
    name = terminal_text.escape_line(str(path))
    return FileFailed(
        f"Cannot read {name}: {error.strerror}.",
        hint="Check that it exists and may be read, and run the command again.",
        path=name,
    )
