"""Find deliberate records, and rank them before incidental mentions.

Records are notes, decision records, and the sections of READMEs and changelogs. Many pages mention
the words of a question in passing, and long pages win by their other words. So the score of a
record is raised, and the best two records get one of the first ranks if they answer about as well
as the best page. `bench/records.py` has the measurements.
"""

from __future__ import annotations

import enum
import heapq
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from vmrag_link.index import keywords
from vmrag_link.index.reader import IndexReader
from vmrag_link.models import COMPOUNDING, KNOWLEDGE
from vmrag_link.models import Collection as StoredCollection

FULL_FACTOR = 1000


class RecordKind(enum.Enum):
    """The kind of a record."""

    DECISION = "decision"
    """A note or a decision record."""

    CHANGES = "changes"
    """A changelog."""

    README = "readme"


class Favor(NamedTuple):
    """The advantage of a record over pages, in thousandths."""

    gain: int
    """The factor of the record's score."""

    near: int
    """The share of the best score from which the record gets one of the first ranks. A share above
    1000 is never reached.
    """


USUAL_FAVOR = {
    RecordKind.DECISION: Favor(1300, 500),
    RecordKind.CHANGES: Favor(1000, 1001),
    RecordKind.README: Favor(1100, 1001),
}
ASKED_FAVOR = {
    RecordKind.DECISION: Favor(2000, 350),
    RecordKind.CHANGES: Favor(1300, 350),
    RecordKind.README: Favor(1300, 350),
}
"""The advantage if the question asks for the kind: `why did we choose X`, `since which version`."""

SIMILAR_SCORE = 700
"""Minimum score of a second record for one of the first ranks, in thousandths of the best record's
score.
"""

_RESERVED_RANKS = 2
"""Number of records that can get one of the first ranks."""

FIRST_RANKS = 3

_MAX_TITLE_CHARS = 100
_LIST_ITEMS = ("- ", "* ", "+ ", "• ")

MAX_SHORT_RECORD_PASSAGES = 5
"""Maximum number of passages of a decision record or a note that is one thought, split at its
headings.
"""

MIN_TEXT_CHARS = 40
"""Minimum number of characters, apart from headings, of a passage that gains."""

EXCESS_DIVISOR = 10**7
"""Divisor of the part of a score above the best score. So the displayed scores stay at 1, in the
same order.
"""

PATTERNS = ("%notes/%", "%adr%", "%decision%", "readme%", "%change%", "%history%", "%news%", "%release%")
"""SQL patterns of paths that may be records. `find_record_kind` decides."""

_DECISIONS = r"^(?:docs?/)?notes/|(?:^|/)(?:adrs?|(?:[a-z]+[-_])?decisions?|(?:[a-z]+[-_])?decision[-_]records?)/|(?:^|/)adr[-_]?\d"
_CHANGES = r"(?:^|/)(?:change(?:s|[-_]?logs?)|history|news|release(?:s|[-_]?notes))(?:\.[a-z-]+)*$"
_PATHS = {
    RecordKind.DECISION: re.compile(_DECISIONS, re.IGNORECASE),
    RecordKind.CHANGES: re.compile(_CHANGES, re.IGNORECASE),
    RecordKind.README: re.compile(r"^readme(?:\.[a-z-]+)*$", re.IGNORECASE),  # only at the top of the repository
}

_AUTHORS = (
    r"\b(?:we|our|ours|us|decid\w+|decisions?|agreed?|chose|chosen|choose|policy"
    r"|wir|unser\w*|nous|notre|nos|nosotros|nuestr\w+)\b"
)
_CHANGE = (
    r"\b(?:(?:which|what|since) (?:version|release)|when (?:was|were|did|has|have)|what(?: i|')s new"
    r"|changed|changes|deprecated|dropped|introduced|removed|upgraded)\b|\b\d+\.\d"
)
_ASKS = {
    RecordKind.DECISION: re.compile(_AUTHORS),
    RecordKind.CHANGES: re.compile(_CHANGE),
    RecordKind.README: re.compile(_AUTHORS),
}


_NO_FOLDER = ("", ".")
"""Import bases of collections that people and agents wrote, because no folder was imported."""

_NAME = re.compile(r"(?:^|[-_])(?:notes|decisions|adrs?)$", re.IGNORECASE)


def holds_records(collection: StoredCollection) -> bool:
    """Return whether all documents of a collection are records: notes, and what agents stored."""
    if collection.kind == "chroma":
        return collection.import_base in _NO_FOLDER or _NAME.search(collection.name) is not None
    return collection.has_notes or collection.kind in (KNOWLEDGE, COMPOUNDING)


class PassageAddress(NamedTuple):
    """A passage by its document and number. Passages sort in the order of a collection."""

    collection: str
    doc_id: str
    number: int
    passages: int
    """The number of passages of the document."""

    @property
    def document(self) -> tuple[str, str]:
        return self.collection, self.doc_id


class RecordFinder:
    """Finds the records of an index. Each collection is read once."""

    def __init__(self, index: IndexReader) -> None:
        self._index = index
        self._kinds: dict[str, Mapping[int, RecordKind]] = {}

    def find_rows(self, collection: str, among: Iterable[int] | None) -> list[int]:
        """Return the rows of records in a collection that also has pages. `among`: only these
        rows.
        """
        kinds = self._find_kinds(collection)
        return [*kinds] if among is None or not kinds else [row for row in among if row in kinds]

    def promote_records(
        self, question: str, scores: Mapping[str, Mapping[int, int]], among: Mapping[str, Collection[int]] | None = None
    ) -> dict[int, int]:
        """Return new scores of the records among pages, by row.

        `scores`: the scores of all chunks, by collection and row. `among`: the rows that may be in
        the answer, None for all.
        """
        records: dict[int, RecordKind] = {}
        all_scores: dict[int, int] = {}
        for name, collection_scores in scores.items():
            all_scores |= collection_scores
            if holds_records(self._index.collections[name].collection):
                records |= dict.fromkeys(collection_scores, RecordKind.DECISION)
            else:
                kinds = self._find_kinds(name)
                records |= {row: kinds[row] for row in collection_scores if row in kinds}
        record_question = RecordQuestion(question)
        gained: dict[int, int] = {}
        if len(records) < len(all_scores):
            passages = {row: kind for row, kind in records.items() if self._has_answer(row)}
            gained = record_question.promote_rows(all_scores, passages, self._locate_passage)
        if not record_question.versions:
            return gained
        changes = [row for row, kind in records.items() if kind is RecordKind.CHANGES]
        return gained | self._promote_version(record_question, changes, all_scores | gained, among)

    def _find_kinds(self, collection: str) -> Mapping[int, RecordKind]:
        """Return the kinds of the rows of records; empty for a collection that has only records."""
        if collection not in self._kinds:
            kinds: dict[int, RecordKind] = {}
            if not holds_records(self._index.collections[collection].collection):
                for doc_id, rows in self._index.find_rows_like(collection, PATTERNS):
                    kind = find_record_kind(doc_id)
                    if kind:
                        kinds |= dict.fromkeys(rows, kind)
            self._kinds[collection] = kinds
        return self._kinds[collection]

    def _has_answer(self, row: int) -> bool:
        """Return whether a passage has text. The title, status and date of a record do not answer,
        although they contain words of the question.
        """
        return self._index.read_chunk(row).chunks == 1 or has_text(self._index.read_text(row))

    def _promote_version(
        self,
        record_question: RecordQuestion,
        changes: Iterable[int],
        scores: Mapping[int, int],
        among: Mapping[str, Collection[int]] | None,
    ) -> dict[int, int]:
        """Return the best score for the section of a changelog about a version of the question.

        The passage after it gets the next score, because a passage may have only the title.
        """
        titled = [row for row in changes if record_question.names_version(self._index.read_text(row))]
        if not titled:
            return {}
        row = min(titled, key=lambda row: (-scores[row], self._locate_passage(row)))
        highest = max(scores.values())
        promoted = {row: highest + 2}
        chunk = self._index.read_chunk(row)
        is_allowed = among is None or row + 1 in among[self._index.find_collection(row)]
        is_last = chunk.number + 1 == chunk.chunks
        if is_allowed and not is_last and not _begins_version(self._index.read_text(row + 1)):
            promoted[row + 1] = highest + 1
        return promoted

    def _locate_passage(self, row: int) -> PassageAddress:
        chunk = self._index.read_chunk(row)
        return PassageAddress(self._index.find_collection(row), chunk.doc_id, chunk.number, chunk.chunks)


def find_record_kind(doc_id: str) -> RecordKind | None:
    """Return the kind of record of a document by its path; None for a page."""
    return next((kind for kind, path in _PATHS.items() if path.search(doc_id)), None)


def has_text(passage: str) -> bool:
    """Return whether a passage in Markdown has more than headings and a few words."""
    lines = (line.strip() for line in passage.splitlines() if not line.startswith("#"))
    return sum(map(len, lines)) >= MIN_TEXT_CHARS


class RecordQuestion:
    """The advantages of records for one question."""

    def __init__(self, text: str) -> None:
        lower = text.lower()
        self.versions = [_version_pattern(number) for number in keywords.find_versions(text)]
        """Patterns of the versions of the question in a heading."""
        self._favors = {kind: (ASKED_FAVOR if _ASKS[kind].search(lower) else USUAL_FAVOR)[kind] for kind in RecordKind}

    def names_version(self, text: str) -> bool:
        """Return whether a section begins with a line that names a version of the question."""
        title = _first_line(text)
        return len(title) <= _MAX_TITLE_CHARS and any(version.search(title) for version in self.versions)

    def promote_rows(
        self, scores: Mapping[int, int], records: Mapping[int, RecordKind], locate: Callable[[int], PassageAddress]
    ) -> dict[int, int]:
        """Return the new scores of records among pages, by row.

        `scores`: the scores of records and pages. `locate` returns the passage of a row.
        """
        best = max(scores.values(), default=0)
        if best <= 0 or len(records) == len(scores):
            return {}
        favors = {row: self._favors[kind] for row, kind in records.items() if scores[row] > 0}
        passages = {row: locate(row) for row in favors}
        short_records = {
            row: passage.document
            for row, passage in passages.items()
            if records[row] is RecordKind.DECISION and passage.passages <= MAX_SHORT_RECORD_PASSAGES
        }
        gains = _share_best(
            {row: scores[row] * favor.gain // FULL_FACTOR for row, favor in favors.items()}, short_records
        )
        gained = {row: _compress_excess(gain, best) for row, gain in gains.items()}
        near = {row: passages[row] for row, favor in favors.items() if FULL_FACTOR * scores[row] >= favor.near * best}
        for rank, row in self._reserve_ranks(near, gained, scores):
            others = (score for other, score in {**scores, **gained}.items() if other != row)
            gained[row] = max(gained[row], heapq.nlargest(rank, others)[-1] + 1)
        return gained

    def _reserve_ranks(
        self, near: Mapping[int, PassageAddress], gained: Mapping[int, int], scores: Mapping[int, int]
    ) -> list[tuple[int, int]]:
        """Return the ranks that are reserved for records, each with the row of the record.

        `near`: the passages that are near enough to the best page. `gained`: their new scores.
        """
        best_by_document: dict[tuple[str, str], int] = {}
        for row in sorted(near, key=lambda row: (-gained[row], near[row])):
            best_by_document.setdefault(near[row].document, row)
        best = [*best_by_document.values()][:_RESERVED_RANKS]
        rows = [row for row in best if FULL_FACTOR * scores[row] >= SIMILAR_SCORE * scores[best[0]]]
        return list(enumerate(rows, start=FIRST_RANKS - len(rows) + 1))


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _begins_version(text: str) -> bool:
    """Return whether a passage begins with the title of a version, not with an item of a list."""
    title = _first_line(text)
    return bool(keywords.find_versions(title)) and not title.startswith(_LIST_ITEMS)


def _version_pattern(number: str) -> re.Pattern[str]:
    """Return a pattern for a version that is written with any number of zeros: 3.1, 3.1.0."""
    first, second, *others = number.split(".")
    while others and not int(others[-1]):
        others.pop()
    return re.compile(rf"(?<![\w.])[vV]?{re.escape('.'.join([first, second, *others]))}(?:\.0)*(?!\.?\w)")


def _share_best(scores: Mapping[int, int], short_records: Mapping[int, tuple[str, str]]) -> dict[int, int]:
    """Return scores in which each row of a short record has the mean of its score and the record's
    best score.

    `short_records`: the documents of these rows.
    """
    best: dict[tuple[str, str], int] = {}
    for row, document in short_records.items():
        best[document] = max(scores[row], best.get(document, 0))
    shared = {row: (scores[row] + best[document]) // 2 for row, document in short_records.items()}
    return {**scores, **shared}


def _compress_excess(score: int, best: int) -> int:
    """Return a score of which the part above the best score is divided by `EXCESS_DIVISOR`."""
    return score if score <= best else best + (score - best) // EXCESS_DIVISOR
