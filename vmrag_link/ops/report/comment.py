"""What a pull request's comment says of its report, and the data that it is written from.

A pull request of a fork is reported by a job that may write nothing, and commented on by another
one. What is handed over between them is a stranger's: data, read by its types and its sizes, and
never a sentence. All sentences are ours, and all that is not is a code span.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vmrag_link import terminal_text
from vmrag_link.errors import UsageInvalid, plural
from vmrag_link.git.heads import COMMIT_NAME
from vmrag_link.markdown_text import code, link
from vmrag_link.models import Record
from vmrag_link.ops.checks.verify_commits import Code
from vmrag_link.ops.report.records import AnswerChange, DocumentCounts, DocumentKind, ReportSummary, ToldChunk
from vmrag_link.ops.report.wording import counted

MARKER = "<!-- vmrag: what agents will be told -->"
"""The first line of every comment of ours, which nobody sees."""

MOST_BYTES = 250_000
"""Of what is handed over."""

MOST_LINES = 60
"""Of a comment."""

_KEPT = 50
"""Answers, documents and things that are missing; of more the numbers are known."""

_OPEN, _FOLDED, _DOCUMENTS, _MISSING = 5, 6, 10, 5
"""Of each that a comment shows: no more than `MOST_LINES` in all."""

_NAME, _QUESTION, _EXCERPT, _BEFORE = 200, 200, 160, 40
"""Characters; `_BEFORE`: of an excerpt, before the first one that differs."""

Hash = Annotated[str, Meta(pattern=rf"\A{COMMIT_NAME}\Z")]
_Name = Annotated[str, Meta(max_length=_NAME)]
_Count = Annotated[int, Meta(ge=0, le=10**9)]
_Number = Annotated[int, Meta(ge=1, le=2**53)]


class CommentChunk(Record, frozen=True, forbid_unknown_fields=True):
    """What stands at a place of an answer; `text` begins near what differs."""

    document: _Name
    text: Annotated[str, Meta(max_length=_EXCERPT + 2)]


class CommentAnswer(Record, frozen=True, forbid_unknown_fields=True):
    """A question whose answer changes, as `records.AnswerChange`. `lacks`: something that is
    expected, and that it had.
    """

    question: Annotated[str, Meta(max_length=_QUESTION)]
    place: _Number
    before: CommentChunk | None
    after: CommentChunk | None
    lacks: bool = False
    below: bool = False


class CommentDocument(Record, frozen=True, forbid_unknown_fields=True):
    kind: DocumentKind
    name: _Name
    old_name: _Name = ""


class MissingThing(Record, frozen=True, forbid_unknown_fields=True):
    """What is not there at the pin: what a finding of `vmrag verify` says of a commit, or
    `EXPECTED`, the document that a question should be answered by. `name`: the commit or document.
    """

    code: Code | Literal["EXPECTED"]
    name: _Name


class CommentData(Record, frozen=True, forbid_unknown_fields=True):
    """All that a comment on pull request `number` at its commit `head` says.

    `compared`: whether there was a report; without one only `missing` says something. `questions`:
    how many were asked, None if they could not be. Of `answers`, `documents` and `missing` there
    may be more: `answers_changed`, with those that change below only in `answers_below`,
    `documents_changed` and `things_missing` count all.
    """

    number: _Number
    head: Hash
    compared: bool = True
    questions: _Count | None = 0
    answers_changed: _Count = 0
    answers_below: _Count = 0
    answers: Annotated[tuple[CommentAnswer, ...], Meta(max_length=_KEPT)] = ()
    documents_changed: DocumentCounts = DocumentCounts()
    documents: Annotated[tuple[CommentDocument, ...], Meta(max_length=_KEPT)] = ()
    things_missing: _Count = 0
    missing: Annotated[tuple[MissingThing, ...], Meta(max_length=_KEPT)] = ()

    @property
    def speaks(self) -> bool:
        """Whether there is anything that people should be told."""
        return bool(self.answers_in_all or self.documents_changed.total or not self.compared)

    @property
    def answers_in_all(self) -> int:
        return self.answers_changed + self.answers_below

    def __post_init__(self) -> None:
        """Raises `ValueError` for numbers that are those of no report: a stranger's may be."""
        documents = self.documents_changed
        numbers = (self.answers_in_all, documents.total, self.things_missing)
        listed = (len(self.answers), len(self.documents), len(self.missing))
        if min(documents.added, documents.changed, documents.moved, documents.removed) < 0:
            raise ValueError("a number below zero")
        if any(map(operator.gt, (*listed, self.answers_in_all), (*numbers, self.questions or 0))):
            raise ValueError("more is listed than counted")


# -- the data


def data_of(number: int, summary: ReportSummary, head: str) -> CommentData:
    """Those of a report. The answers that lack something, and then the best places, come first."""
    queries = summary.queries
    answers = sorted(queries.answers, key=lambda each: (not each.missing, each.below, each.place))
    below = sum(each.below for each in answers)
    missing = list(_missing(summary))
    return CommentData(
        number,
        head,
        questions=None if queries.not_compared else queries.total,
        answers_changed=len(answers) - below,
        answers_below=below,
        answers=tuple(map(_answer, answers[:_KEPT])),
        documents_changed=summary.counts,
        documents=tuple(
            CommentDocument(each.kind, _cut(each.name, _NAME), _cut(each.old_name, _NAME))
            for each in summary.documents[:_KEPT]
        ),
        things_missing=len(missing),
        missing=tuple(missing[:_KEPT]),
    )


def without_report(number: int, head: str, why: Code) -> CommentData:
    """Those of a head whose knowledge cannot be had, because its pin is at fault."""
    return CommentData(number, head, compared=False, things_missing=1, missing=(MissingThing(why, head),))


def parse(content: bytes) -> CommentData:
    """What a job wrote of such data as JSON, or a stranger. Raises `UsageInvalid`."""
    flaw = f"more than {MOST_BYTES} bytes"
    if len(content) <= MOST_BYTES:
        try:
            return msgspec.json.decode(content, type=CommentData)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            flaw = str(error)
    raise UsageInvalid(
        f"That is not the data of a comment: {flaw}.", hint="Let both workflows name one version: uses: …@SHA"
    )


def _missing(summary: ReportSummary) -> Iterator[MissingThing]:
    for finding in summary.findings:
        if finding.level == "error":
            yield MissingThing(finding.code, finding.commit)
    for name in dict.fromkeys(name for each in summary.queries.answers for name in each.missing):
        yield MissingThing("EXPECTED", _cut(name, _NAME))


def _answer(change: AnswerChange) -> CommentAnswer:
    before, after = _excerpts(change.before, change.after)
    return CommentAnswer(
        _cut(change.query, _QUESTION), change.place, before, after, lacks=bool(change.missing), below=change.below
    )


def _excerpts(before: ToldChunk | None, after: ToldChunk | None) -> tuple[CommentChunk | None, CommentChunk | None]:
    """From a little before the first difference on, if both are texts of one document."""
    one, other = (" ".join(each.text.split()) if each else "" for each in (before, after))
    start = 0
    if before and after and before.document == after.document and one != other:
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
        start = max(0, alike - _BEFORE)
        start = one.find(" ", start, alike) + 1 or start if start else 0  # at a word that both have
    return _chunk(before, one, start), _chunk(after, other, start)


def _chunk(told: ToldChunk | None, text: str, start: int) -> CommentChunk | None:
    return CommentChunk(_cut(told.document, _NAME), _excerpt(text, start)) if told else None


def _excerpt(text: str, start: int) -> str:
    return ("…" if start else "") + _cut(text[start:], _EXCERPT)


def _cut(text: str, most: int) -> str:
    shown = terminal_text.visible(text)  # halves of surrogate pairs are no JSON
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


# -- the text


def comment(data: CommentData, run: str, *, of_fork: bool = False) -> str:
    """Markdown of at most `MOST_LINES` lines. `run`: the address of the job's run, on our own host.

    `of_fork`: the data come from a job whose workflow a stranger could change.
    """
    if not data.compared:
        title, parts = "What agents will be told cannot be said", []
    elif data.speaks:
        title = "This pull request changes what agents will be told"
        parts = [_summary(data), *_answers(data), *_documents(data)]
    else:
        title = "This pull request no longer changes what agents will be told"
        parts = [_summary(data)]
    basis = f"As of {data.head[:12]}, {link('its run has all of it', run)}."
    if of_fork:
        basis += " That ran in the fork's name: what it says is the fork's word."
    return "\n\n".join((f"{MARKER}\n### {title}", *parts, *_things_missing(data), basis)) + "\n"


def _summary(data: CommentData) -> str:
    total = data.documents_changed.total
    kinds = [f"{number} {kind}" for kind, number in counted(data.documents_changed)]
    documents = f"{plural(total, 'document')} {_are(total, 'differs')}: {', '.join(kinds)}."
    return f"{_questions(data)} {documents if kinds else 'No document differs.'}"


def _questions(data: CommentData) -> str:
    if data.questions is None:
        return "No questions were asked."
    below, asked = data.answers_below, plural(data.questions, "question")
    if not data.answers_in_all:
        return f"{asked} asked: every answer stays as it is."
    if not data.answers_changed:
        return f"{asked} asked: every first answer stays as it is, {below} {_are(below, 'differs')} further down."
    more = f", {below} more {_are(below, 'differs')} further down" if below else ""
    return f"{data.answers_changed} of {asked} {_are(data.answers_changed, 'is')} answered otherwise{more}."


def _are(number: int, verb: str) -> str:
    return verb if number == 1 else {"is": "are", "differs": "differ"}[verb]


def _answers(data: CommentData) -> Iterator[str]:
    first = [each for each in data.answers if not each.below]
    shown, folded = first[:_OPEN], [*first[_OPEN:], *(each for each in data.answers if each.below)]
    if shown:
        yield "\n".join(line for each in shown for line in _answer_lines(each))
    if folded:
        lines = [f"- {code(each.question)}, {_place(each)}{_names(each)}" for each in folded[:_FOLDED]]
        more = data.answers_in_all - len(shown)
        yield _fold(plural(more, "more question"), lines, more)


def _answer_lines(answer: CommentAnswer) -> Iterator[str]:
    yield f"- {code(answer.question)}, {_place(answer)}:"
    yield f"  - before: {_told(answer.before)}"
    yield f"  - after: {_told(answer.after)}"


def _place(answer: CommentAnswer) -> str:
    how = "no longer as expected, " if answer.lacks else "further down: " if answer.below else ""
    return f"{how}first difference at place {answer.place}"


def _names(answer: CommentAnswer) -> str:
    """The documents there, if these are two."""
    before, after = (code(each.document) if each else "nothing" for each in (answer.before, answer.after))
    return f": {before} → {after}" if before != after else ""


def _told(chunk: CommentChunk | None) -> str:
    return f"{code(chunk.document)}: {code(chunk.text)}" if chunk else "nothing"


def _documents(data: CommentData) -> Iterator[str]:
    if data.documents:
        lines = [
            f"- {each.kind}: {f'{code(each.old_name)} → ' if each.old_name else ''}{code(each.name)}"
            for each in data.documents[:_DOCUMENTS]
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
    "STALE_DOCUMENT": "in {}, what the file of a document says by now",
    "MOVED_BACK": "newer knowledge, behind which {} steps back",
}


def _things_missing(data: CommentData) -> Iterator[str]:
    shown = data.missing[:_MISSING]
    if shown:
        lines = [f"- {_LACKS[each.code].format(_named(each))}" for each in shown]
        rest = [f"- and {data.things_missing - len(shown)} more"] if data.things_missing > len(shown) else []
        yield "\n".join(("Missing at the pin:", "", *lines, *rest))


def _named(thing: MissingThing) -> str:
    return code(thing.name if thing.code == "EXPECTED" else thing.name[:12])
