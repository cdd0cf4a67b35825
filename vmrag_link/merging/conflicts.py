"""The conflicts of a merge, and a person's decisions about them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from vmrag_link.merging import rows
from vmrag_link.merging.rows import CELLS, CONTENT, METADATA, R, merge_rows
from vmrag_link.merging.text import Hunk
from vmrag_link.models import Project, Record, Row, text_of

Side = Literal["ours", "theirs"]
DOCUMENT, COLLECTION, PROJECT = "document", "collection", "project"
"""The field of a conflict over a whole row, which one side removed and the other changed.

A collection counts with all its documents.
"""


class Choice(Record, frozen=True):
    """The result for one field in conflict, or for a part of it; `edited` takes `text`.

    `neither` is for the base that git makes of several: a value that equals neither side's.
    """

    take: Literal["ours", "theirs", "union", "edited", "neither"]
    text: str = ""


Choices = Mapping[str, Choice]
"""By field; by `content#KEY` for a hunk, by `metadata.KEY` for a key. A part's counts more than its
field's.
"""

Decisions = Mapping[str, Choices]
"""Choices by a conflict's id."""


class Conflict(Record, frozen=True):
    """A row that the sides changed differently, in `fields`; a side is None if the row does not
    exist.

    `doc_id` is empty for a collection's settings, `collection` for a project. `merged` is the row
    with everything merged except the conflicts. `documents`: their number in a collection that the
    other side removed. `hunks` of the content are in conflict, and `keys` of the metadata.
    """

    collection: str
    doc_id: str
    fields: tuple[str, ...]
    base: Row | None
    ours: Row | None
    theirs: Row | None
    merged: Row | None
    documents: int = 0
    hunks: tuple[Hunk, ...] = ()
    keys: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """A stable id: `COLLECTION/DOC_ID`, `COLLECTION/` for settings, `projects:ID`.

        No collection has a name with a colon.
        """
        is_project = isinstance(self.ours or self.theirs, Project)
        return project_conflict(self.doc_id) if is_project else f"{self.collection}/{self.doc_id}"

    def open(self, choices: Choices) -> tuple[str, ...]:
        """The fields without a decision, or with one for some of their parts only."""
        return tuple(field for field in self.fields if any(each not in choices for each in self._parts(field, choices)))

    def open_hunks(self, choices: Choices) -> tuple[Hunk, ...]:
        if CONTENT in choices:
            return ()
        return tuple(each for each in self.hunks if hunk_field(each) not in choices)

    def resolved(self, choices: Choices) -> Row | None:
        """The row that the choices make, None for no row; every field must be decided."""
        if self.is_whole:
            choice = choices[self.fields[0]]
            if choice.take in ("ours", "theirs"):
                return self.ours if choice.take == "ours" else self.theirs
            return _replaced(self.ours or self.theirs, self._whole(choice))
        row = self.merged
        for field in self.fields:
            row = _replaced(row, self._cell(row, field, choices))
        return row

    def text(self, choices: Choices, *, undecided: Mapping[str, str]) -> str:
        """The content with what is decided, and `undecided` hunks as these texts, by key."""
        if CONTENT in choices and choices[CONTENT].take == "edited":
            return choices[CONTENT].text
        texts = dict(undecided)
        for hunk in self.hunks:
            choice = choices.get(hunk_field(hunk)) or choices.get(CONTENT)
            if choice:
                texts[hunk.key] = _lines(hunk, choice)
        return rows.merge_content(self.base, self.ours, self.theirs).resolved(texts)

    @property
    def is_whole(self) -> bool:
        """Whether one side removed the row."""
        return self.fields in ((DOCUMENT,), (COLLECTION,), (PROJECT,))

    def _parts(self, field: str, choices: Choices) -> list[str]:
        """What must be decided for a field: it, or its parts."""
        if field in choices:
            return [field]
        hunks = [hunk_field(each) for each in self.hunks] if field == CONTENT else []
        return hunks or ([key_field(each) for each in self.keys] if field == METADATA else []) or [field]

    def _whole(self, choice: Choice) -> dict[str, Any]:
        from vmrag_link.merging.markers import both_texts

        field = CONTENT if self.fields == (DOCUMENT,) else METADATA
        if choice.take == "edited":
            return rows.content_cell(choice.text)
        if field == METADATA:
            return rows.neither_of_metadata(self.ours, self.theirs)
        return rows.content_cell(both_texts(*(text_of(each) for each in (self.ours, self.theirs))))

    def _cell(self, row: Row | None, field: str, choices: Choices) -> dict[str, Any]:
        assert row is not None  # noqa: S101  there is something to choose
        if field == CONTENT:
            return rows.content_cell(self.text(choices, undecided={}))
        if field == METADATA:
            return self._metadata(row, choices)
        choice = choices[field]
        if choice.take == "neither":
            return rows.neither(field, self.ours, self.theirs)
        side = self.ours if choice.take == "ours" else self.theirs
        return {name: getattr(side, name) for name in CELLS[type(row)][field]}

    def _metadata(self, row: Row, choices: Choices) -> dict[str, Any]:
        for key in self.keys:
            choice = choices.get(key_field(key)) or choices[METADATA]
            row = _replaced(row, rows.metadata_with(row, key, choice.take, self.ours, self.theirs))
        return {METADATA: row.metadata}


def project_conflict(project_id: str) -> str:
    """The id of a conflict over a project."""
    return f"projects:{project_id}"


def hunk_field(hunk: Hunk) -> str:
    return f"{CONTENT}#{hunk.key}"


def key_field(key: str) -> str:
    return f"{METADATA}.{key}"


def conflict_of(collection: str, doc_id: str, base: R | None, ours: R, theirs: R) -> tuple[Conflict, R]:
    """What is in conflict between two versions of a row, perhaps nothing, and the merged row."""
    row, fields, hunks, keys = merge_rows(base, ours, theirs)
    return Conflict(collection, doc_id, fields, base, ours, theirs, row, hunks=hunks, keys=keys), row


def decide_all(conflicts: Iterable[Conflict], choice: Choice) -> Decisions:
    """The same choice for everything that is in conflict."""
    return {each.id: dict.fromkeys(each.fields, choice) for each in conflicts}


def updated(choices: Choices, new: Choices) -> dict[str, Choice]:
    """The choices with later ones.

    One about a field replaces those about its parts. One about a hunk ends an edited text.
    """
    ended = {CONTENT} if any(each.startswith(f"{CONTENT}#") for each in new) and _is_edited(choices) else set()
    ended |= {each for each in choices for field in (CONTENT, METADATA) if field in new and each.startswith(field)}
    return {field: choice for field, choice in choices.items() if field not in ended} | dict(new)


def _is_edited(choices: Choices) -> bool:
    return CONTENT in choices and choices[CONTENT].take == "edited"


def _lines(hunk: Hunk, choice: Choice) -> str:
    from vmrag_link.merging.markers import both_texts

    if choice.take == "edited":
        return choice.text
    return both_texts(hunk.ours, hunk.theirs) if choice.take == "neither" else hunk.side(choice.take)


def _replaced(row: Row | None, values: dict[str, Any]) -> Row:
    assert row is not None  # noqa: S101  there is something to choose
    return msgspec.structs.replace(row, **values)
