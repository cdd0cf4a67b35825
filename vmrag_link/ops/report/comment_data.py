"""The data of a comment on a pull request.

One job, which may not write, reports on a pull request of a fork, and another job writes the
comment. The data that the first job passes on are untrusted. They are validated by type and size,
and contain no sentences.
"""

from __future__ import annotations

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
    AnswerText,
    ComparedQueries,
    DocumentCounts,
    DocumentKind,
    ReportSummary,
)
from vmrag_link.ops.report.wording import name_document
from vmrag_link.ops.verify.verify_commits import Code

MAX_BYTES = 370_000
"""Maximum size of the data: all texts with their maximum length, at four bytes for each character.
"""

_MAX_ITEMS = 50
"""Maximum number of answers, of documents and of missing things. The total numbers are also stored.
"""

_MAX_LISTED = 10
"""Maximum number of new questions, of removed ones and of notes."""

_MAX_NAME_CHARACTERS = 200
_MAX_QUESTION_CHARACTERS = 200
_MAX_EXCERPT_CHARACTERS = 160
_MAX_CONTEXT_CHARACTERS = 40
"""Maximum number of characters of an excerpt before its first difference."""

Hash = Annotated[str, Meta(pattern=rf"\A{COMMIT_NAME}\Z")]
_Name = Annotated[str, Meta(max_length=_MAX_NAME_CHARACTERS)]
_Question = Annotated[str, Meta(max_length=_MAX_QUESTION_CHARACTERS)]
_Count = Annotated[int, Meta(ge=0, le=10**9)]
_Number = Annotated[int, Meta(ge=1, le=2**53)]


class CommentChunk(Record, frozen=True, forbid_unknown_fields=True):
    """The chunk at a place of an answer. `text` begins near the first difference."""

    document: _Name
    text: Annotated[str, Meta(max_length=_MAX_EXCERPT_CHARACTERS + 2)]


class CommentAnswer(Record, frozen=True, forbid_unknown_fields=True):
    """A question whose answer changes (see `records.AnswerChange`)."""

    question: _Question
    place: _Number
    before: CommentChunk | None
    after: CommentChunk | None
    lacks: bool = False
    """True if the answer lost something that is expected."""
    below: bool = False


class CommentDocument(Record, frozen=True, forbid_unknown_fields=True):
    kind: DocumentKind
    name: _Name
    old_name: _Name = ""


class MissingThing(Record, frozen=True, forbid_unknown_fields=True):
    """Something that is missing at the pin."""

    code: Code | Literal["EXPECTED"]
    """The code of a finding of `vmrag verify` about a commit, or `EXPECTED` for an expected
    document.
    """
    name: _Name
    """The commit or the document."""


class CommentNote(Record, frozen=True, forbid_unknown_fields=True):
    """A note and the first changed place that it cites."""

    name: _Name
    place: _Name


class CommentData(Record, frozen=True, forbid_unknown_fields=True):
    """The data of a comment on pull request `number` at its commit `head`.

    The tuples contain only the first items. The fields before them contain the total numbers.
    """

    number: _Number
    head: Hash
    compared: bool = True
    """False if there is no report. Only `missing` has contents then."""
    questions: _Count | None = 0
    """Number of questions with answers at both places; None if the answers are unknown."""
    answers_changed: _Count = 0
    answers_below: _Count = 0
    """Number of answers that change only below their first place; the other ones are in
    `answers_changed`.
    """
    answers: Annotated[tuple[CommentAnswer, ...], Meta(max_length=_MAX_ITEMS)] = ()
    questions_added: _Count = 0
    added: Annotated[tuple[_Question, ...], Meta(max_length=_MAX_LISTED)] = ()
    questions_removed: _Count = 0
    removed: Annotated[tuple[_Question, ...], Meta(max_length=_MAX_LISTED)] = ()
    documents_changed: DocumentCounts = DocumentCounts()
    documents: Annotated[tuple[CommentDocument, ...], Meta(max_length=_MAX_ITEMS)] = ()
    notes_citing: _Count = 0
    notes: Annotated[tuple[CommentNote, ...], Meta(max_length=_MAX_LISTED)] = ()
    things_missing: _Count = 0
    missing: Annotated[tuple[MissingThing, ...], Meta(max_length=_MAX_ITEMS)] = ()
    pin_conflict: bool = False
    """True if git can merge all files except the pin."""

    @property
    def has_news(self) -> bool:
        """True if there is anything to report."""
        return self.has_changes or self.pin_conflict or not self.compared

    @property
    def has_changes(self) -> bool:
        """True if an answer or a document changes, or if a note may be outdated."""
        return bool(self.total_answers or self.documents_changed.total or self.notes_citing)

    @property
    def total_answers(self) -> int:
        return self.answers_changed + self.answers_below

    def __post_init__(self) -> None:
        """Raise `ValueError` for impossible numbers, because the data may be untrusted."""
        documents = self.documents_changed
        listed_and_counted = (
            (len(self.answers), self.total_answers),
            (len(self.documents), documents.total),
            (len(self.missing), self.things_missing),
            (len(self.added), self.questions_added),
            (len(self.removed), self.questions_removed),
            (len(self.notes), self.notes_citing),
            (self.total_answers, self.questions or 0),
        )
        if min(documents.added, documents.changed, documents.moved, documents.removed) < 0:
            raise ValueError("a number below zero")
        if any(listed > counted for listed, counted in listed_and_counted):
            raise ValueError("more is listed than counted")


def build_comment_data(number: int, summary: ReportSummary, head: str) -> CommentData:
    """Build the data of a report.

    Answers that lack something, and then the best places, come first.
    """
    queries = summary.queries
    answers = sorted(queries.answers, key=lambda answer: (not answer.missing, answer.below, answer.place))
    missing = list(_list_missing(summary))
    return CommentData(
        number,
        head,
        questions=None if queries.not_compared else queries.compared,
        answers_changed=queries.answered_otherwise,
        answers_below=queries.below,
        answers=tuple(_build_answer(change, queries) for change in answers[:_MAX_ITEMS]),
        questions_added=len(queries.added),
        added=tuple(_cut_text(query.query, _MAX_QUESTION_CHARACTERS) for query in queries.added[:_MAX_LISTED]),
        questions_removed=len(queries.removed),
        removed=tuple(_cut_text(query.query, _MAX_QUESTION_CHARACTERS) for query in queries.removed[:_MAX_LISTED]),
        documents_changed=summary.counts,
        documents=tuple(
            CommentDocument(
                document.kind,
                _cut_text(name_document(document), _MAX_NAME_CHARACTERS),
                _cut_text(document.shown_old_name, _MAX_NAME_CHARACTERS),
            )
            for document in summary.documents[:_MAX_ITEMS]
        ),
        notes_citing=len(summary.citing),
        notes=tuple(
            CommentNote(_cut_text(note.path, _MAX_NAME_CHARACTERS), _cut_text(note.places[0], _MAX_NAME_CHARACTERS))
            for note in summary.citing[:_MAX_LISTED]
        ),
        things_missing=len(missing),
        missing=tuple(missing[:_MAX_ITEMS]),
    )


def build_without_report(number: int, head: str, code: Code) -> CommentData:
    """Build the data of a head whose knowledge base is unavailable because of its pin."""
    return CommentData(number, head, compared=False, things_missing=1, missing=(MissingThing(code, head),))


def parse_comment_data(content: bytes) -> CommentData:
    """Parse the JSON of a job, which may be untrusted. Raises `UsageInvalid`."""
    flaw = f"more than {MAX_BYTES} bytes"
    if len(content) <= MAX_BYTES:
        try:
            return msgspec.json.decode(content, type=CommentData)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            flaw = str(error)
    raise UsageInvalid(
        f"invalid data of a comment: {flaw}.", hint="use the same version in both workflows, such as 'uses: …@SHA'"
    )


def _list_missing(summary: ReportSummary) -> Iterator[MissingThing]:
    for finding in summary.findings:
        if finding.level == "error":
            yield MissingThing(finding.code, finding.commit)
    for name in dict.fromkeys(name for answer in summary.queries.answers for name in answer.missing):
        yield MissingThing("EXPECTED", _cut_text(summary.queries.shown_name_of(name), _MAX_NAME_CHARACTERS))


def _build_answer(change: AnswerChange, queries: ComparedQueries) -> CommentAnswer:
    before, after = (
        excerpt and replace(excerpt, document=_cut_text(shorten_name(excerpt.document, queries), _MAX_NAME_CHARACTERS))
        for excerpt in _cut_excerpts(change.before, change.after)
    )
    return CommentAnswer(
        _cut_text(change.query, _MAX_QUESTION_CHARACTERS),
        change.place,
        before,
        after,
        lacks=bool(change.missing),
        below=change.below,
    )


def _cut_excerpts(
    before: AnswerText | None, after: AnswerText | None
) -> tuple[CommentChunk | None, CommentChunk | None]:
    """Cut both texts from a little before their first difference, if they are texts of one
    document.
    """
    text_before, text_after = (" ".join(chunk.text.split()) if chunk else "" for chunk in (before, after))
    start = 0
    if before and after and before.document == after.document and text_before != text_after:
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text_before, text_after, strict=False)))
        start = max(0, alike - _MAX_CONTEXT_CHARACTERS)
        start = text_before.find(" ", start, alike) + 1 or start if start else 0  # at a common word
    return _build_chunk(before, text_before, start), _build_chunk(after, text_after, start)


def _build_chunk(answer_chunk: AnswerText | None, text: str, start: int) -> CommentChunk | None:
    return CommentChunk(answer_chunk.document, _cut_excerpt(text, start)) if answer_chunk else None


def _cut_excerpt(text: str, start: int) -> str:
    return ("…" if start else "") + _cut_text(text[start:], _MAX_EXCERPT_CHARACTERS)


def _cut_text(text: str, max_characters: int) -> str:
    # JSON cannot contain halves of surrogate pairs.
    return terminal_text.cut_text(terminal_text.escape_controls(text), max_characters)
