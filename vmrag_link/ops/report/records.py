"""The contents of a report, which compares two ends: git commits or revisions.

A `KnowledgeReport` has facts in a `ReportSummary`, and a `ReportedDocument` for each change, which
are read one by one. All texts may be untrusted: names, titles, messages, documents. Nothing is
escaped here; each format (terminal, Markdown, HTML) does it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from typing import Literal, Self

import msgspec

from vmrag_link.models import ChangeKind, Record
from vmrag_link.ops.check.thresholds import QualityHistory
from vmrag_link.ops.diff_queries import QueryDiff
from vmrag_link.ops.verify.verify_commits import PinFinding
from vmrag_link.sources.outdated import CitingNote
from vmrag_link.worddiff import Piece
from vmrag_link.workspace.history.diff import FileCounts
from vmrag_link.workspace.history.log import PinnedRevision
from vmrag_link.workspace.history.word_diff import Words

DocumentKind = Literal["added", "changed", "moved", "removed"]
"""`moved` means another id or collection, with the same text or at least half of its lines."""

KINDS: tuple[DocumentKind, ...] = ("added", "changed", "moved", "removed")
OPAQUE = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")
"""Ids without a meaning for people, such as those of libraries, issue logs and agents."""

_MAX_MEMORY_BYTES = 8 * 1024 * 1024
"""Maximum number of bytes of documents in memory. The others are in a file without a name."""

_LENGTH_BYTES = 8
"""Size of the number before each document in the file: the length of the document."""


class ReportEnd(Record, frozen=True):
    """An end of the comparison, by the `name` that the user gave."""

    name: str
    commit: str | None
    """The full hash of the git commit; None if the name is that of a revision."""
    revision: PinnedRevision | None
    """The pinned revision; None without a pin."""
    files: bool = False
    """True if files of the commit are documents."""

    @property
    def hash(self) -> str:
        """The hash of the commit, or else of the revision."""
        return self.commit or (self.revision.revision if self.revision else "")


class RevisionList(Record, frozen=True):
    """The newest of `total` revisions, newest first."""

    shown: tuple[PinnedRevision, ...] = ()
    total: int = 0


class Growth(Record, frozen=True):
    """A number before and after."""

    before: int
    after: int

    @property
    def grown(self) -> int:
        return self.after - self.before


class KnowledgeSize(Record, frozen=True):
    """The size of the knowledge base at both ends."""

    documents: Growth
    """Number of all documents, including files that are documents."""
    characters: Growth
    """Number of characters of the changed documents. The others are not read."""
    chunks: Growth | None = None
    """Number of chunks of the whole index. None if a revision has no index here, or if files are
    documents.
    """


class DocumentCounts(Record, frozen=True):
    """Numbers of documents."""

    added: int = 0
    changed: int = 0
    moved: int = 0
    removed: int = 0

    @property
    def total(self) -> int:
        return self.added + self.changed + self.moved + self.removed


class DocumentLine(Record, frozen=True):
    """A changed document, without its text."""

    number: int
    """The number in the order of the report, from 1."""
    kind: DocumentKind
    collection: str
    doc_id: str
    title: str
    old_collection: str
    """The former collection of a moved document; empty for others."""
    old_doc_id: str
    """The former id of a moved document; empty for others."""
    file: str
    """The path of the file that the document is, from the top of the repository; empty for a stored
    document.
    """
    words: Words
    characters: Growth
    """Number of characters of the text, 0 if the document does not exist."""
    path_name: str = ""
    """The printed form of `name`."""
    old_path_name: str = ""
    """The printed form of `old_name`."""

    @property
    def name(self) -> str:
        return f"{self.collection}/{self.doc_id}"

    @property
    def old_name(self) -> str:
        """The former name of a moved document; empty for others."""
        return f"{self.old_collection}/{self.old_doc_id}" if self.kind == "moved" else ""

    @property
    def shown_name(self) -> str:
        """Return the printed form of `name`."""
        return self.path_name or self.name

    @property
    def shown_old_name(self) -> str:
        """Return the printed form of `old_name`."""
        return self.old_path_name or self.old_name


class TextChange(Record, frozen=True):
    """A difference, word by word.

    Equal text far from a change is replaced by an `omitted` piece. A long difference is cut.
    """

    pieces: tuple[Piece, ...] = ()
    left_out: int = 0
    """Number of characters that were cut."""


class FieldChange(Record, frozen=True):
    """A changed field other than the text. Values other than texts are JSON."""

    name: str
    """The name of the field, such as `title` or `metadata`."""
    change: TextChange


class ReportedDocument(DocumentLine, frozen=True, kw_only=True):
    """A changed document with its differences."""

    fields: tuple[FieldChange, ...]
    """Fields of changed and moved documents."""
    text: TextChange
    """The change of the text. A new document is an insertion, and a removed one a deletion."""


class ReportedCollection(Record, frozen=True):
    """A collection whose settings differ."""

    kind: ChangeKind
    name: str
    fields: tuple[FieldChange, ...]
    """The fields of a modified collection."""


class QueryChange(QueryDiff, frozen=True):
    """A golden query whose answer differs.

    `change` is `none` if only a text differs. `line` is that in the file of queries. `problem_…` is
    why the query failed; empty if it did not.
    """

    missed_before: tuple[str, ...] = ()
    """The expected things that the answer before lacked, as sentences."""
    missed_after: tuple[str, ...] = ()
    """The expected things that the answer after lacks, as sentences."""


class AnswerText(Record, frozen=True):
    """The text at a place of an answer."""

    document: str
    """COLLECTION/DOC."""
    text: str


class AnswerChange(Record, frozen=True):
    """A golden query whose answer has another text, or lacks an expected document.

    Other scores, or another name of the same text, do not change an answer.
    """

    query: str
    line: int
    place: int
    """The first place with another text, from 1."""
    before: AnswerText | None
    """None if the answer before ends above this place."""
    after: AnswerText | None
    """None if the answer after ends above this place."""
    missing: tuple[str, ...] = ()
    """Expected documents that the answer before had."""
    below: bool = False
    """True if the first place and all expected documents have the same texts.

    The order of the other places depends on the whole knowledge base.
    """


class ListedQuery(Record, frozen=True):
    """A golden query that only one of the files has."""

    query: str
    line: int
    """The line in that file."""
    missed: tuple[str, ...] = ()
    """For a new query, the expected things that its answer lacks, as sentences."""


class ComparedQueries(Record, frozen=True):
    """The golden queries at both ends."""

    file: str
    total: int = 0
    """Number of queries of the head."""
    changed: tuple[QueryChange, ...] = ()
    """Queries with other rankings first, then those with other scores or texts."""
    not_compared: str = ""
    """Why the queries were not asked, as a sentence; empty if they were."""
    hint: str = ""
    """How to fix that."""
    missed: int = 0
    """Number of queries that the head does not answer as expected, like in `vmrag check`."""
    outdated: str = ""
    """Why recorded rankings were not compared, like in `vmrag check`."""
    answers: tuple[AnswerChange, ...] = ()
    """The changed answers. The ranking may be equal, because it identifies chunks by number."""
    added: tuple[ListedQuery, ...] = ()
    """Queries that only the head's file has. They are not compared. Empty if one end is a
    revision, which has no files.
    """
    removed: tuple[ListedQuery, ...] = ()
    """Queries that only the start's file has."""
    titles: Mapping[str, str] = {}
    """Titles of ranked documents with opaque ids (see `OPAQUE`)."""
    names: Mapping[str, str] = {}
    """The printed form of the full names of documents."""

    def shown_name_of(self, document: str) -> str:
        return self.names.get(document, document)

    @property
    def compared(self) -> int:
        return self.total - len(self.added)

    @property
    def answered_otherwise(self) -> int:
        """The number of answers that change at the first place or in expected documents, without
        those `below`.
        """
        return len(self.answers) - self.below

    @property
    def below(self) -> int:
        return sum(answer.below for answer in self.answers)


class ReportSummary(Record, frozen=True):
    """Everything except the texts.

    Like in a pull request, it contains what `head` adds since it left `base`.
    """

    base: ReportEnd
    start: ReportEnd
    """The common ancestor. It is `base` unless `base` has moved on."""
    head: ReportEnd
    gained: RevisionList
    """The revisions that the head contains and the start does not."""
    lost: RevisionList
    """The revisions that the start contains and the head does not, because they were dropped or
    reverted.
    """
    missing: int
    """Number of revisions of the base that the head lacks because the base has moved on. They are
    not part of the report.
    """
    counts: DocumentCounts
    words: Words
    """Sums over the documents."""
    size: KnowledgeSize
    collections: tuple[ReportedCollection, ...]
    documents: tuple[DocumentLine, ...]
    """Sorted by name."""
    queries: ComparedQueries
    verified: bool
    """False if the ends are not git commits, so that nothing was verified."""
    findings: tuple[PinFinding, ...]
    """The findings of `vmrag verify` about the commits in between."""
    files: tuple[FileCounts, ...] = ()
    """Numbers of changed files of code."""
    unread: tuple[str, ...] = ()
    """Files that were not compared, because this clone does not have them."""
    citing: tuple[CitingNote, ...] = ()
    """Unchanged notes that cite what changes."""
    uncited: str = ""
    """Why these notes could not be found."""
    history: QualityHistory | None = None
    """The answers to the golden queries at earlier commits; None if it was not requested."""

    @property
    def empty(self) -> bool:
        """True if no knowledge changes, and no note cites what changes."""
        return not self.documents and not self.collections and not self.files and not self.citing


class FullReport(Record, frozen=True):
    """A complete report, as `--json` prints it."""

    summary: ReportSummary
    documents: list[ReportedDocument]


class Spool:
    """A temporary file of reported documents. Add all of them before you read them."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_MAX_MEMORY_BYTES)  # noqa: SIM115  it lives as long as the report

    def add(self, document: ReportedDocument) -> None:
        data = msgspec.json.encode(document)
        self._file.write(len(data).to_bytes(_LENGTH_BYTES) + data)

    def read(self) -> Iterator[ReportedDocument]:
        """Yield the documents in their order, each time from the first."""
        position = 0  # kept here, because several readers may be active
        while True:
            self._file.seek(position)
            length = int.from_bytes(self._file.read(_LENGTH_BYTES))
            if not length:
                return
            data = self._file.read(length)
            position = self._file.tell()
            yield msgspec.json.decode(data, type=ReportedDocument)

    def close(self) -> None:
        self._file.close()


class KnowledgeReport:
    """A report with its facts in `summary`, and with documents that are read on demand.

    Its memory use does not depend on the texts. Use it as a context manager, which closes it.
    """

    def __init__(self, summary: ReportSummary, spool: Spool) -> None:
        self.summary = summary
        self._spool = spool

    def read_documents(self) -> Iterator[ReportedDocument]:
        """Yield the documents in the order of `summary.documents`. It can be repeated."""
        return self._spool.read()

    def load_full(self) -> FullReport:
        """Return the whole report in memory."""
        return FullReport(self.summary, list(self.read_documents()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._spool.close()
