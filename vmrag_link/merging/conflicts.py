"""The conflicts of a merge, and a person's decisions about them. Pure.

A row is merged cell by cell, as Dolt does. A text and its hash are one cell, and so are the parts
of an embedding. Times never conflict: the later one stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar, get_args

import msgspec

from vmrag_link.models import (
    Collection,
    Distance,
    Document,
    Entry,
    IssueLog,
    KnowledgeDoc,
    Project,
    Record,
    Row,
    canonical_json,
    content_hash,
)

Side = Literal["ours", "theirs"]
DOCUMENT, COLLECTION, PROJECT = "document", "collection", "project"
"""The field of a conflict over a whole row, which one side removed and the other changed.

A collection counts with all its documents. Issue logs and knowledge docs are documents, too.
"""

CELLS: Mapping[type, Mapping[str, tuple[str, ...]]] = {
    Document: {
        "title": ("title",),
        "content": ("content", "content_hash"),
        "metadata": ("metadata",),
        "source": ("source", "source_key"),
        "file_type": ("file_type",),
    },
    Collection: {
        "kind": ("kind",),
        "metadata": ("metadata",),
        "embedding": ("embedding_function", "embedding_model", "embedding_dimensions"),
        "distance": ("distance",),
        "chunking": ("chunking",),
        "import_base": ("import_base",),
    },
    Project: {"name": ("name",), "repository_url": ("repository_url",), "metadata": ("metadata",)},
    IssueLog: {
        "project_id": ("project_id",),
        "issue_number": ("issue_number",),
        "log_type": ("log_type",),
        "title": ("title",),
        "content": ("content", "content_hash"),
        "metadata": ("metadata",),
    },
    KnowledgeDoc: {
        "category": ("category",),
        "tool_name": ("tool_name",),
        "tool_version": ("tool_version",),
        "title": ("title",),
        "content": ("content", "content_hash"),
        "metadata": ("metadata",),
    },
}
_LATER: Mapping[type, tuple[str, ...]] = {
    Document: ("last_modified", "updated_at"),
    IssueLog: ("updated_at",),
    KnowledgeDoc: ("updated_at",),
}

R = TypeVar("R", bound=Row)


class Choice(Record, frozen=True):
    """The result for one field in conflict; `edited` takes `text` as the content of the document.

    `neither` is for the base that git makes of several: a value that equals neither side's.
    """

    take: Literal["ours", "theirs", "edited", "neither"]
    text: str = ""


Decisions = Mapping[str, Mapping[str, Choice]]
"""Choices by a conflict's id and its field."""


class Conflict(Record, frozen=True):
    """A row that the sides changed differently, in `fields`; a side is None if the row does not
    exist.

    `doc_id` is empty for a collection's settings, `collection` for an entry. `merged` is the row
    with everything merged except the conflicts. `documents`: their number in a collection that the
    other side removed.
    """

    collection: str
    doc_id: str
    fields: tuple[str, ...]
    base: Row | None
    ours: Row | None
    theirs: Row | None
    merged: Row | None
    documents: int = 0

    @property
    def id(self) -> str:
        """A stable id: `COLLECTION/DOC_ID`, `COLLECTION/` for settings, `TABLE:ID` for an entry.

        No collection has a name with a colon.
        """
        return f"{self.table}:{self.doc_id}" if self.table else f"{self.collection}/{self.doc_id}"

    @property
    def table(self) -> str:
        """The table of an entry; empty for documents and collections."""
        row = self.ours or self.theirs
        return row.key[0] if isinstance(row, Entry) else ""

    def open(self, choices: Mapping[str, Choice]) -> tuple[str, ...]:
        """The fields without a decision."""
        return tuple(field for field in self.fields if field not in choices)

    def resolved(self, choices: Mapping[str, Choice]) -> Row | None:
        """The row that the choices make, None for no row; every field must be decided."""
        if self.is_whole:
            choice = choices[self.fields[0]]
            if choice.take in ("ours", "theirs"):
                return self._side(choice)
            field = "content" if self.fields == (DOCUMENT,) else "metadata"
            return self._with(self.ours or self.theirs, field, choice)
        row = self.merged
        for field in self.fields:
            row = self._with(row, field, choices[field])
        return row

    @property
    def is_whole(self) -> bool:
        """Whether one side removed the row."""
        return self.fields in ((DOCUMENT,), (COLLECTION,), (PROJECT,))

    def _side(self, choice: Choice) -> Row | None:
        return self.ours if choice.take == "ours" else self.theirs

    def _with(self, row: Row | None, field: str, choice: Choice) -> Row:
        assert row is not None  # noqa: S101  there is something to choose
        if choice.take == "edited":
            values = _content(choice.text)
        elif choice.take == "neither":
            values = _neither(field, self.ours, self.theirs)
        else:
            side = self._side(choice)
            values = {name: getattr(side, name) for name in CELLS[type(row)][field]}
        return msgspec.structs.replace(row, **values)


def decide_all(conflicts: Iterable[Conflict], choice: Choice) -> Decisions:
    """The same choice for everything that is in conflict."""
    return {each.id: dict.fromkeys(each.fields, choice) for each in conflicts}


def both_texts(ours: str, theirs: str) -> str:
    """Between markers, as git writes them; a text without a final end of line gets one."""
    ours, theirs = (text if not text or text.endswith("\n") else text + "\n" for text in (ours, theirs))
    return f"{_OURS}\n{ours}=======\n{theirs}{_THEIRS}\n"


_OURS, _THEIRS = "<<<<<<< ours", ">>>>>>> theirs"


def find_marker(text: str, ours: str, theirs: str) -> tuple[int, str] | None:
    """The number and text of the first remaining line of `both_texts`, or None.

    Only lines with our labels count, and only if there are more of them than in the sides, because
    a text may be about conflicts. A line of seven `=` proves nothing: it also underlines headings.
    """
    allowed = {marker: sum(_lines(side).count(marker) for side in (ours, theirs)) for marker in (_OURS, _THEIRS)}
    for number, line in enumerate(_lines(text), 1):
        if line in allowed:
            allowed[line] -= 1
            if allowed[line] < 0:
                return number, line
    return None


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.split("\n")]


def _neither(field: str, ours: Row | None, theirs: Row | None) -> dict[str, Any]:
    """Values for a cell, made of both sides' and equal to neither; of their types, because they are
    read again.
    """
    name = "embedding_function" if field == "embedding" else field
    sides: list[Any] = ["" if row is None else getattr(row, name) for row in (ours, theirs)]
    left, right = sides
    match field:
        case "issue_number":
            return {name: max(each for each in sides if each != "") + 1}
        case "content":
            return _content(both_texts(left, right))
        case "metadata":
            return {name: canonical_json({"ours": left, "theirs": right})}
        case "distance":
            return {name: next(each for each in get_args(Distance) if each not in (left, right))}
        case "chunking":
            return {name: msgspec.structs.replace(left, size=left.size + right.size)}
    return {name: both_texts(left, right)}


def _content(text: str) -> dict[str, Any]:
    return {"content": text, "content_hash": content_hash(text)}


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
    for name in _LATER.get(kind, ()) if taken or conflicting else ():  # a time alone is no change
        taken[name] = max(getattr(ours, name), getattr(theirs, name))
    return msgspec.structs.replace(ours, **taken), tuple(conflicting)


def _cell(row: Row | None, names: tuple[str, ...]) -> tuple[Any, ...] | None:
    return None if row is None else tuple(getattr(row, name) for name in names)
