"""The files of a folder that become documents, their ids, and the documents themselves.

Every file that is left out is listed with its reason. One that cannot be read is an error.
"""

from __future__ import annotations

import os
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from vmrag_link import clock, terminal_text
from vmrag_link.documents import reading
from vmrag_link.documents.front_matter import FrontMatterRefused
from vmrag_link.documents.nesting import MAX_DEPTH, NestedTooDeeply
from vmrag_link.errors import FileFailed, UsageInvalid
from vmrag_link.models import Record, canonical_json, content_hash

MAX_BYTES = 64 << 20
MAX_ID = 255
FILE_TYPES = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".txt": "text",
    ".rst": "rst",
    ".html": "html",
    ".htm": "html",
}


class SourceFile(Record, frozen=True):
    """A file that can become a document; `doc_id` is its POSIX path below the imported folder."""

    doc_id: str
    path: Path
    file_type: str


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

    `metadata` is canonical JSON text; `source` a POSIX path (see `read`).
    """

    doc_id: str
    title: str
    content: str
    content_hash: str
    file_type: str
    metadata: str
    source: str
    last_modified: str


def scan(sources: Sequence[Path]) -> Scan:
    """The files of these files and folders. Ids count from each folder, or a file's parent.

    Raises `UsageInvalid` for a missing source and for two files with one id, and `FileFailed` for a
    folder that cannot be read.
    """
    found: dict[str, SourceFile] = {}
    skipped: set[Skipped] = set()
    for source in sources:
        for item in _items(source):
            if isinstance(item, Skipped):
                skipped.add(item)
            elif (other := found.setdefault(item.doc_id, item)).path != item.path:
                raise UsageInvalid(
                    f"{other.path} and {item.path} would both become the document {item.doc_id!r}.",
                    hint="Import a folder that contains both, or each into a collection of its own.",
                    doc_id=item.doc_id,
                    paths=[str(other.path), str(item.path)],
                )
    return Scan(
        tuple(found[doc_id] for doc_id in sorted(found)),
        tuple(sorted(skipped, key=lambda item: (item.name, item.reason))),
    )


def read(file: SourceFile, *, work_tree: Path | None = None) -> ImportedDocument | Skipped:
    """The file as a document; `Skipped` if its contents or its front matter cannot be stored.

    `source` is relative to `work_tree` for a file in it, so that it is the same on every machine,
    else absolute. Raises `FileFailed` if the file is gone or cannot be read.
    """
    try:
        with file.path.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
            modified = os.fstat(opened.fileno()).st_mtime
    except OSError as error:
        raise _read_error(file.path, error) from error
    if len(content) > MAX_BYTES:
        return Skipped(file.doc_id, _TOO_LARGE)
    if b"\0" in content:
        return Skipped(file.doc_id, "contains NUL bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Skipped(file.doc_id, f"is not UTF-8 (byte {error.start})")
    try:
        page = reading.page(text, file.file_type)
    except FrontMatterRefused as refused:
        return Skipped(file.doc_id, f"line {refused.line} of its front matter {terminal_text.one_line(refused.reason)}")
    except NestedTooDeeply:
        return Skipped(file.doc_id, f"nests its elements deeper than {MAX_DEPTH} levels")
    return ImportedDocument(
        doc_id=file.doc_id,
        title=page.title or file.path.stem,
        content=page.content,
        content_hash=content_hash(page.content),
        file_type=file.file_type,
        metadata=canonical_json(page.metadata),
        source=_relative(file.path, work_tree) or file.path.as_posix(),
        last_modified=clock.at(int(modified)),
    )


_TOO_LARGE = f"is larger than {MAX_BYTES >> 20} MiB"


def _items(source: Path) -> Iterator[SourceFile | Skipped]:
    absolute = Path(os.path.abspath(source))  # noqa: PTH100  `resolve` would follow links, `absolute` keeps `..`
    try:
        there = absolute.exists()
    except OSError as error:
        raise _read_error(absolute, error) from error
    if not there:
        raise UsageInvalid(f"There is no file or folder {source}.", hint="Check the path.", path=str(source))
    if absolute.is_dir():
        yield from _below(absolute)
    else:
        yield _file(absolute, absolute.parent)


def _below(base: Path) -> Iterator[SourceFile | Skipped]:
    """Everything in the folder. Subfolders wait in a list, so that depth is no recursion error."""
    waiting = [base]
    while waiting:
        current = waiting.pop()
        try:
            entries = list(os.scandir(current))
        except OSError as error:
            raise _read_error(current, error) from error
        for entry in entries:
            path = Path(entry.path)
            if entry.name.startswith("."):
                yield Skipped(terminal_text.one_line(_id(path, base)), "is hidden")
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(path)
            else:
                yield _file(path, base)


def _file(path: Path, base: Path) -> SourceFile | Skipped:
    doc_id = _id(path, base)
    try:
        reason = _name_problem(doc_id) or _link_problem(path, base) or _type_problem(path) or _size_problem(path)
    except OSError as error:
        raise _read_error(path, error) from error
    return (
        Skipped(terminal_text.one_line(doc_id), reason)
        if reason
        else SourceFile(doc_id, path, FILE_TYPES[path.suffix.lower()])
    )


def _name_problem(doc_id: str) -> str | None:
    if len(doc_id) > MAX_ID:
        return f"its path is longer than {MAX_ID} characters"
    for character in doc_id:
        match unicodedata.category(character):
            case "Cs":
                return "its name is not UTF-8"
            case "Cc":
                return "its name has control characters"
    return None


def _type_problem(path: Path) -> str | None:
    suffix = path.suffix.lower()
    if suffix in FILE_TYPES:
        return None
    return f"its type {suffix} is not supported" if suffix else "has no file type"


def _size_problem(path: Path) -> str | None:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    return _TOO_LARGE if status.st_size > MAX_BYTES else None


def _link_problem(path: Path, base: Path) -> str | None:
    """The reason not to follow a link; None to follow it, to a file that could be imported itself.

    Hidden files and files outside of the folder stay where they are.
    """
    if not path.is_symlink():
        return None
    target = _relative(Path(os.path.realpath(path)), Path(os.path.realpath(base)))
    if not path.exists():
        return "is a broken symbolic link"
    if path.is_dir():
        return "is a symbolic link to a folder"
    if target is None:
        return "is a symbolic link that leaves the imported folder"
    if any(part.startswith(".") for part in target.split("/")):
        return "is a symbolic link to a hidden file"
    return None


def _id(path: Path, base: Path) -> str:
    return path.relative_to(base).as_posix()


def _relative(path: Path, base: Path | None) -> str | None:
    return path.relative_to(base).as_posix() if base and path.is_relative_to(base) else None


def _read_error(path: Path, error: OSError) -> FileFailed:
    name = terminal_text.one_line(str(path))
    return FileFailed(
        f"Cannot read {name}: {error.strerror}.",
        hint="Check that it exists and may be read, and run the command again.",
        path=name,
    )
