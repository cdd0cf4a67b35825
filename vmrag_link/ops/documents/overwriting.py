"""Refuse an import that would overwrite one file's document by another file's text.

An id is a path below the folder that was named, so two files may have the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vmrag_link.errors import DocumentExists, plural
from vmrag_link.models import Record

_SHOWN = 5


class Overwritten(Record, frozen=True):
    """A document of the file `source` that would get `file`'s text; paths as `Document.source`."""

    doc_id: str
    source: str
    file: str


def comes_from_another_file(top: Path, stored: str, read: str) -> bool:
    """Whether two sources are two files; a link to the same one is none.

    A document that came from no file has nothing to lose.
    """
    if not stored or not read or stored == read:
        return False
    try:
        return not (top / stored).samefile(top / read)
    except OSError:  # the stored one is gone: its text may be nowhere else
        return True


def overwriting_refusal(collection: str, overwritten: Sequence[Overwritten]) -> DocumentExists:
    """The error that names both files of each."""
    shown = "; ".join(
        f"{each.doc_id!r} comes from {each.source!r}, not from {each.file!r}" for each in overwritten[:_SHOWN]
    )
    more = f"; and {len(overwritten) - _SHOWN} more" if len(overwritten) > _SHOWN else ""
    number = plural(len(overwritten), "document")
    return DocumentExists(
        f"{number} of collection {collection!r} would be overwritten by another file's text: {shown}{more}.",
        hint="Import the folder that holds both files, or take another --collection. Add --replace if the new file is meant.",
        documents=[{"doc_id": each.doc_id, "source": each.source, "file": each.file} for each in overwritten],
    )
