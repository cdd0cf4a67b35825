"""The conflicts of a merge, and a user's decisions about them, as the choices that resolve them.
Pure functions.
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
"""Field of a conflict about a whole row, which one side removed and the other changed.

A removed collection includes all its documents.
"""


class Conflict(Record, frozen=True):
    """A row that the sides changed differently. A side without the row has the value None."""

    collection: str
    """Empty for a project."""
    doc_id: str
    """Empty for the settings of a collection."""
    fields: tuple[str, ...]
    """The fields in conflict."""
    base: Row | None
    ours: Row | None
    theirs: Row | None
    merged: Row | None
    """The row with everything merged except the conflicts."""
    documents: int = 0
    """Number of documents in a collection that the other side removed."""
    hunks: tuple[Hunk, ...] = ()
    """The parts of the content in conflict."""
    keys: tuple[str, ...] = ()
    """The keys of the metadata in conflict."""

    @property
    def id(self) -> str:
        """A stable id: `COLLECTION/DOC_ID`, `COLLECTION/` for settings, `projects:ID`.

        A collection's name contains no colon.
        """
        is_project = isinstance(self.ours or self.theirs, Project)
        return format_project_id(self.doc_id) if is_project else f"{self.collection}/{self.doc_id}"

    def list_open_fields(self, choices: Choices) -> tuple[str, ...]:
        """Return the fields without a decision, or with decisions for only some of their parts."""
        return tuple(
            field for field in self.fields if any(part not in choices for part in self._list_parts(field, choices))
        )

    def list_open_hunks(self, choices: Choices) -> tuple[Hunk, ...]:
        """Return the hunks without a decision."""
        if CONTENT in choices:
            return ()
        return tuple(hunk for hunk in self.hunks if name_hunk_field(hunk) not in choices)

    def resolve_row(self, choices: Choices) -> Row | None:
        """Return the row that results from the choices, or None for a removed row. Every field must
        be decided.
        """
        if self.is_whole:
            choice = choices[self.fields[0]]
            if choice.take in ("ours", "theirs"):
                return self.ours if choice.take == "ours" else self.theirs
            return _replace_values(self.ours or self.theirs, self._build_whole_values(choice))
        row = self.merged
        for field in self.fields:
            row = _replace_values(row, self._build_values(row, field, choices))
        return row

    def build_text(self, choices: Choices, *, undecided: Mapping[str, str]) -> str:
        """Return the content with the decided hunks resolved. `undecided` has the texts for the
        other hunks, by key.
        """
        if CONTENT in choices and choices[CONTENT].take == "edited":
            return choices[CONTENT].text
        texts = dict(undecided)
        for hunk in self.hunks:
            choice = choices.get(name_hunk_field(hunk)) or choices.get(CONTENT)
            if choice:
                texts[hunk.key] = _resolve_hunk(hunk, choice)
        return rows.merge_content(self.base, self.ours, self.theirs).resolve_text(texts)

    @property
    def is_whole(self) -> bool:
        """True if one side removed the row."""
        return self.fields in ((DOCUMENT,), (COLLECTION,), (PROJECT,))

    def _list_parts(self, field: str, choices: Choices) -> list[str]:
        """Return the keys of `Choices` that must exist for a field: the field or all its parts."""
        parts: list[str] = []
        if field == CONTENT and field not in choices:
            parts = [name_hunk_field(hunk) for hunk in self.hunks]
        elif field == METADATA and field not in choices:
            parts = [name_key_field(key) for key in self.keys]
        return parts or [field]

    def _build_whole_values(self, choice: Choice) -> dict[str, Any]:
        field = CONTENT if self.fields == (DOCUMENT,) else METADATA
        if choice.take == "edited":
            return rows.make_content_values(choice.text)
        if field == METADATA:
            return rows.make_neither_metadata(self.ours, self.theirs)
        return rows.make_content_values(join_texts(read_text(self.ours), read_text(self.theirs)))

    def _build_values(self, row: Row | None, field: str, choices: Choices) -> dict[str, Any]:
        assert row is not None  # noqa: S101  a row in conflict exists
        if field == CONTENT:
            return rows.make_content_values(self.build_text(choices, undecided={}))
        if field == METADATA:
            return self._build_metadata_values(row, choices)
        choice = choices[field]
        if choice.take == "neither":
            return rows.make_neither_values(field, self.ours, self.theirs)
        side = self.ours if choice.take == "ours" else self.theirs
        return {name: getattr(side, name) for name in CELLS[type(row)][field]}

    def _build_metadata_values(self, row: Row, choices: Choices) -> dict[str, Any]:
        for key in self.keys:
            choice = choices.get(name_key_field(key)) or choices[METADATA]
            row = _replace_values(row, rows.set_metadata_key(row, key, choice.take, self.ours, self.theirs))
        return {METADATA: row.metadata}


def format_project_id(project_id: str) -> str:
    """Return the id of a conflict about a project."""
    return f"projects:{project_id}"


def name_hunk_field(hunk: Hunk) -> str:
    """Return the key of a hunk in `Choices`."""
    return f"{CONTENT}#{hunk.key}"


def name_key_field(key: str) -> str:
    """Return the key of a metadata key in `Choices`."""
    return f"{METADATA}.{key}"


def find_conflict(collection: str, doc_id: str, base: R | None, ours: R, theirs: R) -> tuple[Conflict, R]:
    """Return the conflict between two versions of a row, possibly without fields, and the merged
    row.
    """
    row, fields, hunks, keys = merge_rows(base, ours, theirs)
    return Conflict(
        collection=collection,
        doc_id=doc_id,
        fields=fields,
        base=base,
        ours=ours,
        theirs=theirs,
        merged=row,
        hunks=hunks,
        keys=keys,
    ), row


def decide_all(conflicts: Iterable[Conflict], choice: Choice) -> Decisions:
    """Return the same choice for everything that is in conflict."""
    return {conflict.id: dict.fromkeys(conflict.fields, choice) for conflict in conflicts}


def update_choices(choices: Choices, new: Choices) -> dict[str, Choice]:
    """Return the choices with new ones added.

    A choice for a field replaces those for its parts. A choice for a hunk replaces an edited text.
    """
    is_edited = CONTENT in choices and choices[CONTENT].take == "edited"
    replaced = {CONTENT} if is_edited and any(part.startswith(f"{CONTENT}#") for part in new) else set()
    replaced |= {part for part in choices for field in (CONTENT, METADATA) if field in new and part.startswith(field)}
    return {part: choice for part, choice in choices.items() if part not in replaced} | dict(new)


def _resolve_hunk(hunk: Hunk, choice: Choice) -> str:
    if choice.take == "edited":
        return choice.text
    return join_texts(hunk.ours, hunk.theirs) if choice.take == "neither" else hunk.get_side(choice.take)


def _replace_values(row: Row | None, values: dict[str, Any]) -> Row:
    assert row is not None  # noqa: S101  a row in conflict exists
    return msgspec.structs.replace(row, **values)


class Decision(Record, frozen=True):
    """A decision of a user about a conflict."""

    side: Take | None = None
    """The side for the whole conflict."""
    parts: Mapping[str, Take] = {}
    """The side for a field, for `metadata.KEY`, or for a hunk (`name_hunk_part`)."""
    text: str | None = None
    """The document's text, or that of the hunk with the number `hunk`."""
    hunk: int | None = None
    edited: bool = False
    """True if the text comes from an editor that showed the sides between markers."""


def name_hunk_part(number: int | str) -> str:
    """Return the key in `Decision.parts` of the hunk with this number, from 1."""
    return f"{CONTENT}#{number}"


_HUNK = re.compile(name_hunk_part(r"(\d+)"))


def convert_decision(conflict: Conflict, decision: Decision, labels: Labels) -> dict[str, Choice]:
    """Return the choices by field and part, for `Conflict.resolve_row`.

    `union` leaves out fields that are not texts. Raises `UsageInvalid` for a part that is not in
    conflict, and `ContentRefused` for a text that cannot be stored or contains a vmrag marker.
    """
    choices: dict[str, Choice] = {}
    if decision.side == "union":
        choices = {CONTENT: Choice("union")} if conflict.hunks else {}
    elif decision.side:
        choices = {field: Choice(decision.side) for field in conflict.fields}
    for name, take in decision.parts.items():
        choices |= {part: Choice(take) for part in _list_named_parts(conflict, name, take)}
    if decision.text is not None:
        part = _find_text_part(conflict, decision.hunk)
        _require_storable(conflict, decision.text, labels, edited=decision.edited)
        choices[part] = Choice("edited", decision.text)
    return choices


def find_text_field(conflict: Conflict) -> str | None:
    """Return the field that a text decides: the content, or the whole document that one side
    removed. None if there is no such field.
    """
    return next((field for field in conflict.fields if field in (CONTENT, DOCUMENT)), None)


def build_markers(conflict: Conflict, labels: Labels) -> Markers:
    """Return markers that are in no version of the text."""
    texts = (read_text(row) for row in (conflict.base, conflict.ours, conflict.theirs))
    return Markers.from_texts(texts, labels)


def _list_named_parts(conflict: Conflict, name: str, take: Take) -> list[str]:
    if number := _HUNK.fullmatch(name):
        return [name_hunk_field(_get_hunk(conflict, int(number[1])))]
    names = [*conflict.fields, *map(name_key_field, conflict.keys)]
    if name not in names:
        raise UsageInvalid(
            f"the field {name!r} of {conflict.id} is not in conflict. Fields in conflict: {', '.join(names)}.",
            hint=f"run 'vmrag resolve {quoted(conflict.id)} --field {names[0]}=theirs'",
        )
    if take == "union" and not (name == CONTENT and conflict.hunks):
        raise UsageInvalid(
            f"{name!r} of {conflict.id} is not a text, so a union of both versions is not possible.",
            hint=f"run 'vmrag resolve {quoted(conflict.id)} --field {quoted(name)}=theirs'",
        )
    return [name]


def _get_hunk(conflict: Conflict, number: int) -> Hunk:
    if not 1 <= number <= len(conflict.hunks):
        raise UsageInvalid(
            f"the text of {conflict.id} has {plural(len(conflict.hunks), 'hunk')} in conflict, but not number {number}.",
            hint=f"run 'vmrag resolve --list {quoted(conflict.id)}' to list the conflicts",
        )
    return conflict.hunks[number - 1]


def _find_text_part(conflict: Conflict, hunk: int | None) -> str:
    if hunk is not None:
        return name_hunk_field(_get_hunk(conflict, hunk))
    field = find_text_field(conflict)
    if field is None:
        raise UsageInvalid(
            f"the text of {conflict.id} is not in conflict. Fields in conflict: {', '.join(conflict.fields)}.",
            hint=f"run 'vmrag resolve {quoted(conflict.id)} --field {conflict.fields[0]}=theirs'",
        )
    return field


def _require_storable(conflict: Conflict, text: str, labels: Labels, *, edited: bool) -> None:
    """Raise `ContentRefused` for a text with a NUL or a conflict marker."""
    if "\0" in text:
        raise ContentRefused(
            "the text contains a NUL character.", hint="remove it, because databases cannot store it exactly"
        )
    marker = build_markers(conflict, labels).find_marker(text, middle=edited)
    if marker:
        raise ContentRefused(
            f"line {marker.number} of the text is still a conflict marker: {marker.text}",
            hint="remove the lines with markers, and the lines between them that you do not want",
            line=marker.number,
        )
