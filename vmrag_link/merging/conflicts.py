"""What of a merge needs a person, and what the person decided. Pure.

A row is merged cell by cell, as Dolt does; a text and its hash are one cell, and so are the parts of an embedding. Times are no
reason for a conflict: the later one stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec

from vmrag_link.models import Collection, Document, Record, content_hash

Side = Literal["ours", "theirs"]
Row = Document | Collection

DOCUMENT, COLLECTION = "document", "collection"
"""The field of a conflict over a whole row: one side removed what the other changed."""

CELLS: Mapping[type, Mapping[str, tuple[str, ...]]] = {
    Document: {
        "title": ("title",),
        "content": ("content", "content_hash"),
        "metadata": ("metadata",),
        "source": ("source",),
        "source_key": ("source_key",),
        "file_type": ("file_type",),
    },
    Collection: {
        "kind": ("kind",),
        "metadata": ("metadata",),
        "embedding": ("embedding_function", "embedding_model", "embedding_dimensions"),
        "distance": ("distance",),
        "chunking": ("chunking",),
    },
}
_LATER = {Document: ("last_modified", "updated_at"), Collection: ()}

R = TypeVar("R", Document, Collection)


class Choice(Record, frozen=True):
    """What becomes of one field in conflict; `edited` takes `text` as the content of the document."""

    take: Literal["ours", "theirs", "edited"]
    text: str = ""


Decisions = Mapping[str, Mapping[str, Choice]]
"""Choices by a conflict's id and its field."""


class Conflict(Record, frozen=True):
    """A row that the sides changed differently, in `fields`; a side is None where the row does not exist.

    `doc_id` is empty for the settings of a collection. `merged` is the row with everything merged that is not in conflict.
    """

    collection: str
    doc_id: str
    fields: tuple[str, ...]
    base: Row | None
    ours: Row | None
    theirs: Row | None
    merged: Row | None

    @property
    def id(self) -> str:
        """The same in every run: `COLLECTION/DOC_ID`, and `COLLECTION/` for a collection's settings."""
        return f"{self.collection}/{self.doc_id}"

    def open(self, choices: Mapping[str, Choice]) -> tuple[str, ...]:
        """The fields that nobody has decided about."""
        return tuple(field for field in self.fields if field not in choices)

    def resolved(self, choices: Mapping[str, Choice]) -> Row | None:
        """The row that the choices make, None for no row; every field must be decided."""
        if self.fields in ((DOCUMENT,), (COLLECTION,)):
            choice = choices[self.fields[0]]
            if choice.take == "edited":
                return _with_text(self.ours or self.theirs, choice.text)
            return self.ours if choice.take == "ours" else self.theirs
        row = self.merged
        for field in self.fields:
            choice = choices[field]
            if choice.take == "edited":
                row = _with_text(row, choice.text)
            else:
                side = self.ours if choice.take == "ours" else self.theirs
                names = CELLS[type(row)][field]
                row = msgspec.structs.replace(row, **{name: getattr(side, name) for name in names})  # type: ignore[type-var]
        return row


def _with_text(row: Row | None, text: str) -> Document:
    assert isinstance(row, Document)  # noqa: S101  `edited` is a choice about a document's content
    return msgspec.structs.replace(row, content=text, content_hash=content_hash(text))


def merge_rows(base: R | None, ours: R, theirs: R) -> tuple[R, tuple[str, ...]]:
    """The merged row, ours where the sides conflict, and the fields in which they do."""
    kind = type(ours)
    taken: dict[str, Any] = {}
    conflicting = []
    for field, names in CELLS[kind].items():
        before, left, right = (_cell(row, names) for row in (base, ours, theirs))
        if right in (left, before):
            continue
        if left == before:
            taken |= dict(zip(names, right or (), strict=True))
        else:
            conflicting.append(field)
    for name in _LATER[kind] if taken or conflicting else ():  # a time alone is no change
        taken[name] = max(getattr(ours, name), getattr(theirs, name))
    return msgspec.structs.replace(ours, **taken), tuple(conflicting)


def _cell(row: Row | None, names: tuple[str, ...]) -> tuple[Any, ...] | None:
    return None if row is None else tuple(getattr(row, name) for name in names)
