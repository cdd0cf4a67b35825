"""Find the file of a document on this machine, and the lines of its text in it.

The recorded path may come from an untrusted source. So only files in the work tree, or in the
folder that the user imported, are read.
"""

from __future__ import annotations

import os
from pathlib import Path

from vmrag_link.conversion import formats
from vmrag_link.documents import import_base
from vmrag_link.documents.import_base import OUTSIDE
from vmrag_link.file_access import read_regular
from vmrag_link.git import configuration
from vmrag_link.models import Collection, Document
from vmrag_link.paths import Places

MOST_BYTES = 4 << 20
"""Maximum size of a file in which a line is searched."""

_AS_WRITTEN = frozenset(known_format.file_type for known_format in formats.FORMATS if known_format.where == "here")


def source_file(places: Places, collection: Collection, document: Document) -> Path | None:
    """Return the file that a document came from; None if it has none, or if it is not on this
    machine.
    """
    stored = document.source
    if not stored or "://" in stored or import_base.escapes_folder(stored):
        return None
    outside = collection.import_base == OUTSIDE
    folder = configuration.read_import_folder(places, collection.name) if outside else places.top
    if folder is None:
        return None
    root = Path(os.path.realpath(folder))
    path = Path(os.path.realpath(root / stored))
    git_folders = (Path(os.path.realpath(folder)) for folder in (places.git_dir, places.common))
    if not path.is_relative_to(root) or any(path.is_relative_to(folder) for folder in git_folders):
        return None
    try:
        return root / stored if path.is_file() else None
    except OSError:  # a name that the system refuses to look up
        return None


def written_lines(path: Path, document: Document, *, as_written: bool = False) -> list[str] | None:
    """Return the lines of a document's file; None if it was converted or cannot be read.

    `as_written`: the caller knows that it was not converted.
    """
    if not as_written and document.file_type not in _AS_WRITTEN:
        return None
    try:
        return lines_of(read_regular(path, MOST_BYTES))
    except OSError:
        return None


def lines_of(data: bytes) -> list[str] | None:
    """Return the lines of a file without a byte order mark; None if it is not UTF-8 or
    too large.
    """
    try:
        return _split_lines(data.decode("utf-8-sig")) if len(data) < MOST_BYTES else None
    except UnicodeDecodeError:
        return None


def line_of(line: int, lines: list[str], document: Document) -> int | None:
    """Return the line of the file that is this line of the document's text. Both start at 1.

    In the file, front matter may be above the text. If the file was changed, the line is the only
    one with the same text; None if there is not exactly one.
    """
    texts = _split_lines(document.content)
    if not 0 < line <= len(texts):
        return None
    above = len(lines) - len(texts)
    if above >= 0 and lines[above:] == texts:
        return above + line
    wanted_text = texts[line - 1]
    return lines.index(wanted_text) + 1 if wanted_text.strip() and lines.count(wanted_text) == 1 else None


def _split_lines(text: str) -> list[str]:
    """Return the lines of a text as editors count them."""
    return [line.removesuffix("\r") for line in text.split("\n")]
