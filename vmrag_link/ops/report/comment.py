"""What a comment on a pull request says of its report.

All sentences are ours, and all that is not is a code span: the data may be a stranger's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from vmrag_link.errors import plural
from vmrag_link.markdown_text import format_code, format_link
from vmrag_link.ops.report.comment_data import CommentAnswer, CommentChunk, CommentData, MissingThing
from vmrag_link.ops.report.wording import (
    count_citing_notes,
    describe_changed_answers,
    describe_new_and_removed,
    list_change_counts,
)

MARKER = "<!-- vmrag: what agents will be told -->"
"""The first line of every comment of ours, which nobody sees."""

MAX_LINES = 60
"""Of a comment."""

_OPEN, _FOLDED, _NAMED, _DOCUMENTS, _MISSING = 5, 4, 3, 6, 5
"""Of each that a comment shows: no more than `MOST_LINES` in all."""


def format_comment(
    data: CommentData,
    run: str,
    *,
    of_fork: bool = False,
    request: Literal["pull request", "merge request"] = "pull request",
    pull: str = "",
) -> str:
    """Markdown of at most `MOST_LINES` lines. `run`: the address of the job's run, on our own host,
    if it is known.

    `of_fork`: the data come from a job whose workflow a stranger could change. `request`: what the
    host calls it. `pull`: the command that merges the base branch, for a conflict of the pins.
    """
    if not data.compared:
        title, parts = "What agents will be told cannot be said", list[str]()
    elif data.pin_conflict and not data.has_changes:
        title, parts = f"This {request} conflicts with its base branch", []
    elif data.has_news:
        title = f"This {request} changes what agents will be told"
        parts = [_summary(data), *_answers(data), *_listed(data), *_note_lines(data), *_documents(data)]
    else:
        title = f"This {request} no longer changes what agents will be told"
        parts = [_summary(data), *_listed(data)]
    basis = ", ".join((f"As of {data.head[:12]}", *([format_link("its run has all of it", run)] if run else []))) + "."
    if of_fork:
        basis += " That ran in the fork's name: what it says is the fork's word."
    return (
        "\n\n".join((f"{MARKER}\n### {title}", *parts, *_pin_conflict(data, pull), *_things_missing(data), basis))
        + "\n"
    )


def _summary(data: CommentData) -> str:
    total = data.documents_changed.total
    kinds = [f"{number} {kind}" for kind, number in list_change_counts(data.documents_changed)]
    documents = f"{plural(total, 'document')} {'differs' if total == 1 else 'differ'}: {', '.join(kinds)}."
    listed = describe_new_and_removed(data.questions_added, data.questions_removed, "question")
    return " ".join((_questions(data), *listed, documents if kinds else "No document differs."))


def _questions(data: CommentData) -> str:
    if not data.questions:
        return "No questions were asked."
    asked = plural(data.questions, "question")
    if not data.total_answers:
        return f"{asked} asked: every answer stays as it is."
    return describe_changed_answers(data.answers_changed, data.answers_below, asked)


def _answers(data: CommentData) -> Iterator[str]:
    first = [answer for answer in data.answers if not answer.below]
    shown, folded = first[:_OPEN], [*first[_OPEN:], *(answer for answer in data.answers if answer.below)]
    if shown:
        yield "\n".join(line for each in shown for line in _answer_lines(each))
    if folded:
        lines = [f"- {format_code(each.question)}, {_place(each)}{_names(each)}" for each in folded[:_FOLDED]]
        more = data.total_answers - len(shown)
        yield _fold(plural(more, "more question"), lines, more)


def _answer_lines(answer: CommentAnswer) -> Iterator[str]:
    yield f"- {format_code(answer.question)}, {_place(answer)}:"
    yield f"  - before: {_told(answer.before)}"
    yield f"  - after: {_told(answer.after)}"


def _place(answer: CommentAnswer) -> str:
    how = "no longer as expected, " if answer.lacks else "further down: " if answer.below else ""
    return f"{how}first difference at place {answer.place}"


def _names(answer: CommentAnswer) -> str:
    """The documents there, if these are two."""
    before, after = (format_code(each.document) if each else "nothing" for each in (answer.before, answer.after))
    return f": {before} → {after}" if before != after else ""


def _told(chunk: CommentChunk | None) -> str:
    return f"{format_code(chunk.document)}: {format_code(chunk.text)}" if chunk else "nothing"


def _listed(data: CommentData) -> Iterator[str]:
    """Questions that are new or removed, in a line each."""
    lines = [
        f"- {what} {plural(total, 'question').partition(' ')[2]}: {', '.join(map(format_code, some[:_NAMED]))}"
        f"{f' and {total - _NAMED} more' if total > _NAMED else ''}"
        for what, total, some in (
            ("new", data.questions_added, data.added),
            ("removed", data.questions_removed, data.removed),
        )
        if some
    ]
    yield from ["\n".join(lines)] if lines else []


def _note_lines(data: CommentData) -> Iterator[str]:
    if data.notes:
        shown = [f"{format_code(note.name)} cites {format_code(note.place)}" for note in data.notes[:_NAMED]]
        more = data.notes_citing - len(shown)
        yield f"{count_citing_notes(data.notes_citing)}: {', '.join(shown)}{f' and {more} more' if more else ''}."


def _documents(data: CommentData) -> Iterator[str]:
    if data.documents:
        lines = [
            f"- {document.kind}: {f'{format_code(document.old_name)} → ' if document.old_name else ''}{format_code(document.name)}"
            for document in data.documents[:_DOCUMENTS]
        ]
        total = data.documents_changed.total
        yield _fold(plural(total, "document"), lines, total)


def _fold(title: str, lines: Sequence[str], total: int) -> str:
    rest = [f"- and {total - len(lines)} more"] if total > len(lines) else []
    return "\n".join((f"<details><summary>{title}</summary>", "", *lines, *rest, "", "</details>"))


_LACKS = {
    "EXPECTED": "{}, which questions should be answered by, and no longer are",
    "KNOWLEDGE_DROPPED": "knowledge that {} leaves out, and that was there before it",
    "PIN_REMOVED": "the pin, which {} removes",
    "PIN_MALFORMED": "a pin that can be read, in {}",
    "PIN_REVISION_MISSING": "the revision that {} pins, which nobody has pushed",
    "NOT_ON_REMOTE": "the revision that {} pins, which this repository does not have yet",
    "NOT_COMPARABLE": "the history that {} would be compared with",
    "LOSS_ACCEPTED": "knowledge that {} gives up as lost",
    "MOVED_BACK": "newer knowledge, behind which {} steps back",
}


def _pin_conflict(data: CommentData, pull: str) -> Iterator[str]:
    if data.pin_conflict:
        command = format_code(f"{pull or 'git merge BASE'} && git push")
        install = format_code("vmrag install")
        yield f"Only {format_code('.dolt-version')} conflicts with the base branch. After {install}, this merges it: {command}"


def _things_missing(data: CommentData) -> Iterator[str]:
    shown = data.missing[:_MISSING]
    if shown:
        lines = [f"- {_LACKS[each.code].format(_named(each))}" for each in shown]
        rest = [f"- and {data.things_missing - len(shown)} more"] if data.things_missing > len(shown) else []
        yield "\n".join(("Missing at the pin:", "", *lines, *rest))


def _named(thing: MissingThing) -> str:
    return format_code(thing.name if thing.code == "EXPECTED" else thing.name[:12])
