"""Find the file from which a document was imported, and the lines of the document's text in it.

Another clone may have recorded the path, so it is untrusted: only files in the work tree, or in the
folder that the user imported, are read. `passage_places` uses this to show lines of files.
"""

from __future__ import annotations

import os
from pathlib import Path

from vmrag_link.conversion import formats
from vmrag_link.documents import import_base
from vmrag_link.documents.import_base import OUTSIDE
from vmrag_link.file_access import read_regular
from vmrag_link.git import own_keys
from vmrag_link.models import Collection, Document
from vmrag_link.paths import Places

MAX_FILE_BYTES = 4 << 20
"""Maximum size of a file in which a line is searched."""

_UNCONVERTED_TYPES = frozenset(
    known_format.file_type for known_format in formats.FORMATS if known_format.where == "here"
)


def source_file(places: Places, collection: Collection, document: Document) -> Path | None:
    """Return the file that a document came from, or None.

    None also for a document from a URL, for a file that this machine lacks, and for a path that
    leaves the imported folder or leads into a git directory.
    """
    source = document.source
    if not source or "://" in source or import_base.escapes_folder(source):
        return None
    is_outside = collection.import_base == OUTSIDE
    folder = own_keys.read_import_folder(places, collection.name) if is_outside else places.top
    if folder is None:
        return None
    root = Path(os.path.realpath(folder))
    path = Path(os.path.realpath(root / source))
    git_folders = (Path(os.path.realpath(git_folder)) for git_folder in (places.git_dir, places.common))
    if not path.is_relative_to(root) or any(path.is_relative_to(git_folder) for git_folder in git_folders):
        return None
    try:
        return root / source if path.is_file() else None
    except OSError:  # a name that the system refuses to look up
        return None


def written_lines(path: Path, document: Document, *, as_written: bool = False) -> list[str] | None:
    """Return the lines of a document's file; None if it was converted or cannot be read.

    `as_written`: the caller knows that it was not converted.
    """
    if not as_written and document.file_type not in _UNCONVERTED_TYPES:
        return None
    try:
        return lines_of(read_regular(path, MAX_FILE_BYTES))
    except OSError:
        return None


def lines_of(data: bytes) -> list[str] | None:
    """Return the lines of a file's bytes, without a byte order mark.

    None if they are not UTF-8, or too many.
    """
    try:
        return _split_lines(data.decode("utf-8-sig")) if len(data) < MAX_FILE_BYTES else None
    except UnicodeDecodeError:
        return None


def line_of(line: int, lines: list[str], document: Document) -> int | None:
    """Return the line of a file that is this line of the document's text. Both start at 1.

    `lines`: the lines of the file. Front matter may be above the text. If the file was changed, the
    result is the only line with the same text, or None if there is not exactly one.
    """
    text_lines = _split_lines(document.content)
    if not 0 < line <= len(text_lines):
        return None
    above = len(lines) - len(text_lines)
    if above >= 0 and lines[above:] == text_lines:
        return above + line
    text = text_lines[line - 1]
    return lines.index(text) + 1 if text.strip() and lines.count(text) == 1 else None


def _split_lines(text: str) -> list[str]:
    """Return the lines of a text as editors count them."""
    return [line.removesuffix("\r") for line in text.split("\n")]
