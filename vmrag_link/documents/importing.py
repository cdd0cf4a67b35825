"""Find the files of folders that become documents, with their ids, and read the documents.

Every file that is left out is listed with its reason. A file that cannot be read is an error.
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
from vmrag_link.documents import named_files
from vmrag_link.documents.import_base import ImportBase, find_id_problem, locate_path
from vmrag_link.errors import ConversionFailed, FileFailed, UsageInvalid
from vmrag_link.models import Record, content_hash, encode_canonical_json

if TYPE_CHECKING:
    from vmrag_link.conversion.converter import Converter

HIDDEN = "is hidden"


class FileSelection(Record, frozen=True):
    """The files of a folder to import."""

    exclude: tuple[str, ...] = ()
    """Patterns like in a `.gitignore` at the root of the repository, or, for a folder outside of
    it, in the import base.
    """

    include_ignored: bool = False
    include_generated: bool = False


class SourceFile(Record, frozen=True):
    """A file that can become a document. The import base determines `doc_id` and `source`."""

    doc_id: str
    source: str
    path: Path


class SkippedFile(Record, frozen=True):
    """A file that was left out."""

    name: str
    """The id that a document would have."""

    reason: str


class Scan(Record, frozen=True):
    """Files sorted by document id, and files that were left out. A skipped folder is listed
    once.
    """

    files: tuple[SourceFile, ...]
    skipped: tuple[SkippedFile, ...]


class ImportedDocument(Record, frozen=True):
    """A file as a document."""

    doc_id: str
    title: str
    content: str
    content_hash: str
    file_type: str
    metadata: str
    """Canonical JSON text."""

    source: str
    """See `ImportBase.make_source`. Empty if the document came from no file."""

    last_modified: str


ExclusionRule = Callable[[Sequence[Path], Sequence[Path], bool], Mapping[Path, str]]
"""A function that returns which of these folders and files to leave out, with the reasons. The last
argument is True if the user named them.
"""


def _exclude_nothing(*_: object) -> Mapping[Path, str]:
    return {}


def scan_sources(sources: Sequence[Path], base: ImportBase, exclude: ExclusionRule = _exclude_nothing) -> Scan:
    """Return the files of these files and folders, which are in the base. No file is listed twice.

    `exclude` is called for each level of folders with what could be imported. Raises `UsageInvalid`
    for a missing source, and `FileFailed` for a folder that cannot be read.
    """
    files_by_id: dict[str, SourceFile] = {}
    skipped: set[SkippedFile] = set()
    entries = [_make_entry(require_existing(source)) for source in sources]
    is_named = True
    while entries:
        files: dict[Path, SourceFile] = {}
        folders: dict[Path, Path] = {}
        for path, top, is_folder in entries:
            if path.name.startswith(".") and not is_named:
                skipped.add(_skip_file(path, base, HIDDEN))
            elif is_folder:
                folders[path] = top
            elif isinstance(item := _check_file(path, top, base), SourceFile):
                files[path] = item
            else:
                skipped.add(item)
        reasons = exclude(list(folders), list(files), is_named) if folders or files else {}
        skipped.update(_skip_file(path, base, reason) for path, reason in reasons.items())
        files_by_id.update((item.doc_id, item) for path, item in files.items() if path not in reasons)
        entries = []
        for path, top in folders.items():
            if path not in reasons:
                entries += _list_entries(path, top)
        is_named = False
    return Scan(
        tuple(files_by_id[doc_id] for doc_id in sorted(files_by_id)),
        tuple(sorted(skipped, key=lambda item: (item.name, item.reason))),
    )


def require_existing(source: Path) -> Path:
    """Return the located path of a file or folder that the user named (see `locate_path`).

    Raises `UsageInvalid` if it does not exist.
    """
    try:
        exists = source.exists()
    except OSError as error:
        raise _make_read_error(source, error) from error
    if not exists:
        raise UsageInvalid(f"no such file or folder: {source}.", hint="check the path", path=str(source))
    return locate_path(source)


def read_file(file: SourceFile, converter: Converter) -> ImportedDocument | SkippedFile:
    """Return a file as a document, or `SkippedFile` if its contents cannot be converted or stored.

    Raises `FileFailed` if the file is missing or cannot be read.
    """
    try:
        with file.path.open("rb") as opened:
            content, status = _read_contents(opened)
    except OSError as error:
        raise _make_read_error(file.path, error) from error
    try:
        document = _convert_file(file.path, content, status, converter)
    except ConversionFailed as failed:
        return SkippedFile(file.doc_id, failed.details["reason"])
    title = document.title or file.path.stem
    return msgspec.structs.replace(document, doc_id=file.doc_id, source=file.source, title=title)


def read_named_file(path: Path, converter: Converter) -> ImportedDocument:
    """Return a file that the user named as a document, without id and source.

    The title is empty if the file has none. A file of an unknown format is read as text. Raises
    `FileFailed`, `FormatUnsupported` if it needs an extra that is not installed, and
    `ConversionFailed`.
    """
    if formats.find_by_suffix(path.name) is None:
        text = named_files.read_text(path)
        return ImportedDocument(
            doc_id="",
            title="",
            content=text,
            content_hash=content_hash(text),
            file_type="text",
            metadata="{}",
            source="",
            last_modified="",
        )
    with named_files.open_regular_file(path) as opened:
        content, status = _read_contents(opened)
    return _convert_file(path, content, status, converter)


def _read_contents(opened: BinaryIO) -> tuple[bytes, os.stat_result]:
    """Return the bytes of a file and its status. If the file is too large, the bytes are one more
    than the maximum.
    """
    return opened.read(MAX_BYTES + 1), os.fstat(opened.fileno())


def _convert_file(path: Path, content: bytes, status: os.stat_result, converter: Converter) -> ImportedDocument:
    converted = converter.convert(content, name=path.name)
    return ImportedDocument(
        doc_id="",
        title=converted.title,
        content=converted.text,
        content_hash=content_hash(converted.text),
        file_type=converted.file_type,
        metadata=encode_canonical_json(converted.metadata),
        source="",
        last_modified=clock.format_file_time(int(status.st_mtime)),
    )


class _Entry(NamedTuple):
    """A file or folder. `top`: the folder that the user named, or the folder of the named file."""

    path: Path
    top: Path
    is_folder: bool


def _make_entry(path: Path) -> _Entry:
    return _Entry(path, path, True) if path.is_dir() else _Entry(path, path.parent, False)


def _list_entries(folder: Path, top: Path) -> Iterator[_Entry]:
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise _make_read_error(folder, error) from error
    for entry in entries:
        yield _Entry(Path(entry.path), top, entry.is_dir(follow_symlinks=False))


def _skip_file(path: Path, base: ImportBase, reason: str) -> SkippedFile:
    return SkippedFile(terminal_text.escape_line(base.make_doc_id(path)), reason)


def _check_file(path: Path, folder: Path, base: ImportBase) -> SourceFile | SkippedFile:
    """Return a file as a source file, or the reason to leave it out. `folder`: the imported
    folder.
    """
    doc_id = base.make_doc_id(path)
    try:
        problem = find_id_problem(doc_id)
        reason = (
            (f"its path {problem}" if problem else None)
            or _find_link_problem(path, folder)
            or _find_type_problem(path)
            or _find_size_problem(path)
        )
    except OSError as error:
        raise _make_read_error(path, error) from error
    return _skip_file(path, base, reason) if reason else SourceFile(doc_id, base.make_source(path), path)


def _find_type_problem(path: Path) -> str | None:
    file_format = formats.find_by_suffix(path.name)
    if file_format:
        return formats.find_missing_extra(file_format) or None
    return f"its type {path.suffix.lower()} is not supported" if path.suffix else "has no file type"


def _find_size_problem(path: Path) -> str | None:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    return f"is larger than {MAX_BYTES >> 20} MiB" if status.st_size > MAX_BYTES else None


def _find_link_problem(path: Path, folder: Path) -> str | None:
    """Return the reason not to follow a link. Only links to files that could be imported themselves
    are followed.
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


def _make_read_error(path: Path, error: OSError) -> FileFailed:
    name = terminal_text.escape_line(str(path))
    return FileFailed(
        f"cannot read {name}: {error.strerror}.",
        hint="check that it exists and that you may read it, then run the command again",
        path=name,
    )
