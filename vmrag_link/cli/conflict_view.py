"""A conflict on a terminal: for each field what the two sides made of the base, word by word."""

from __future__ import annotations

from vmrag_link import terminal_text, worddiff
from vmrag_link.cli import output
from vmrag_link.errors import plural
from vmrag_link.merging.conflicts import CELLS, COLLECTION, PROJECT, both_texts
from vmrag_link.models import Collection, Row, json_text, text_of
from vmrag_link.ops.merge.resolve import ConflictRow

COLOURS = {"delete": "red", "insert": "green"}


def lines(row: ConflictRow) -> list[str]:
    conflict = row.conflict
    shown = [output.style(row.id, bold=True)]
    if conflict.is_whole:
        shows = "metadata" if conflict.fields == (PROJECT,) else "content"
        for side, version in (("ours", conflict.ours), ("theirs", conflict.theirs)):
            if version is None:
                shown.append(f"  {side}: removed it")
            elif conflict.fields == (COLLECTION,):
                shown.append(f"  {side}: keeps it, with {plural(conflict.documents, 'document')}")
            else:
                shown += _change_lines(side, _value(conflict.base, shows), _value(version, shows))
        return shown
    for field in conflict.fields:
        mark = "" if field in row.open else "  (decided)"
        shown.append(f"  {field}{mark}")
        for side, version in (("ours", conflict.ours), ("theirs", conflict.theirs)):
            shown += _change_lines(side, _value(conflict.base, field), _value(version, field))
    return shown


def template(row: ConflictRow) -> str:
    """What an editor opens with: both texts between markers, as git writes them."""
    ours, theirs = (text_of(each) for each in (row.conflict.ours, row.conflict.theirs))
    return both_texts(ours, theirs)


def _change_lines(side: str, base: str, version: str) -> list[str]:
    text = worddiff.render(worddiff.cut(worddiff.difference(base, version)), style=_style)
    return [f"    {side}:", *(f"      {line}" for line in terminal_text.lines(text))]


def _style(op: str, text: str) -> str:
    return output.style(text, fg=COLOURS.get(op))


def _value(row: Row | None, field: str) -> str:
    if row is None:
        return ""
    values = [getattr(row, name) for name in CELLS[type(row)][field]]
    if not isinstance(row, Collection):
        return str(values[0])  # what else is in the cell follows from it
    return json_text(values[0] if len(values) == 1 else values)
