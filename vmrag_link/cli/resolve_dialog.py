"""`vmrag resolve` on a terminal: one question for each hunk and each field in conflict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vmrag_link.cli import conflict_view, editing, output
from vmrag_link.errors import ContentRefused
from vmrag_link.merging.conflicts import DOCUMENT, Decision, hunk_part, key_field
from vmrag_link.merging.rows import CONTENT, METADATA
from vmrag_link.merging.text import Take
from vmrag_link.ops.merge import resolve
from vmrag_link.ops.merge.resolve import ConflictRow, ResolveReport
from vmrag_link.workspace import Workspace

_SIDES: dict[str, Take] = {"o": "ours", "t": "theirs", "b": "union"}


class OpenPart(NamedTuple):
    """About a part of a conflict: `field`, or the hunk with this number."""

    row: ConflictRow
    field: str
    hunk: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        """Stays the same while the conflict does."""
        return self.row.id, self.field, self.row.conflict.hunks[self.hunk - 1].key if self.hunk else ""


def ask(ws: Workspace, report: ResolveReport, wanted: Sequence[str]) -> ResolveReport:
    """Ask about one part after the other, and store each answer, until the person stops.

    An answer may settle others, too, and end the merge, so the open ones are read again each time.
    """
    asked: set[tuple[str, str, str]] = set()
    drafts: dict[tuple[str, str, str], str] = {}
    shown = ""
    while questions := [each for each in _questions(report, wanted) if each.key not in asked]:
        question = questions[0]
        asked.add(question.key)
        if question.row.id != shown:
            shown = question.row.id
            _print_heading(ws, report, question.row)
        output.print_lines(_lines(question, report))
        answer = _choose(question, f"({len(asked)} of {len(asked) + len(questions) - 1})")
        if answer == "q":
            break
        if answer in ("e", "w"):
            try:
                report = _edited(ws, report, question, drafts, whole=answer == "w") or report
            except ContentRefused as refused:
                asked.discard(question.key)
                output.complain(
                    f"{refused.message} ({answer} edits the text as you left it.) {refused.hint}", "error:", fg="red"
                )
        elif answer in _SIDES:
            part = hunk_part(question.hunk) if question.hunk else question.field
            report = resolve.resolve(ws, [question.row.id], Decision(parts={part: _SIDES[answer]}))
    return report


def _questions(report: ResolveReport, wanted: Sequence[str]) -> Iterator[OpenPart]:
    for row in report.conflicts:
        if wanted and row.id not in wanted:
            continue
        for field in row.open:
            if field == CONTENT and row.conflict.hunks:
                open_keys = {each.key for each in row.conflict.open_hunks(row.choices)}
                for number, hunk in enumerate(row.conflict.hunks, 1):
                    if hunk.key in open_keys:
                        yield OpenPart(row, field, number)
            elif field == METADATA and row.conflict.keys:
                parts = map(key_field, row.conflict.keys)
                yield from (OpenPart(row, each) for each in parts if each not in row.choices)
            else:
                yield OpenPart(row, field)


def _print_heading(ws: Workspace, report: ResolveReport, row: ConflictRow) -> None:
    changes = resolve.last_changes(ws, report, row)
    output.print_lines([conflict_view.heading(row), *conflict_view.change_lines(changes, report.labels)])


def _lines(question: OpenPart, report: ResolveReport) -> Iterator[str]:
    row, labels = question.row, report.labels
    if question.hunk:
        yield from conflict_view.hunk_lines(row, question.hunk, labels)
    elif row.conflict.is_whole:
        yield from list(conflict_view.lines(row, labels))[1:]
    else:
        yield from conflict_view.field_lines(row, question.field, labels)


def _choose(question: OpenPart, count: str) -> str:
    offers = {"o": "[o]urs", "t": "[t]heirs"}
    if question.hunk:
        offers |= {"b": "[b]oth", "e": "[e]dit", "w": "edit the [w]hole text"}
    elif question.field == DOCUMENT:
        offers |= {"e": "[e]dit"}
    offers |= {"s": "[s]kip", "q": "[q]uit"}
    return output.choose(f"{count} {', '.join(offers.values())}", list(offers))


def _edited(
    ws: Workspace, report: ResolveReport, question: OpenPart, drafts: dict[tuple[str, str, str], str], *, whole: bool
) -> ResolveReport | None:
    """What an editor makes of a hunk or of the whole text; None if nothing was changed.

    A refused text becomes the draft that the next attempt begins with: nobody types it again.
    """
    row, labels = question.row, report.labels
    hunk = None if whole or not question.hunk else question.hunk
    draft = (row.id, question.field, "" if hunk is None else str(hunk))
    if hunk is None:
        template = conflict_view.template(row, labels)
    else:
        template = conflict_view.hunk_template(row, row.conflict.hunks[hunk - 1], labels)
    text = editing.edited(ws, drafts.get(draft) or template, suffix=editing.suffix_of(row.conflict))
    if text is None:
        return None
    drafts[draft] = text
    return resolve.resolve(ws, [row.id], Decision(text=text, hunk=hunk, edited=True))
