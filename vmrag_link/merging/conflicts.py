"""The conflicts of a merge, and a person's decisions about them, as the choices that settle them.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from vmrag_link.errors import ContentRefused, UsageInvalid, plural, quoted
from vmrag_link.merging import rows
from vmrag_link.merging.choices import Choice, Choices, Decisions
from vmrag_link.merging.rows import CELLS, CONTENT, METADATA, R, merge_rows
from vmrag_link.merging.text import Hunk, Labels, Markers, Take, join_texts
from vmrag_link.models import Project, Record, Row, read_text

Side = Literal["ours", "theirs"]
DOCUMENT, COLLECTION, PROJECT = "document", "collection", "project"
"""The field of a conflict over a whole row, which one side removed and the other changed.

A collection counts with all its documents.
"""


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
        return format_project_id(self.doc_id) if is_project else f"{self.collection}/{self.doc_id}"

    def list_open_fields(self, choices: Choices) -> tuple[str, ...]:
        """The fields without a decision, or with one for some of their parts only."""
        return tuple(field for field in self.fields if any(part not in choices for part in self._parts(field, choices)))

    def list_open_hunks(self, choices: Choices) -> tuple[Hunk, ...]:
        if CONTENT in choices:
            return ()
        return tuple(hunk for hunk in self.hunks if name_hunk_field(hunk) not in choices)

    def resolve_row(self, choices: Choices) -> Row | None:
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

    def build_text(self, choices: Choices, *, undecided: Mapping[str, str]) -> str:
        """The content with what is decided, and `undecided` hunks as these texts, by key."""
        if CONTENT in choices and choices[CONTENT].take == "edited":
            return choices[CONTENT].text
        texts = dict(undecided)
        for hunk in self.hunks:
            choice = choices.get(name_hunk_field(hunk)) or choices.get(CONTENT)
            if choice:
                texts[hunk.key] = _lines(hunk, choice)
        return rows.merge_content(self.base, self.ours, self.theirs).resolve_text(texts)

    @property
    def is_whole(self) -> bool:
        """Whether one side removed the row."""
        return self.fields in ((DOCUMENT,), (COLLECTION,), (PROJECT,))

    def _parts(self, field: str, choices: Choices) -> list[str]:
        """What must be decided for a field: it, or its parts."""
        if field in choices:
            return [field]
        hunks = [name_hunk_field(hunk) for hunk in self.hunks] if field == CONTENT else []
        return hunks or ([name_key_field(key) for key in self.keys] if field == METADATA else []) or [field]

    def _whole(self, choice: Choice) -> dict[str, Any]:
        field = CONTENT if self.fields == (DOCUMENT,) else METADATA
        if choice.take == "edited":
            return rows.content_cell(choice.text)
        if field == METADATA:
            return rows.make_neither_metadata(self.ours, self.theirs)
        return rows.content_cell(join_texts(*(read_text(each) for each in (self.ours, self.theirs))))

    def _cell(self, row: Row | None, field: str, choices: Choices) -> dict[str, Any]:
        assert row is not None  # noqa: S101  there is something to choose
        if field == CONTENT:
            return rows.content_cell(self.build_text(choices, undecided={}))
        if field == METADATA:
            return self._metadata(row, choices)
        choice = choices[field]
        if choice.take == "neither":
            return rows.make_neither(field, self.ours, self.theirs)
        side = self.ours if choice.take == "ours" else self.theirs
        return {name: getattr(side, name) for name in CELLS[type(row)][field]}

    def _metadata(self, row: Row, choices: Choices) -> dict[str, Any]:
        for key in self.keys:
            choice = choices.get(name_key_field(key)) or choices[METADATA]
            row = _replaced(row, rows.set_metadata_key(row, key, choice.take, self.ours, self.theirs))
        return {METADATA: row.metadata}


def format_project_id(project_id: str) -> str:
    """The id of a conflict over a project."""
    return f"projects:{project_id}"


def name_hunk_field(hunk: Hunk) -> str:
    return f"{CONTENT}#{hunk.key}"


def name_key_field(key: str) -> str:
    return f"{METADATA}.{key}"


def find_conflict(collection: str, doc_id: str, base: R | None, ours: R, theirs: R) -> tuple[Conflict, R]:
    """What is in conflict between two versions of a row, perhaps nothing, and the merged row."""
    row, fields, hunks, keys = merge_rows(base, ours, theirs)
    return Conflict(collection, doc_id, fields, base, ours, theirs, row, hunks=hunks, keys=keys), row


def decide_all(conflicts: Iterable[Conflict], choice: Choice) -> Decisions:
    """The same choice for everything that is in conflict."""
    return {conflict.id: dict.fromkeys(conflict.fields, choice) for conflict in conflicts}


def update_choices(choices: Choices, new: Choices) -> dict[str, Choice]:
    """The choices with later ones.

    One about a field replaces those about its parts. One about a hunk ends an edited text.
    """
    ended = {CONTENT} if any(each.startswith(f"{CONTENT}#") for each in new) and _is_edited(choices) else set()
    ended |= {each for each in choices for field in (CONTENT, METADATA) if field in new and each.startswith(field)}
    return {field: choice for field, choice in choices.items() if field not in ended} | dict(new)


def _is_edited(choices: Choices) -> bool:
    return CONTENT in choices and choices[CONTENT].take == "edited"


def _lines(hunk: Hunk, choice: Choice) -> str:

    if choice.take == "edited":
        return choice.text
    return join_texts(hunk.ours, hunk.theirs) if choice.take == "neither" else hunk.get_side(choice.take)


def _replaced(row: Row | None, values: dict[str, Any]) -> Row:
    assert row is not None  # noqa: S101  there is something to choose
    return msgspec.structs.replace(row, **values)


class Decision(Record, frozen=True):
    """A side for all of a conflict, some `parts` of it, or a `text`.

    Parts are fields, `metadata.KEY`, and what `hunk_part` names. `text` is the document's, or that
    of the hunk with the number `hunk`. `edited`: it comes from an editor that was given the sides
    between markers.
    """

    side: Take | None = None
    parts: Mapping[str, Take] = {}
    text: str | None = None
    hunk: int | None = None
    edited: bool = False


def name_hunk_part(number: int | str) -> str:
    """How `Decision.parts` names the hunk with this number, from 1."""
    return f"{CONTENT}#{number}"


_HUNK = re.compile(name_hunk_part(r"(\d+)"))


def convert_decision(conflict: Conflict, decision: Decision, labels: Labels) -> dict[str, Choice]:
    """By field and part, as `Conflict.resolved` takes them.

    `union` leaves out what is no text. Raises `UsageInvalid` for what is not in conflict,
    `ContentRefused` for a text that cannot be stored or holds a marker of ours.
    """
    choices: dict[str, Choice] = {}
    if decision.side == "union":
        choices = {CONTENT: Choice("union")} if conflict.hunks else {}
    elif decision.side:
        choices = {field: Choice(decision.side) for field in conflict.fields}
    for name, take in decision.parts.items():
        choices |= {part: Choice(take) for part in _parts(conflict, name, take)}
    if decision.text is not None:
        part = _text_part(conflict, decision.hunk)
        _check_text(conflict, decision, labels)
        choices[part] = Choice("edited", decision.text)
    return choices


def find_text_field(conflict: Conflict) -> str | None:
    """The field that a text decides: the content, or the whole document that one side removed."""
    return next((field for field in conflict.fields if field in (CONTENT, DOCUMENT)), None)


def build_markers(conflict: Conflict, labels: Labels) -> Markers:
    """Markers that no version of the text has."""
    texts = (read_text(row) for row in (conflict.base, conflict.ours, conflict.theirs))
    return Markers.from_texts(texts, labels)


def _parts(conflict: Conflict, name: str, take: Take) -> list[str]:
    if number := _HUNK.fullmatch(name):
        return [name_hunk_field(_hunk(conflict, int(number[1])))]
    known = [*conflict.fields, *map(name_key_field, conflict.keys)]
    if name not in known:
        raise UsageInvalid(
            f"The field {name!r} of {conflict.id} is not in conflict; these are: {', '.join(known)}.",
            hint=f"vmrag resolve {quoted(conflict.id)} --field {known[0]}=theirs",
        )
    if take == "union" and not (name == CONTENT and conflict.hunks):
        raise UsageInvalid(
            f"{name!r} of {conflict.id} is no text of which both versions could stay.",
            hint=f"vmrag resolve {quoted(conflict.id)} --field {quoted(name)}=theirs",
        )
    return [name]


def _hunk(conflict: Conflict, number: int) -> Hunk:
    if not 1 <= number <= len(conflict.hunks):
        raise UsageInvalid(
            f"The text of {conflict.id} has {plural(len(conflict.hunks), 'hunk')} in conflict, none with the number {number}.",
            hint=f"vmrag resolve --list {quoted(conflict.id)}",
        )
    return conflict.hunks[number - 1]


def _text_part(conflict: Conflict, hunk: int | None) -> str:
    if hunk is not None:
        return name_hunk_field(_hunk(conflict, hunk))
    field = find_text_field(conflict)
    if field is None:
        raise UsageInvalid(
            f"The text of {conflict.id} is not in conflict; these fields are: {', '.join(conflict.fields)}.",
            hint=f"vmrag resolve {quoted(conflict.id)} --field {conflict.fields[0]}=theirs",
        )
    return field


def _check_text(conflict: Conflict, decision: Decision, labels: Labels) -> None:
    assert decision.text is not None  # noqa: S101  the caller has looked
    if "\0" in decision.text:
        raise ContentRefused("The text holds a NUL character.", hint="Remove it; no database stores it exactly.")
    left = build_markers(conflict, labels).find_marker(decision.text, middle=decision.edited)
    if left:
        raise ContentRefused(
            f"Line {left[0]} of the text is still a conflict marker: {left[1]}",
            hint="Take out the lines of markers, and what should not stay of what is between them.",
            line=left[0],
        )
