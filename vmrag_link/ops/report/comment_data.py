"""The data that a comment on a pull request is written from.

A pull request of a fork is reported by a job that may write nothing, and commented on by another
one. What is handed over between them is a stranger's: read by its types and its sizes, and never a
sentence.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from itertools import takewhile
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from vmrag_link import terminal_text
from vmrag_link.errors import UsageInvalid
from vmrag_link.git.refs import COMMIT_NAME
from vmrag_link.models import Record
from vmrag_link.ops.report.rankings import shorten_name
from vmrag_link.ops.report.records import (
    AnswerChange,
    ComparedQueries,
    DocumentCounts,
    DocumentKind,
    ReportedChunk,
    ReportSummary,
)
from vmrag_link.ops.report.wording import name_document
from vmrag_link.ops.verify.verify_commits import Code

MAX_BYTES = 370_000
"""Of what is handed over: all of its texts as long as they may be, of four bytes each."""

_KEPT, _LISTED = 50, 10
"""Answers, documents and things that are missing; questions that are new or removed. Of more the
numbers are known.
"""

_NAME, _QUESTION, _EXCERPT, _BEFORE = 200, 200, 160, 40
"""Characters; `_BEFORE`: of an excerpt, before the first one that differs."""

Hash = Annotated[str, Meta(pattern=rf"\A{COMMIT_NAME}\Z")]
_Name = Annotated[str, Meta(max_length=_NAME)]
_Question = Annotated[str, Meta(max_length=_QUESTION)]
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

    question: _Question
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


class CommentNote(Record, frozen=True, forbid_unknown_fields=True):
    """A note and the first place that it cites and the pull request changes."""

    name: _Name
    place: _Name


class CommentData(Record, frozen=True, forbid_unknown_fields=True):
    """All that a comment on pull request `number` at its commit `head` says.

    `compared`: whether there was a report; without one only `missing` says something. `questions`:
    how many were asked of both, None if they could not be. Of `answers`, `added`, `removed`,
    `documents`, `notes` and `missing` there may be more: `answers_changed`, with those that change
    below only in `answers_below`, `questions_added`, `questions_removed`, `documents_changed`,
    `notes_citing` and `things_missing` count all. `pin_conflict`: git merges all files except the
    pin.
    """

    number: _Number
    head: Hash
    compared: bool = True
    questions: _Count | None = 0
    answers_changed: _Count = 0
    answers_below: _Count = 0
    answers: Annotated[tuple[CommentAnswer, ...], Meta(max_length=_KEPT)] = ()
    questions_added: _Count = 0
    added: Annotated[tuple[_Question, ...], Meta(max_length=_LISTED)] = ()
    questions_removed: _Count = 0
    removed: Annotated[tuple[_Question, ...], Meta(max_length=_LISTED)] = ()
    documents_changed: DocumentCounts = DocumentCounts()
    documents: Annotated[tuple[CommentDocument, ...], Meta(max_length=_KEPT)] = ()
    notes_citing: _Count = 0
    notes: Annotated[tuple[CommentNote, ...], Meta(max_length=_LISTED)] = ()
    things_missing: _Count = 0
    missing: Annotated[tuple[MissingThing, ...], Meta(max_length=_KEPT)] = ()
    pin_conflict: bool = False

    @property
    def has_news(self) -> bool:
        """Whether there is anything that people should be told."""
        return self.has_changes or self.pin_conflict or not self.compared

    @property
    def has_changes(self) -> bool:
        """Whether an answer or a document changes, or a note may be outdated."""
        return bool(self.total_answers or self.documents_changed.total or self.notes_citing)

    @property
    def total_answers(self) -> int:
        return self.answers_changed + self.answers_below

    def __post_init__(self) -> None:
        """Raises `ValueError` for numbers that are those of no report: a stranger's may be."""
        documents = self.documents_changed
        listed = tuple(map(len, (self.answers, self.documents, self.missing, self.added, self.removed, self.notes)))
        numbers = (
            self.total_answers,
            documents.total,
            self.things_missing,
            self.questions_added,
            self.questions_removed,
            self.notes_citing,
        )
        if min(documents.added, documents.changed, documents.moved, documents.removed) < 0:
            raise ValueError("a number below zero")
        if any(map(operator.gt, (*listed, self.total_answers), (*numbers, self.questions or 0))):
            raise ValueError("more is listed than counted")


# -- the data


def build_comment_data(number: int, summary: ReportSummary, head: str) -> CommentData:
    """Those of a report. The answers that lack something, and then the best places, come first."""
    queries = summary.queries
    answers = sorted(queries.answers, key=lambda answer: (not answer.missing, answer.below, answer.place))
    missing = list(_missing(summary))
    return CommentData(
        number,
        head,
        questions=None if queries.not_compared else queries.compared,
        answers_changed=queries.answered_otherwise,
        answers_below=queries.below,
        answers=tuple(_comment_answer(change, queries) for change in answers[:_KEPT]),
        questions_added=len(queries.added),
        added=tuple(_cut(each.query, _QUESTION) for each in queries.added[:_LISTED]),
        questions_removed=len(queries.removed),
        removed=tuple(_cut(each.query, _QUESTION) for each in queries.removed[:_LISTED]),
        documents_changed=summary.counts,
        documents=tuple(
            CommentDocument(document.kind, _cut(name_document(document), _NAME), _cut(document.shown_old_name, _NAME))
            for document in summary.documents[:_KEPT]
        ),
        notes_citing=len(summary.citing),
        notes=tuple(
            CommentNote(_cut(note.path, _NAME), _cut(note.places[0], _NAME)) for note in summary.citing[:_LISTED]
        ),
        things_missing=len(missing),
        missing=tuple(missing[:_KEPT]),
    )


def build_without_report(number: int, head: str, why: Code) -> CommentData:
    """Those of a head whose knowledge cannot be had, because its pin is at fault."""
    return CommentData(number, head, compared=False, things_missing=1, missing=(MissingThing(why, head),))


def parse_comment_data(content: bytes) -> CommentData:
    """What a job wrote of such data as JSON, or a stranger. Raises `UsageInvalid`."""
    flaw = f"more than {MAX_BYTES} bytes"
    if len(content) <= MAX_BYTES:
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
    for name in dict.fromkeys(name for answer in summary.queries.answers for name in answer.missing):
        yield MissingThing("EXPECTED", _cut(summary.queries.shown_name_of(name), _NAME))


def _comment_answer(change: AnswerChange, queries: ComparedQueries) -> CommentAnswer:
    before, after = (
        excerpt and replace(excerpt, document=_cut(shorten_name(excerpt.document, queries), _NAME))
        for excerpt in _excerpts(change.before, change.after)
    )
    return CommentAnswer(
        _cut(change.query, _QUESTION), change.place, before, after, lacks=bool(change.missing), below=change.below
    )


def _excerpts(
    before: ReportedChunk | None, after: ReportedChunk | None
) -> tuple[CommentChunk | None, CommentChunk | None]:
    """From a little before the first difference on, if both are texts of one document."""
    one, other = (" ".join(each.text.split()) if each else "" for each in (before, after))
    start = 0
    if before and after and before.document == after.document and one != other:
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
        start = max(0, alike - _BEFORE)
        start = one.find(" ", start, alike) + 1 or start if start else 0  # at a word that both have
    return _chunk(before, one, start), _chunk(after, other, start)


def _chunk(told: ReportedChunk | None, text: str, start: int) -> CommentChunk | None:
    return CommentChunk(told.document, _excerpt(text, start)) if told else None


def _excerpt(text: str, start: int) -> str:
    return ("…" if start else "") + _cut(text[start:], _EXCERPT)


def _cut(text: str, most: int) -> str:
    return terminal_text.cut_text(terminal_text.escape_controls(text), most)  # halves of surrogate pairs are no JSON
