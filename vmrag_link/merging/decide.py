"""What a person says about a conflict, as the choices that settle it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from vmrag_link.errors import ContentRefused, UsageInvalid, plural, quoted
from vmrag_link.merging.conflicts import DOCUMENT, Choice, Conflict, hunk_field, key_field
from vmrag_link.merging.markers import Labels, Markers
from vmrag_link.merging.rows import CONTENT
from vmrag_link.merging.text import Hunk, Take
from vmrag_link.models import Record, text_of


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


def hunk_part(number: int | str) -> str:
    """How `Decision.parts` names the hunk with this number, from 1."""
    return f"{CONTENT}#{number}"


_HUNK = re.compile(hunk_part(r"(\d+)"))


def choices_of(conflict: Conflict, decision: Decision, labels: Labels) -> dict[str, Choice]:
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


def text_field(conflict: Conflict) -> str | None:
    """The field that a text decides: the content, or the whole document that one side removed."""
    return next((field for field in conflict.fields if field in (CONTENT, DOCUMENT)), None)


def markers(conflict: Conflict, labels: Labels) -> Markers:
    """Markers that no version of the text has."""
    texts = (text_of(row) for row in (conflict.base, conflict.ours, conflict.theirs))
    return Markers.apart_from(texts, labels)


def _parts(conflict: Conflict, name: str, take: Take) -> list[str]:
    if number := _HUNK.fullmatch(name):
        return [hunk_field(_hunk(conflict, int(number[1])))]
    known = [*conflict.fields, *map(key_field, conflict.keys)]
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
        return hunk_field(_hunk(conflict, hunk))
    field = text_field(conflict)
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
    left = markers(conflict, labels).find(decision.text, middle=decision.edited)
    if left:
        raise ContentRefused(
            f"Line {left[0]} of the text is still a conflict marker: {left[1]}",
            hint="Take out the lines of markers, and what should not stay of what is between them.",
            line=left[0],
        )
