"""What a report of two places says: small facts in a `ReportSummary`, one `ReportedDocument` for
each change.

Every text in them may be a stranger's: names, titles, messages, documents. Nothing is escaped here.

A report whose documents are read one by one, as often as somebody asks.
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
"""`moved`: under another id or in another collection, with the same text or half of its lines."""

KINDS: tuple[DocumentKind, ...] = ("added", "changed", "moved", "removed")

"""`ranking`: other chunks or another order; `scores`: those alone."""
OPAQUE = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")
"""Ids that tell a person nothing: those of libraries, issue logs, agents."""

_IN_MEMORY = 8 * 1024 * 1024
"""Bytes of documents; more of them lie in a file without a name."""

_LENGTH = 8


class ReportEnd(Record, frozen=True):
    """A place of the comparison, by the `name` that was asked for.

    `commit`: git's, by full hash; None where the name is that of a revision. `revision`: what it
    pins; None where it pins no knowledge. `files`: whether files of its tree are documents.
    """

    name: str
    commit: str | None
    revision: PinnedRevision | None
    files: bool = False

    @property
    def hash(self) -> str:
        """Of the commit, or of the revision."""
        return self.commit or (self.revision.revision if self.revision else "")


class RevisionList(Record, frozen=True):
    """The newest of `total` revisions, newest first."""

    shown: tuple[PinnedRevision, ...] = ()
    total: int = 0


class Growth(Record, frozen=True):
    """A number of things, before and after."""

    before: int
    after: int

    @property
    def grown(self) -> int:
        return self.after - self.before


class KnowledgeSize(Record, frozen=True):
    """`documents`: of the whole knowledge base, and files that are documents. `characters`: of the
    texts of those that differ; the others are not read. `chunks`: of the whole index, None where
    one of the revisions has none here, and where files are documents, too.
    """

    documents: Growth
    characters: Growth
    chunks: Growth | None = None


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
    """One document that differs, without its text.

    `number` counts from 1, in the order of the report. `old_collection`, `old_doc_id`: where a
    moved document was; empty for others. `file`: the path of the file that it is, below the top of
    the repository; empty for one that the knowledge base stores. `path_name`, `old_path_name`: what
    to print for `name` and `old_name`. `characters`: of its text, 0 where it is not there.
    """

    number: int
    kind: DocumentKind
    collection: str
    doc_id: str
    title: str
    old_collection: str
    old_doc_id: str
    file: str
    words: Words
    characters: Growth
    path_name: str = ""
    old_path_name: str = ""

    @property
    def name(self) -> str:
        return f"{self.collection}/{self.doc_id}"

    @property
    def old_name(self) -> str:
        """Of a moved document; empty for others."""
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

    Equal text far from a change is left out, with an `omitted` piece in its place. Of a long
    difference only the beginning is in `pieces`; `left_out`: the characters of the rest.
    """

    pieces: tuple[Piece, ...] = ()
    left_out: int = 0


class FieldChange(Record, frozen=True):
    """A value besides the text; what is no text as JSON. `name`: such as title or metadata."""

    name: str
    change: TextChange


class ReportedDocument(DocumentLine, frozen=True, kw_only=True):
    """The same with what differs: `fields` of changed and moved documents, and the `text`; a new
    one is one insertion, a removed one one deletion.
    """

    fields: tuple[FieldChange, ...]
    text: TextChange


class ReportedCollection(Record, frozen=True):
    """A collection whose settings differ; `fields` of modified ones."""

    kind: ChangeKind
    name: str
    fields: tuple[FieldChange, ...]


class QueryChange(QueryDiff, frozen=True):
    """A golden query whose answer differs; `change` is `none` where only a text does. `line`: in
    the file of queries.

    `problem_…`: why it could not be asked there; empty if it could. `missed_…`: what the file
    expects of the answer and that one lacks, as sentences.
    """

    missed_before: tuple[str, ...] = ()
    missed_after: tuple[str, ...] = ()


class ReportedChunk(Record, frozen=True):
    """What stands at a place of an answer. `document`: COLLECTION/DOC."""

    document: str
    text: str


class AnswerChange(Record, frozen=True):
    """A golden query whose answer says something else, or lacks a document that is expected.

    `place`: the first one, from 1, that has another text; `before`, `after` are None where the
    answer ends before it. Other scores change no answer, nor does another name of the same text.
    `missing`: the documents that the file expects and that the answer before had. `below`: it says
    the same at its first place and of all documents that are expected; how the rest is ordered
    depends on the whole knowledge.
    """

    query: str
    line: int
    place: int
    before: ReportedChunk | None
    after: ReportedChunk | None
    missing: tuple[str, ...] = ()
    below: bool = False


class ListedQuery(Record, frozen=True):
    """A golden query that one of both files has, by its text. `line`: in that file. `missed`: what
    a new one expects, and its answer lacks, as sentences.
    """

    query: str
    line: int
    missed: tuple[str, ...] = ()


class ComparedQueries(Record, frozen=True):
    """The golden queries at both places.

    `not_compared`: why they were not asked, as a sentence, with what helps in `hint`; both empty if
    they were. `changed`: rankings first, then those of which only scores or texts differ. `missed`:
    how many are not answered as expected at the head, as `vmrag check` counts there; `outdated` as
    it says. `answers`: those that say something else; the ranking of such a query may be the same,
    as its chunks are known by their numbers. `added`, `removed`: those that the head's file has and
    the start's has not, and the other way round, which are not compared; none where one of both is
    a revision, which has no files. `titles`: of ranked documents whose ids are `OPAQUE`. `names`:
    what to print for the full names of documents.
    """

    file: str
    total: int = 0
    changed: tuple[QueryChange, ...] = ()
    not_compared: str = ""
    hint: str = ""
    missed: int = 0
    outdated: str = ""
    answers: tuple[AnswerChange, ...] = ()
    added: tuple[ListedQuery, ...] = ()
    removed: tuple[ListedQuery, ...] = ()
    titles: Mapping[str, str] = {}
    names: Mapping[str, str] = {}

    def shown_name_of(self, document: str) -> str:
        return self.names.get(document, document)

    @property
    def compared(self) -> int:
        return self.total - len(self.added)

    @property
    def answered_otherwise(self) -> int:
        """At their first place, or in what they expect: those that change `below` are not."""
        return len(self.answers) - self.below

    @property
    def below(self) -> int:
        return sum(answer.below for answer in self.answers)


class ReportSummary(Record, frozen=True):
    """Everything but the texts.

    As in a pull request, what `head` brings since it left `base` is shown: `start` is where that
    was, their merge base; it is `base` itself unless that has moved on. `gained`: the revisions
    that the head contains and the start does not; `lost`: those that the start contains and the
    head does not, which is knowledge that is dropped or taken back. `missing`: the revisions of
    base that the head lacks because base has moved on; they are no part of this.

    `words`: sums over the documents. `files`: how many files of code differ; `unread`: files that
    are not compared, because this clone does not have them. `findings`: what `vmrag verify` says of
    the commits between; `verified` is false where the places are no commits of git's. `documents`:
    sorted by name. `citing`: notes that cite what changes, and that do not change. `uncited`: why
    they could not be found. `history`: how well earlier commits answer the golden queries, if it
    was requested.
    """

    base: ReportEnd
    start: ReportEnd
    head: ReportEnd
    gained: RevisionList
    lost: RevisionList
    missing: int
    counts: DocumentCounts
    words: Words
    size: KnowledgeSize
    collections: tuple[ReportedCollection, ...]
    documents: tuple[DocumentLine, ...]
    queries: ComparedQueries
    verified: bool
    findings: tuple[PinFinding, ...]
    files: tuple[FileCounts, ...] = ()
    unread: tuple[str, ...] = ()
    citing: tuple[CitingNote, ...] = ()
    uncited: str = ""
    history: QualityHistory | None = None

    @property
    def empty(self) -> bool:
        """No knowledge changes, and no note cites what changes."""
        return not self.documents and not self.collections and not self.files and not self.citing


class FullReport(Record, frozen=True):
    """A report in one piece, as `--json` prints it."""

    summary: ReportSummary
    documents: list[ReportedDocument]


class Spool:
    """Reported documents aside, one behind the other."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115  it lives as long as the report

    def add(self, document: ReportedDocument) -> None:
        data = msgspec.json.encode(document)
        self._file.write(len(data).to_bytes(_LENGTH) + data)

    def read(self) -> Iterator[ReportedDocument]:
        """In the order in which they came, each time from the first."""
        at = 0
        while True:
            self._file.seek(at)
            length = int.from_bytes(self._file.read(_LENGTH))
            if not length:
                return
            data = self._file.read(length)
            at = self._file.tell()
            yield msgspec.json.decode(data, type=ReportedDocument)

    def close(self) -> None:
        self._file.close()


class KnowledgeReport:
    """What the terminal, Markdown and HTML show: facts in `summary`, texts in `documents`.

    Its memory does not grow with the texts. Close it.
    """

    def __init__(self, summary: ReportSummary, spool: Spool) -> None:
        self.summary = summary
        self._spool = spool

    def read_documents(self) -> Iterator[ReportedDocument]:
        """In the order of `summary.documents`, afresh each time."""
        return self._spool.read()

    def load_full(self) -> FullReport:
        """All of it in memory."""
        return FullReport(self.summary, list(self.read_documents()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._spool.close()
