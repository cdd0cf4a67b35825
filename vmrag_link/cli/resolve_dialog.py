"""`vmrag resolve` on a terminal: show each conflict, and ask about each part of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vmrag_link import terminal_text, worddiff
from vmrag_link.cli import editor, output
from vmrag_link.cli.base import format_title
from vmrag_link.errors import ContentRefused, plural, quoted
from vmrag_link.merging.choices import Choices
from vmrag_link.merging.conflicts import (
    COLLECTION,
    DOCUMENT,
    PROJECT,
    Conflict,
    Decision,
    build_markers,
    name_hunk_field,
    name_hunk_part,
    name_key_field,
)
from vmrag_link.merging.rows import CELLS, CONTENT, METADATA, format_metadata_value
from vmrag_link.merging.text import Hunk, Labels, Take
from vmrag_link.models import Collection, RevisionInfo, Row, format_json, read_text
from vmrag_link.ops.resolve import resolve
from vmrag_link.ops.resolve.resolve import ConflictRow, ResolveReport
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.merge.sides import LastChanges

_SIDES: dict[str, Take] = {"o": "ours", "t": "theirs", "b": "union"}


class OpenPart(NamedTuple):
    """An open part of a conflict: `field`, or the hunk with this number."""

    row: ConflictRow
    field: str
    hunk: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        """A value that stays the same while the conflict does."""
        return self.row.id, self.field, self.row.conflict.hunks[self.hunk - 1].key if self.hunk else ""

    def format_option(self, side: Take) -> str:
        """Return the option of `vmrag resolve` that decides this part."""
        return f"--hunk {self.hunk}={side}" if self.hunk else f"--field {quoted(f'{self.field}={side}')}"


def run_dialog(ws: Workspace, report: ResolveReport, names: Sequence[str]) -> ResolveReport:
    """Ask about one part after the other, and store each answer, until the user stops.

    An answer can also settle other parts, and end the merge, so the open parts are read again each
    time.
    """
    skipped: set[tuple[str, str, str]] = set()
    drafts: dict[tuple[str, str, str], str] = {}
    shown_id = ""
    while questions := [open_part for open_part in list_open_parts(report, names) if open_part.key not in skipped]:
        question = questions[0]
        skipped.add(question.key)
        if question.row.id != shown_id:
            shown_id = question.row.id
            _print_heading(ws, report, question.row)
        output.print_lines(_format_part(question, report))
        answer = _ask_side(question, f"({len(skipped)} of {len(skipped) + len(questions) - 1})")
        if answer == "q":
            break
        if answer in ("e", "w"):
            try:
                report = _edit_part(ws, report, question, drafts, whole=answer == "w") or report
            except ContentRefused as refused:
                skipped.discard(question.key)
                output.print_warning(
                    f"{refused.message} ({answer} edits the text as you left it.) {refused.hint}", "error:", fg="red"
                )
        elif answer in _SIDES:
            part = name_hunk_part(question.hunk) if question.hunk else question.field
            report = resolve.resolve(ws, [question.row.id], Decision(parts={part: _SIDES[answer]}))
    return report


def list_open_parts(report: ResolveReport, names: Sequence[str] = ()) -> Iterator[OpenPart]:
    """Return the parts without a decision of these conflicts, by default of all."""
    for row in report.conflicts:
        if names and row.id not in names:
            continue
        for field in row.open:
            if field == CONTENT and row.conflict.hunks:
                open_keys = {open_hunk.key for open_hunk in row.conflict.list_open_hunks(row.choices)}
                for number, hunk in enumerate(row.conflict.hunks, 1):
                    if hunk.key in open_keys:
                        yield OpenPart(row, field, number)
            elif field == METADATA and row.conflict.keys:
                parts = map(name_key_field, row.conflict.keys)
                yield from (OpenPart(row, part) for part in parts if part not in row.choices)
            else:
                yield OpenPart(row, field)


def _print_heading(ws: Workspace, report: ResolveReport, row: ConflictRow) -> None:
    changes = resolve.find_last_changes(ws, report, row)
    output.print_lines([format_heading(row), *format_changes(changes, report.labels)])


def _format_part(question: OpenPart, report: ResolveReport) -> Iterator[str]:
    row = question.row
    labels = report.labels
    if question.hunk:
        yield from format_hunk(row, question.hunk, labels)
    elif row.conflict.is_whole:
        yield from list(format_conflict(row, labels))[1:]
    else:
        yield from format_field(row, question.field, labels)


def _ask_side(question: OpenPart, count: str) -> str:
    offers = {"o": "[o]urs", "t": "[t]heirs"}
    if question.hunk:
        offers |= {"b": "[b]oth", "e": "[e]dit", "w": "edit the [w]hole text"}
    elif question.field == DOCUMENT:
        offers |= {"e": "[e]dit"}
    offers |= {"s": "[s]kip", "q": "[q]uit"}
    return output.ask_choice(f"{count} {', '.join(offers.values())}", list(offers))


def _edit_part(
    ws: Workspace, report: ResolveReport, question: OpenPart, drafts: dict[tuple[str, str, str], str], *, whole: bool
) -> ResolveReport | None:
    """Resolve a hunk or the whole text in an editor; None if nothing was changed.

    A refused text becomes the draft of the next attempt, so that the user does not type it again.
    """
    row = question.row
    labels = report.labels
    hunk = None if whole or not question.hunk else question.hunk
    draft = (row.id, question.field, "" if hunk is None else str(hunk))
    template = (
        format_conflict_template(row, labels)
        if hunk is None
        else format_hunk_template(row, row.conflict.hunks[hunk - 1], labels)
    )
    name = f"conflict{editor.find_suffix(row.conflict.doc_id)}"
    text = editor.edit_text(ws.places, drafts.get(draft) or template, name=name)
    if text is None:
        return None
    drafts[draft] = text
    return resolve.resolve(ws, [row.id], Decision(text=text, hunk=hunk, edited=True))


COLOURS = {"delete": "red", "insert": "green"}
_MAX_SIDE_LINES = 40
"""Maximum number of lines of one side."""


def format_conflict(row: ConflictRow, labels: Labels) -> Iterator[str]:
    """Yield the lines of all conflicts in one row."""
    conflict = row.conflict
    yield format_heading(row)
    if conflict.is_whole:
        yield from _whole_lines(conflict, labels)
        return
    for field in conflict.fields:
        if field == CONTENT:
            for number in range(1, len(conflict.hunks) + 1):
                yield from format_hunk(row, number, labels)
        elif field == METADATA:
            for key in conflict.keys:
                yield from format_field(row, name_key_field(key), labels)
        else:
            yield from format_field(row, field, labels)


def format_heading(row: ConflictRow) -> str:
    conflict = row.conflict
    title = getattr(conflict.ours or conflict.theirs, "title", "")
    return f"{output.style_text(row.id, bold=True)}{format_title(conflict.doc_id, title)}"


def format_changes(changes: LastChanges, labels: Labels) -> Iterator[str]:
    """Yield who changed the row on each side, when, and why."""
    for label, change in zip(_name_sides(labels), (changes.ours, changes.theirs), strict=True):
        if change:
            yield output.style_text(f"  {label}: {_describe_revision(change)}", dim=True)


def format_hunk(row: ConflictRow, number: int, labels: Labels) -> Iterator[str]:
    """Yield the lines of a hunk of the text, word by word."""
    hunk = row.conflict.hunks[number - 1]
    of = f" of {len(row.conflict.hunks)}" if len(row.conflict.hunks) > 1 else ""
    yield f"  hunk {number}{of}, line {hunk.line}{_describe_decision(row.choices, name_hunk_field(hunk), CONTENT)}"
    for label, version in zip(_name_sides(labels), (hunk.ours, hunk.theirs), strict=True):
        yield from _describe_change(label, hunk.base, version)


def format_field(row: ConflictRow, field: str, labels: Labels) -> Iterator[str]:
    """Yield the lines of a field, or of `metadata.KEY`, word by word."""
    conflict = row.conflict
    yield f"  {field}{_describe_decision(row.choices, field, field.partition('.')[0])}"
    base, ours, theirs = (_format_value(version, field) for version in (conflict.base, conflict.ours, conflict.theirs))
    for label, version in zip(_name_sides(labels), (ours, theirs), strict=True):
        yield from _describe_change(label, base, version)


def format_conflict_template(row: ConflictRow, labels: Labels) -> str:
    """Return the text for an editor.

    Open parts are between markers, with the base.
    """
    conflict = row.conflict
    if conflict.is_whole:
        ours, theirs, base = (read_text(row_side) for row_side in (conflict.ours, conflict.theirs, conflict.base))
        return build_markers(conflict, labels).format_conflict(ours, theirs, base=base)
    marked = build_markers(conflict, labels)  # looks at all of the texts
    undecided = {hunk.key: marked.format_conflict(hunk.ours, hunk.theirs, base=hunk.base) for hunk in conflict.hunks}
    return conflict.build_text(row.choices, undecided=undecided)


def format_hunk_template(row: ConflictRow, hunk: Hunk, labels: Labels) -> str:
    return build_markers(row.conflict, labels).format_conflict(hunk.ours, hunk.theirs, base=hunk.base)


def _whole_lines(conflict: Conflict, labels: Labels) -> Iterator[str]:
    field = "metadata" if conflict.fields == (PROJECT,) else CONTENT
    for label, version in zip(_name_sides(labels), (conflict.ours, conflict.theirs), strict=True):
        if version is None:
            yield f"  {label}: removed it"
        elif conflict.fields == (COLLECTION,):
            yield f"  {label}: keeps it, with {plural(conflict.documents, 'document')}"
        elif conflict.fields in ((DOCUMENT,), (PROJECT,)):
            yield from _describe_change(label, _format_value(conflict.base, field), _format_value(version, field))


def _name_sides(labels: Labels) -> tuple[str, str]:
    """Return the answers that the user can type, and their meanings."""
    return f"ours ({labels.ours})", f"theirs ({labels.theirs})"


def _describe_change(label: str, base: str, version: str) -> list[str]:
    text = worddiff.render_pieces(worddiff.cut_equal_text(worddiff.diff_words(base, version)), style=_style_op)
    lines = list(terminal_text.split_lines(text))
    if len(lines) > _MAX_SIDE_LINES:
        half = _MAX_SIDE_LINES // 2
        lines = [*lines[:half], f"… {plural(len(lines) - 2 * half, 'line')} …", *lines[-half:]]
    return [f"    {label}:", *(f"      {line}" for line in lines)]


def _style_op(op: str, text: str) -> str:
    return output.style_text(text, fg=COLOURS.get(op))


def _describe_decision(choices: Choices, part: str, field: str) -> str:
    choice = choices.get(part) or choices.get(field)
    return f"  (decided: {choice.take})" if choice else ""


def _describe_revision(info: RevisionInfo) -> str:
    subject = info.message.partition("\n")[0]
    return f"{info.revision[:7]} {info.author}, {info.date[:10]}: {subject}"


def _format_value(row: Row | None, field: str) -> str:
    if row is None:
        return ""
    if field.startswith(f"{METADATA}."):
        return format_metadata_value(row, field.removeprefix(f"{METADATA}."))
    values = [getattr(row, name) for name in CELLS[type(row)][field]]
    if not isinstance(row, Collection):
        return str(values[0])  # the rest of the cell follows from it
    return format_json(values[0] if len(values) == 1 else values)
