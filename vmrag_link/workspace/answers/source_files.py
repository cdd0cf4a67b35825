"""The file that a document came from, if it lies on this machine, and the lines of its text there.

What is stored of a file was perhaps written by a stranger: nothing outside of the work tree, or of
the folder that this person imported, is looked at.
"""

from __future__ import annotations

import os
from pathlib import Path

from vmrag_link import terminal_text
from vmrag_link.conversion import formats
from vmrag_link.documents import import_base
from vmrag_link.documents.import_base import OUTSIDE, ROOT, ImportBase
from vmrag_link.git import configuration
from vmrag_link.models import WITHOUT_FILES, Collection, Document, DocumentHeader, Record
from vmrag_link.paths import Places, read_regular

MOST_BYTES = 4 << 20
"""Of a file that is read to find a line in it."""

_AS_WRITTEN = frozenset(each.file_type for each in formats.FORMATS if each.where == "here")


class SourcedDocument(Record, frozen=True):
    """A document that came from a file of the repository; `source`: the file, as `base` has it."""

    base: ImportBase
    source: str
    header: DocumentHeader


def base_of(places: Places, collection: Collection) -> ImportBase | None:
    """From where the sources count; None for a collection without files, or whose files are on
    another machine.
    """
    if collection.kind in WITHOUT_FILES or import_base.find_base_problem(collection.import_base or ROOT):
        return None
    if collection.import_base != OUTSIDE:
        return import_base.restore_base(collection.import_base or ROOT, import_base.locate_path(places.top))
    folder = configuration.read_import_folder(places, collection.name)
    return ImportBase(OUTSIDE, import_base.locate_path(folder), import_base.locate_path(places.top)) if folder else None


def shown_path(base: ImportBase, source: str) -> str:
    """A file's path on one line: below the root of the repository, or an absolute one."""
    return terminal_text.escape_line(str(base.folder / source) if base.recorded == OUTSIDE else source)


def source_file(places: Places, collection: Collection, document: Document) -> Path | None:
    """The file that a document came from; None if it came from none, or it is not here."""
    stored = document.source
    if not stored or "://" in stored or import_base.escapes_folder(stored):
        return None
    outside = collection.import_base == OUTSIDE
    folder = configuration.read_import_folder(places, collection.name) if outside else places.top
    if folder is None:
        return None
    root = Path(os.path.realpath(folder))
    path = Path(os.path.realpath(root / stored))
    own = (Path(os.path.realpath(each)) for each in (places.git_dir, places.common))
    if not path.is_relative_to(root) or any(path.is_relative_to(each) for each in own):
        return None
    try:
        return root / stored if path.is_file() else None
    except OSError:  # a name that the system refuses to look up
        return None


def written_lines(path: Path, document: Document, *, as_written: bool = False) -> list[str] | None:
    """The lines of a document's file; None if they are not those of the text, which was converted,
    or cannot be read. `as_written`: it is known that it was not.
    """
    if not as_written and document.file_type not in _AS_WRITTEN:
        return None
    try:
        return lines_of(read_regular(path, MOST_BYTES))
    except OSError:
        return None


def lines_of(data: bytes) -> list[str] | None:
    """The lines of a file, without a byte order mark; None if it is not UTF-8, or has so many bytes
    that no line is looked for.
    """
    try:
        return _lines(data.decode("utf-8-sig")) if len(data) < MOST_BYTES else None
    except UnicodeDecodeError:
        return None


def line_of(line: int, lines: list[str], document: Document) -> int | None:
    """The line of the file that is this line of the document's text; both count from 1.

    Front matter stands above the text in the file. In a file that was changed since, the line is
    where the same text stands, if it stands there once.
    """
    texts = _lines(document.content)
    if not 0 < line <= len(texts):
        return None
    above = len(lines) - len(texts)
    if above >= 0 and lines[above:] == texts:
        return above + line
    sought = texts[line - 1]
    return lines.index(sought) + 1 if sought.strip() and lines.count(sought) == 1 else None


def _lines(text: str) -> list[str]:
    """As editors count them."""
    return [line.removesuffix("\r") for line in text.split("\n")]
