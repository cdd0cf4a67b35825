"""A conflict on a terminal: what the two sides made of the base, texts hunk by hunk."""

from __future__ import annotations

from collections.abc import Iterator

from vmrag_link import terminal_text, worddiff
from vmrag_link.cli import output
from vmrag_link.cli.base import title_beside
from vmrag_link.errors import plural
from vmrag_link.merging.conflicts import (
    COLLECTION,
    DOCUMENT,
    PROJECT,
    Choices,
    Conflict,
    hunk_field,
    key_field,
    markers,
)
from vmrag_link.merging.rows import CELLS, CONTENT, METADATA, metadata_value
from vmrag_link.merging.text import Hunk, Labels
from vmrag_link.models import Collection, RevisionInfo, Row, json_text, text_of
from vmrag_link.ops.merge.resolve import ConflictRow
from vmrag_link.ops.merge.sides import LastChanges

COLOURS = {"delete": "red", "insert": "green"}
_MOST_LINES = 40
"""Lines of one side that are shown."""


def lines(row: ConflictRow, labels: Labels) -> Iterator[str]:
    """All that is in conflict in one row."""
    conflict = row.conflict
    yield heading(row)
    if conflict.is_whole:
        yield from _whole_lines(conflict, labels)
        return
    for field in conflict.fields:
        if field == CONTENT:
            for number in range(1, len(conflict.hunks) + 1):
                yield from hunk_lines(row, number, labels)
        elif field == METADATA:
            for key in conflict.keys:
                yield from field_lines(row, key_field(key), labels)
        else:
            yield from field_lines(row, field, labels)


def heading(row: ConflictRow) -> str:
    conflict = row.conflict
    title = getattr(conflict.ours or conflict.theirs, "title", "")
    return f"{output.style(row.id, bold=True)}{title_beside(conflict.doc_id, title)}"


def change_lines(changes: LastChanges, labels: Labels) -> Iterator[str]:
    """Who changed the row on each side, when, and why."""
    for label, change in zip(_sides(labels), (changes.ours, changes.theirs), strict=True):
        if change:
            yield output.style(f"  {label}: {_described(change)}", dim=True)


def hunk_lines(row: ConflictRow, number: int, labels: Labels) -> Iterator[str]:
    """A hunk of the text, word by word."""
    hunk = row.conflict.hunks[number - 1]
    of = f" of {len(row.conflict.hunks)}" if len(row.conflict.hunks) > 1 else ""
    yield f"  hunk {number}{of}, line {hunk.line}{_decided(row.choices, hunk_field(hunk), CONTENT)}"
    for label, version in zip(_sides(labels), (hunk.ours, hunk.theirs), strict=True):
        yield from _change(label, hunk.base, version)


def field_lines(row: ConflictRow, field: str, labels: Labels) -> Iterator[str]:
    """A field, or `metadata.KEY`, word by word."""
    conflict = row.conflict
    yield f"  {field}{_decided(row.choices, field, field.partition('.')[0])}"
    base, ours, theirs = (_value(version, field) for version in (conflict.base, conflict.ours, conflict.theirs))
    for label, version in zip(_sides(labels), (ours, theirs), strict=True):
        yield from _change(label, base, version)


def template(row: ConflictRow, labels: Labels) -> str:
    """What an editor opens with: the text with what is decided, the rest between markers with the
    base.
    """
    conflict = row.conflict
    if conflict.is_whole:
        ours, theirs, base = (text_of(each) for each in (conflict.ours, conflict.theirs, conflict.base))
        return markers(conflict, labels).between(ours, theirs, base=base)
    found = markers(conflict, labels)  # looks at all of the texts
    undecided = {hunk.key: found.between(hunk.ours, hunk.theirs, base=hunk.base) for hunk in conflict.hunks}
    return conflict.text(row.choices, undecided=undecided)


def hunk_template(row: ConflictRow, hunk: Hunk, labels: Labels) -> str:
    return markers(row.conflict, labels).between(hunk.ours, hunk.theirs, base=hunk.base)


def _whole_lines(conflict: Conflict, labels: Labels) -> Iterator[str]:
    field = "metadata" if conflict.fields == (PROJECT,) else CONTENT
    for label, version in zip(_sides(labels), (conflict.ours, conflict.theirs), strict=True):
        if version is None:
            yield f"  {label}: removed it"
        elif conflict.fields == (COLLECTION,):
            yield f"  {label}: keeps it, with {plural(conflict.documents, 'document')}"
        elif conflict.fields in ((DOCUMENT,), (PROJECT,)):
            yield from _change(label, _value(conflict.base, field), _value(version, field))


def _sides(labels: Labels) -> tuple[str, str]:
    """What a person has to type, and what it is."""
    return f"ours ({labels.ours})", f"theirs ({labels.theirs})"


def _change(label: str, base: str, version: str) -> list[str]:
    text = worddiff.render(worddiff.cut(worddiff.difference(base, version)), style=_style)
    shown = list(terminal_text.lines(text))
    if len(shown) > _MOST_LINES:
        half = _MOST_LINES // 2
        shown = [*shown[:half], f"… {plural(len(shown) - 2 * half, 'line')} …", *shown[-half:]]
    return [f"    {label}:", *(f"      {line}" for line in shown)]


def _style(op: str, text: str) -> str:
    return output.style(text, fg=COLOURS.get(op))


def _decided(choices: Choices, part: str, field: str) -> str:
    choice = choices.get(part) or choices.get(field)
    return f"  (decided: {choice.take})" if choice else ""


def _described(info: RevisionInfo) -> str:
    subject = info.message.partition("\n")[0]
    return f"{info.revision[:7]} {info.author}, {info.date[:10]}: {subject}"


def _value(row: Row | None, field: str) -> str:
    if row is None:
        return ""
    if field.startswith(f"{METADATA}."):
        return metadata_value(row, field.removeprefix(f"{METADATA}."))
    values = [getattr(row, name) for name in CELLS[type(row)][field]]
    if not isinstance(row, Collection):
        return str(values[0])  # what else is in the cell follows from it
    return json_text(values[0] if len(values) == 1 else values)
