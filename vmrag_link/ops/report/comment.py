"""Format the comment on a pull request about its report.

All sentences are fixed texts, and everything else is in code spans, because the data may be
untrusted.
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
"""The first line of every comment of vmrag, which Markdown does not display."""

MAX_LINES = 60
"""Maximum number of lines of a comment."""

# The maximum number of items of each kind. With them, a comment has at most `MAX_LINES` lines.
_MAX_UNFOLDED_ANSWERS = 5
_MAX_FOLDED_ANSWERS = 4
_MAX_NAMES = 3
_MAX_DOCUMENTS = 6
_MAX_MISSING = 5


def format_comment(
    data: CommentData,
    run: str,
    *,
    of_fork: bool = False,
    request: Literal["pull request", "merge request"] = "pull request",
    pull: str = "",
) -> str:
    """Format the comment as Markdown of at most `MAX_LINES` lines.

    * `run`: the URL of the job's run on the host, if it is known.
    * `of_fork`: the data come from a job whose workflow an untrusted person could change.
    * `request`: what the host calls the pull request.
    * `pull`: the command that merges the base branch, for a conflict of the pins.
    """
    parts: list[str] = []
    if not data.compared:
        title = "Could not compare answers"
    elif data.pin_conflict and not data.has_changes:
        title = f"This {request} conflicts with its base branch"
    elif data.has_news:
        title = f"This {request} changes answers for agents"
        parts = [
            _format_summary(data),
            *_generate_answers(data),
            *_generate_listed(data),
            *_generate_notes(data),
            *_generate_documents(data),
        ]
    else:
        title = f"This {request} no longer changes answers for agents"
        parts = [_format_summary(data), *_generate_listed(data)]
    link = f", {format_link('see its run for details', run)}" if run else ""
    basis = f"As of {data.head[:12]}{link}."
    if of_fork:
        basis += " The fork's workflow computed this, so it is not verified."
    paragraphs = (
        f"{MARKER}\n### {title}",
        *parts,
        *_generate_pin_conflict(data, pull),
        *_generate_missing(data),
        basis,
    )
    return "\n\n".join(paragraphs) + "\n"


def _format_summary(data: CommentData) -> str:
    total = data.documents_changed.total
    kinds = [f"{number} {kind}" for kind, number in list_change_counts(data.documents_changed)]
    documents = f"{plural(total, 'document')} {'differs' if total == 1 else 'differ'}: {', '.join(kinds)}."
    listed = describe_new_and_removed(data.questions_added, data.questions_removed, "question")
    return " ".join((_format_questions(data), *listed, documents if kinds else "No document differs."))


def _format_questions(data: CommentData) -> str:
    if not data.questions:
        return "There are no golden queries."
    questions = plural(data.questions, "question")
    if not data.total_answers:
        return f"{questions} asked: no answer changes."
    return describe_changed_answers(data.answers_changed, data.answers_below, questions)


def _generate_answers(data: CommentData) -> Iterator[str]:
    important = [answer for answer in data.answers if not answer.below]
    unfolded = important[:_MAX_UNFOLDED_ANSWERS]
    folded = [*important[_MAX_UNFOLDED_ANSWERS:], *(answer for answer in data.answers if answer.below)]
    if unfolded:
        yield "\n".join(line for answer in unfolded for line in _generate_answer_lines(answer))
    if folded:
        lines = [
            f"- {format_code(answer.question)}, {_format_place(answer)}{_format_names(answer)}"
            for answer in folded[:_MAX_FOLDED_ANSWERS]
        ]
        more = data.total_answers - len(unfolded)
        yield _fold_lines(plural(more, "more question"), lines, more)


def _generate_answer_lines(answer: CommentAnswer) -> Iterator[str]:
    yield f"- {format_code(answer.question)}, {_format_place(answer)}:"
    yield f"  - before: {_format_chunk(answer.before)}"
    yield f"  - after: {_format_chunk(answer.after)}"


def _format_place(answer: CommentAnswer) -> str:
    change = "further down: " if answer.below else ""
    if answer.lacks:
        change = "no longer as expected, "
    return f"{change}first difference at place {answer.place}"


def _format_names(answer: CommentAnswer) -> str:
    """Return the two documents at the place; empty if they are equal."""
    before, after = (format_code(chunk.document) if chunk else "nothing" for chunk in (answer.before, answer.after))
    return f": {before} → {after}" if before != after else ""


def _format_chunk(chunk: CommentChunk | None) -> str:
    return f"{format_code(chunk.document)}: {format_code(chunk.text)}" if chunk else "nothing"


def _generate_listed(data: CommentData) -> Iterator[str]:
    """Yield a paragraph with a line for new questions and a line for removed ones."""
    lines = []
    for kind, total, questions in (
        ("new", data.questions_added, data.added),
        ("removed", data.questions_removed, data.removed),
    ):
        if questions:
            noun = plural(total, "question").partition(" ")[2]
            more = f" and {total - _MAX_NAMES} more" if total > _MAX_NAMES else ""
            lines.append(f"- {kind} {noun}: {', '.join(map(format_code, questions[:_MAX_NAMES]))}{more}")
    if lines:
        yield "\n".join(lines)


def _generate_notes(data: CommentData) -> Iterator[str]:
    if data.notes:
        citations = [f"{format_code(note.name)} cites {format_code(note.place)}" for note in data.notes[:_MAX_NAMES]]
        more = data.notes_citing - len(citations)
        yield f"{count_citing_notes(data.notes_citing)}: {', '.join(citations)}{f' and {more} more' if more else ''}."


def _generate_documents(data: CommentData) -> Iterator[str]:
    if data.documents:
        lines = []
        for document in data.documents[:_MAX_DOCUMENTS]:
            old_name = f"{format_code(document.old_name)} → " if document.old_name else ""
            lines.append(f"- {document.kind}: {old_name}{format_code(document.name)}")
        total = data.documents_changed.total
        yield _fold_lines(plural(total, "document"), lines, total)


def _fold_lines(title: str, lines: Sequence[str], total: int) -> str:
    rest = [f"- and {total - len(lines)} more"] if total > len(lines) else []
    return "\n".join((f"<details><summary>{title}</summary>", "", *lines, *rest, "", "</details>"))


_LACKS = {
    "EXPECTED": "{}, which answers should contain and no longer do",
    "KNOWLEDGE_DROPPED": "knowledge that {} drops",
    "PIN_REMOVED": "the pin, which {} removes",
    "PIN_MALFORMED": "a valid pin, in {}",
    "PIN_REVISION_MISSING": "the revision that {} pins, which was not pushed",
    "NOT_ON_REMOTE": "the revision that {} pins, which this repository does not have yet",
    "NOT_COMPARABLE": "the history that {} would be compared with",
    "LOSS_ACCEPTED": "knowledge whose loss {} accepts",
    "MOVED_BACK": "newer knowledge, from which {} moves back",
}


def _generate_pin_conflict(data: CommentData, pull: str) -> Iterator[str]:
    if data.pin_conflict:
        command = format_code(f"{pull or 'git merge BASE'} && git push")
        install = format_code("vmrag install")
        yield f"Only {format_code('.dolt-version')} conflicts with the base branch. After {install}, this merges it: {command}"


def _generate_missing(data: CommentData) -> Iterator[str]:
    things = data.missing[:_MAX_MISSING]
    if things:
        lines = [f"- {_LACKS[thing.code].format(_format_thing(thing))}" for thing in things]
        rest = [f"- and {data.things_missing - len(things)} more"] if data.things_missing > len(things) else []
        yield "\n".join(("Missing at the pin:", "", *lines, *rest))


def _format_thing(thing: MissingThing) -> str:
    return format_code(thing.name if thing.code == "EXPECTED" else thing.name[:12])
