"""Refuse an import that would overwrite one file's document by another file's text.

An id may be taken: by a document whose base was another folder then, or by one that moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vmrag_link.documents.import_base import ImportBase
from vmrag_link.errors import DocumentExists, plural
from vmrag_link.models import Document, Record

_SHOWN = 5


class Overwritten(Record, frozen=True):
    """A document of the file `source` that would get `file`'s text; paths as `Document.source`."""

    doc_id: str
    source: str
    file: str


def comes_from_another_file(base: ImportBase, stored: Document, read: str) -> bool:
    """Whether the source of a document and that of a file are two files; a link to the same one is
    none.

    A document that came from no file has nothing to lose.
    """
    for _, before in base.stored_sources([(stored.doc_id, stored.source)]):
        return before != read and not _same_file(base.origin / before, base.origin / read)
    return False


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # the stored one is gone: its text may be nowhere else
        return False


def overwriting_refusal(collection: str, overwritten: Sequence[Overwritten]) -> DocumentExists:
    """The error that names both files of each."""
    shown = "; ".join(
        f"{each.doc_id!r} comes from {each.source!r}, not from {each.file!r}" for each in overwritten[:_SHOWN]
    )
    more = f"; and {len(overwritten) - _SHOWN} more" if len(overwritten) > _SHOWN else ""
    number = plural(len(overwritten), "document")
    return DocumentExists(
        f"{number} of collection {collection!r} would be overwritten by another file's text: {shown}{more}.",
        hint="Take another --collection or another --base. Add --replace if the new file is meant.",
        documents=[{"doc_id": each.doc_id, "source": each.source, "file": each.file} for each in overwritten],
    )
