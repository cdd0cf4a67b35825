"""The shared records. All are immutable; texts are exact; times are ISO 8601 UTC with `Z`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol

import msgspec

LONGEST_NAME, LONGEST_QUERY, LONGEST_TEXT = 4096, 32_768, 16 << 20
"""The most characters of a name or ref, of a question or message, and of a document, in an argument
of a tool; those of a query hold on every surface.
"""

ChangeKind = Literal["added", "modified", "removed"]
Distance = Literal["cosine", "l2", "ip"]
ContentKind = Literal["document", "code"]
DocumentTable = Literal["documents", "issue_logs", "knowledge_docs"]


class Record(msgspec.Struct, frozen=True, gc=False):
    """Base of all records: compared by value, hashable, encoded by `json_text`."""


class Chunking(Record, frozen=True):
    """How a collection's documents are cut; sizes in characters.

    `headings`: Markdown by its sections. `code`: by its symbols, for sources alone (`PIECES`).
    """

    strategy: Literal["characters", "headings", "code"] = "characters"
    size: int = 512
    overlap: int = 50


PAGE_BREAK = "\f"
"""What begins a page in a text that has pages; so do programs and plain texts, such as RFCs."""

PIECES = "vmrag:pieces"
"""In the metadata of code: how it was cut (`IndexedPiece`). Only the index has it; a chunk of an
answer says its own.
"""

SOURCE = "source"
"""The kind of a collection that is derived from files of the code's tree, never stored."""

NOTES_MARK = '"writable":true}'
"""The end of the metadata of the collection of a writable source."""

EXTERNAL = "external"
"""The kind of a collection that is only indexed, never stored: other documentation of a project."""

COMPOUNDING = "compounding"
"""The kind of a collection that mirrors the documents of a project, which are files in the work
tree.
"""

ISSUES, KNOWLEDGE = "issues", "knowledge"
"""The kinds of the collections that a project's issue logs and the documents about a tool imply."""

TABLE_OF_KIND: Mapping[str, DocumentTable] = {ISSUES: "issue_logs", KNOWLEDGE: "knowledge_docs"}
"""The tables that hold the documents of such collections."""

LIBRARY = "library"
"""The kind of a collection whose documents are files and pages, each known by its source."""

SYSTEM = "system"
"""The kind of a collection of what tools write down by themselves: thoughts, chats, evidence."""

LEARNINGS = "derived_learnings_v1"
"""The one of that kind whose documents somebody decided to keep."""

CODEBASE = "codebase_v1"
"""The one whose documents are files of the code."""

SYSTEM_COLLECTIONS = (
    CODEBASE,
    "chat_history_v1",
    LEARNINGS,
    "thinking_sessions_v1",
    "validation_evidence_v1",
    "test_results_v1",
)

IMPLIED = (ISSUES, KNOWLEDGE, COMPOUNDING, EXTERNAL)
"""The kinds of collections whose names a tool makes of the kind and a name: `issues_NAME`."""


def is_reserved_name(collection: str) -> bool:
    """Return whether tools write to collections of this name, in any case, so that no source may
    have it.
    """
    name = collection.lower()
    return name in SYSTEM_COLLECTIONS or name.startswith(tuple(f"{kind}_" for kind in IMPLIED))


WITHOUT_FILES = (COMPOUNDING, ISSUES, KNOWLEDGE, LIBRARY)
"""Kinds of collections into which no folder is imported, or that follow their files by themselves.
"""


class Collection(Record, frozen=True):
    """A row of `collections`: what decides how its documents are indexed is versioned with them."""

    name: str
    kind: str = "chroma"
    metadata: str = "{}"
    embedding_function: str = "default"
    embedding_model: str = ""
    embedding_dimensions: int = 0
    distance: Distance = "cosine"
    chunking: Chunking = Chunking()
    created_at: str = ""
    import_base: str = ""
    """What the ids of imported documents are relative to; empty: not known yet."""

    @property
    def key(self) -> str:
        return self.name

    @property
    def is_searched_by_default(self) -> bool:
        """Whether a search that names no collection asks it: a question about the project is not
        answered by the chat in which it was asked.
        """
        return self.kind != SYSTEM or self.name == LEARNINGS

    @property
    def table(self) -> DocumentTable:
        """Where its documents are."""
        return TABLE_OF_KIND.get(self.kind, "documents")

    @property
    def has_paths_as_ids(self) -> bool:
        """True if its documents are files whose ids are their paths, unlike notes."""
        return self.kind == SOURCE and not self.has_notes

    @property
    def has_notes(self) -> bool:
        """True if its documents are the files of a writable source."""
        return self.kind == SOURCE and self.metadata.endswith(NOTES_MARK)

    def note_path(self, doc_id: str) -> str:
        """Return the path that a note of this id usually has; an empty text for other documents."""
        folder = msgspec.json.decode(self.metadata).get("folder") if self.has_notes else ""
        return f"{folder}/{doc_id}.md" if folder else ""

    @property
    def is_code(self) -> bool:
        """Whether its documents are cut by symbols, so that each has `PIECES`."""
        return self.kind == SOURCE and self.chunking.strategy == "code"

    @property
    def content_kind(self) -> ContentKind:
        """The kind of its documents in an answer."""
        return "code" if self.is_code else "document"


class IndexedPiece(Record, frozen=True, array_like=True):
    """A piece of code as the index has it: `start` is its first character, `line` the line of that,
    from 1; `declared` has symbol, kind, line and last line each. All else is as in
    `code.pieces.CodePiece`.
    """

    start: int
    line: int
    symbol: str
    kind: str
    signature: str
    declared: tuple[tuple[str, str, int, int], ...]


class DocumentHeader(Record, frozen=True):
    """Everything that distinguishes documents for an index, without the text.

    `content_hash` is SHA-256 of the UTF-8 text, lower-case hex; `metadata` is canonical JSON text
    of an object.
    """

    collection: str
    doc_id: str
    title: str
    content_hash: str
    metadata: str

    @property
    def key(self) -> tuple[str, str]:
        return (self.collection, self.doc_id)


class Document(Record, frozen=True):
    """A row of `documents`, or of another `table`, as `engines.logical` shows it as a document."""

    collection: str
    doc_id: str
    title: str
    content: str
    content_hash: str
    metadata: str = "{}"
    source: str = ""
    source_key: str = ""
    file_type: str = ""
    last_modified: str = ""
    created_at: str = ""
    updated_at: str = ""
    table: DocumentTable = "documents"

    @property
    def key(self) -> tuple[str, str]:
        return (self.collection, self.doc_id)

    @property
    def header(self) -> DocumentHeader:
        return DocumentHeader(self.collection, self.doc_id, self.title, self.content_hash, self.metadata)


class Project(Record, frozen=True):
    """A row of `projects`: what issue logs belong to. No index is made of it."""

    project_id: str
    name: str = ""
    repository_url: str = ""
    created_at: str = ""
    metadata: str = "{}"

    @property
    def key(self) -> str:
        return self.project_id


Row = Collection | Document | Project
"""A row of knowledge."""


def read_text(row: Row | None) -> str:
    """The text of a row that has one, else empty."""
    return getattr(row, "content", "")


class DocumentChange(Record, frozen=True):
    """A document's change between two states; `before` is None for added, `after` for removed."""

    kind: ChangeKind
    before: DocumentHeader | None
    after: Document | None

    @property
    def key(self) -> tuple[str, str]:
        row = self.after or self.before
        assert row is not None  # noqa: S101  a change has at least one side
        return row.key


class HeaderChange(Record, frozen=True):
    """As `DocumentChange`, without any text."""

    kind: ChangeKind
    before: DocumentHeader | None
    after: DocumentHeader | None

    @property
    def header(self) -> DocumentHeader:
        """The document as it is now, or was before it was removed."""
        row = self.after or self.before
        assert row is not None  # noqa: S101  a change has at least one side
        return row

    @property
    def key(self) -> tuple[str, str]:
        return self.header.key


class CollectionChange(Record, frozen=True):
    """One collection row's difference between two states."""

    kind: ChangeKind
    before: Collection | None
    after: Collection | None

    @property
    def key(self) -> str:
        row = self.after or self.before
        assert row is not None  # noqa: S101  a change has at least one side
        return row.name


class ProjectChange(Record, frozen=True):
    """One project's difference between two states."""

    kind: ChangeKind
    before: Project | None
    after: Project | None

    @property
    def key(self) -> str:
        row = self.after or self.before
        assert row is not None  # noqa: S101  a change has at least one side
        return row.key


class Difference(Record, frozen=True):
    """The changes from one state of the knowledge base to another, sorted by key."""

    collections: tuple[CollectionChange, ...]
    documents: tuple[DocumentChange, ...]
    projects: tuple[ProjectChange, ...] = ()

    def count_changes(self) -> ChangeCounts:
        return ChangeCounts.from_changes(self.documents)

    @property
    def is_empty(self) -> bool:
        return not (self.collections or self.documents or self.projects)


class HeaderDifference(Record, frozen=True):
    """As `Difference`, without the texts; of a million documents it takes what their names take."""

    collections: tuple[CollectionChange, ...]
    documents: tuple[HeaderChange, ...]


class ChunkCounts(Record, frozen=True):
    """Numbers of chunks: put into the index, taken out of it; and of the texts put in, embedded now
    or found in the cache.
    """

    added: int = 0
    removed: int = 0
    embedded: int = 0
    cached: int = 0


class ChangeCounts(Record, frozen=True):
    """Numbers of documents."""

    added: int = 0
    modified: int = 0
    removed: int = 0

    @classmethod
    def from_changes(cls, changes: Iterable[DocumentChange | HeaderChange]) -> ChangeCounts:
        kinds = [change.kind for change in changes]
        return cls(kinds.count("added"), kinds.count("modified"), kinds.count("removed"))

    @property
    def text(self) -> str:
        """`3 documents added, 1 modified`; `no documents changed`."""
        found = {kind: getattr(self, kind) for kind in ("added", "modified", "removed")}
        first, *others = [f"{number} {kind}" for kind, number in found.items() if number] or ["no changed"]
        number, _, kind = first.partition(" ")
        return ", ".join([f"{number} document{'' if number == '1' else 's'} {kind}", *others])

    def __add__(self, other: ChangeCounts) -> ChangeCounts:
        return ChangeCounts(self.added + other.added, self.modified + other.modified, self.removed + other.removed)

    @property
    def total(self) -> int:
        return self.added + self.modified + self.removed


class KbBranch(Record, frozen=True):
    """A branch of the knowledge base; `dirty` says that its working set differs from `head`."""

    name: str
    head: str
    dirty: bool


class RevisionInfo(Record, frozen=True):
    """A revision's own data; `date` ISO 8601 UTC with `Z`, whole seconds."""

    revision: str
    parents: tuple[str, ...]
    message: str
    author: str
    date: str

    @property
    def short(self) -> str:
        return self.revision[:7]

    @property
    def parent(self) -> str | None:
        return self.parents[0] if self.parents else None


class Link(Record, frozen=True):
    """A row of `git_links`: a code commit and its revision.

    `source`: `pin` rows are derived from git's history, `manual` ones were made by hand.
    `superseded_by` is the commit that replaced this one in an amend or a rebase. `linked_at` is the
    pin's time, ISO 8601 UTC. Empty texts: not known.
    """

    git_commit: str
    dolt_commit: str
    dolt_branch: str
    git_branch: str = ""
    git_repo_url: str = ""
    linked_at: str = ""
    source: Literal["pin", "manual"] = "pin"
    superseded_by: str = ""
    metadata: str = "{}"


class WorkingSet(Record, frozen=True):
    """The working set of a KB branch, as a place to read from."""

    branch: str


At = str | WorkingSet
"""Where to read: a revision's full hash, or the working set of a KB branch."""


class Chunk(Record, frozen=True):
    """A piece of a document. `number` counts from 0; `start` and `end` are character offsets."""

    number: int
    text: str
    start: int
    end: int


def content_hash(text: str) -> str:
    """SHA-256 of the UTF-8 text, 64 lower-case hex digits."""
    import hashlib  # a checkout that finds its index there hashes nothing

    return hashlib.sha256(text.encode()).hexdigest()


def encode_canonical_json(value: Any) -> str:
    """Sorted keys, no spaces, no escapes beyond what JSON needs: equal values give equal bytes.

    Raises `ValueError` for a number that is not finite.
    """
    text = msgspec.json.encode(value, order="sorted").decode()
    if "null" in text:  # msgspec writes that for NaN, too
        import json

        json.dumps(msgspec.to_builtins(value), allow_nan=False)
    return text


class HasMetadata(Protocol):
    """A row whose metadata is canonical JSON of an object."""

    @property
    def metadata(self) -> str: ...


def format_notes_metadata(folder: str) -> str:
    """Return the metadata of a writable source's collection, by which clients know what it is."""
    return encode_canonical_json({"folder": folder, "writable": True})


def parse_metadata(row: HasMetadata) -> dict[str, Any]:
    """A row's metadata as the values that it holds, without `PIECES`."""
    found = msgspec.json.decode(row.metadata, type=dict[str, Any])
    found.pop(PIECES, None)
    return found


class _CodeMetadata(msgspec.Struct):
    pieces: list[IndexedPiece] = msgspec.field(name=PIECES)


def parse_pieces(row: HasMetadata) -> list[IndexedPiece]:
    """Those of a document of code. Raises `msgspec.DecodeError` for any other."""
    return msgspec.json.decode(row.metadata, type=_CodeMetadata).pieces


def read_stated_title(row: HasMetadata) -> str:
    """Return the title in the metadata of a document, which its front matter states."""
    title = parse_metadata(row).get("title") if '"title"' in row.metadata else None
    return " ".join(title.split()) if isinstance(title, str) else ""


def metadata_from_row(text: str) -> dict[str, Any]:
    """The metadata of a stranger's row.

    Raises `ValueError` for anything but canonical JSON of an object.
    """
    try:
        value = parse_user_json(text)
    except ValueError as error:
        raise ValueError(f"its metadata {error}") from error
    if not isinstance(value, dict) or encode_canonical_json(value) != text:
        raise ValueError("its metadata is not the canonical JSON of an object")
    return value


def parse_user_json(text: str) -> Any:
    """The parsed JSON of a text, if it can be stored exactly.

    Raises `ValueError`, whose message completes `It …`. Refused: numbers beyond 64 bits or not
    finite, halves of surrogate pairs, more than 100 levels.
    """
    import json

    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None
    level = [value]
    for _ in range(_LEVELS):
        for each in level:
            _storable(each)
        level = [part for each in level for part in _parts(each)]
    if level:
        raise ValueError(_TOO_DEEP)
    return value


_LEVELS = 100
_TOO_DEEP = f"is nested deeper than {_LEVELS} levels"


def _parts(value: Any) -> list[Any]:
    """One level down; keys are values, too."""
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, list) else []


def _storable(value: Any) -> None:
    match value:
        case str() if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ValueError(f"holds half of a surrogate pair, which is no character: {value[:40]!a}") from None
        case float() if not math.isfinite(value):
            raise ValueError("holds a number that is not finite (NaN, or too large)")
        case int() if not -(2**63) <= value < 2**64:
            raise ValueError("holds a whole number beyond 64 bits")


def format_json(report: Any) -> str:
    """A report as readable JSON, keys in the order of its definition."""
    try:
        return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()
    except UnicodeEncodeError:
        import json  # a path or a branch that is not UTF-8 comes out as an escaped lone surrogate

        return json.dumps(msgspec.to_builtins(report), indent=2)
