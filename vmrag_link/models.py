"""Records that all packages share.

They are immutable. Texts are exact, and times are in ISO 8601, in UTC with `Z`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, Protocol

import msgspec

LONGEST_NAME, LONGEST_QUERY, LONGEST_TEXT = 4096, 32_768, 16 << 20
"""Maximum numbers of characters in an argument of a tool: of a name or a ref, of a question or a
message, and of a document.

The limit of a query applies on every surface.
"""

ChangeKind = Literal["added", "modified", "removed"]
Distance = Literal["cosine", "l2", "ip"]
ContentKind = Literal["document", "code"]
DocumentTable = Literal["documents", "issue_logs", "knowledge_docs"]


class Record(msgspec.Struct, frozen=True, gc=False):
    """Base class of all records. They are compared by value, hashable, and encoded by
    `format_json`.
    """


class Chunking(Record, frozen=True):
    """How the documents of a collection are cut into chunks. Sizes are in characters.

    `headings` cuts Markdown by its sections. `code` cuts code by its symbols, and is only for
    sources (`PIECES`).
    """

    strategy: Literal["characters", "headings", "code"] = "characters"
    size: int = 512
    overlap: int = 50


PAGE_BREAK = "\f"
"""The character that begins a page in a text with pages. Programs and plain texts, such as RFCs,
also use it.
"""

PIECES = "vmrag:pieces"
"""Key in the metadata of code: how it was cut (`IndexedPiece`). Only the index has it, because each
chunk of an answer has its own position.
"""

SOURCE = "source"
"""Kind of a collection that is derived from files of the work tree, and never stored."""

NOTES_MARK = '"writable":true}'
"""End of the metadata of a writable source's collection."""

EXTERNAL = "external"
"""Kind of a collection that is indexed but never stored: other documentation of a project."""

COMPOUNDING = "compounding"
"""Kind of a collection that mirrors the documents of a project, which are files in the work
tree.
"""

ISSUES, KNOWLEDGE = "issues", "knowledge"
"""Kinds of the collections for the issue logs of a project, and for the documents about a tool."""

TABLE_OF_KIND: Mapping[str, DocumentTable] = {ISSUES: "issue_logs", KNOWLEDGE: "knowledge_docs"}
"""The table that contains the documents of such a collection."""

LIBRARY = "library"
"""Kind of a collection whose documents are files and pages, each identified by its source."""

SYSTEM = "system"
"""Kind of a collection that tools write on their own: thoughts, chats and evidence."""

LEARNINGS = "derived_learnings_v1"
"""The system collection whose documents a user decided to keep."""

CODEBASE = "codebase_v1"
"""The system collection whose documents are files of the code."""

SYSTEM_COLLECTIONS = (
    CODEBASE,
    "chat_history_v1",
    LEARNINGS,
    "thinking_sessions_v1",
    "validation_evidence_v1",
    "test_results_v1",
)

IMPLIED = (ISSUES, KNOWLEDGE, COMPOUNDING, EXTERNAL)
"""Kinds of collections that a tool names by the kind and a name: `issues_NAME`."""


def is_reserved_name(collection: str) -> bool:
    """Return whether tools write to collections of this name, in any case. A source cannot have
    such a name.
    """
    name = collection.lower()
    return name in SYSTEM_COLLECTIONS or name.startswith(tuple(f"{kind}_" for kind in IMPLIED))


WITHOUT_FILES = (COMPOUNDING, ISSUES, KNOWLEDGE, LIBRARY)
"""Kinds of collections into which no folder can be imported, or that follow their files
automatically.
"""


class Collection(Record, frozen=True):
    """A row of `collections`. It is versioned with the documents, because it decides how they are
    indexed.
    """

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
    """The folder to which the ids of imported documents are relative; empty if it is not
    known yet.
    """

    @property
    def key(self) -> str:
        return self.name

    @property
    def is_searched_by_default(self) -> bool:
        """True if a search without collections includes this one.

        A chat about a question must not answer the same question later.
        """
        return self.kind != SYSTEM or self.name == LEARNINGS

    @property
    def table(self) -> DocumentTable:
        """The table that contains its documents."""
        return TABLE_OF_KIND.get(self.kind, "documents")

    @property
    def has_paths_as_ids(self) -> bool:
        """True if its documents are files whose ids are their paths. The ids of notes are not."""
        return self.kind == SOURCE and not self.has_notes

    @property
    def has_notes(self) -> bool:
        """True if its documents are the files of a writable source."""
        return self.kind == SOURCE and self.metadata.endswith(NOTES_MARK)

    def note_path(self, doc_id: str) -> str:
        """Return the usual path of a note; an empty text for other documents."""
        folder = msgspec.json.decode(self.metadata).get("folder") if self.has_notes else ""
        return f"{folder}/{doc_id}.md" if folder else ""

    @property
    def is_code(self) -> bool:
        """True if its documents are cut by symbols. Each of them then has `PIECES`."""
        return self.kind == SOURCE and self.chunking.strategy == "code"

    @property
    def content_kind(self) -> ContentKind:
        """The kind of its documents in an answer."""
        return "code" if self.is_code else "document"


class IndexedPiece(Record, frozen=True, array_like=True):
    """A piece of code in the index. The other fields are those of `code.languages.CodePiece`."""

    start: int
    """Offset of the first character."""
    line: int
    """Line of the first character, from 1."""
    symbol: str
    kind: str
    signature: str
    declared: tuple[tuple[str, str, int, int], ...]
    """Symbol, kind, line and last line of each declaration."""


class DocumentHeader(Record, frozen=True):
    """Everything that distinguishes documents for an index, without the text."""

    collection: str
    doc_id: str
    title: str
    content_hash: str
    """SHA-256 of the UTF-8 text, as lower-case hexadecimal digits."""
    metadata: str
    """An object as canonical JSON."""

    @property
    def key(self) -> tuple[str, str]:
        return (self.collection, self.doc_id)


class Document(Record, frozen=True):
    """A row of `documents`, or of another table that `engines.logical` presents as a document."""

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
    """A row of `projects`, which groups issue logs. It is not indexed."""

    project_id: str
    name: str = ""
    repository_url: str = ""
    created_at: str = ""
    metadata: str = "{}"

    @property
    def key(self) -> str:
        return self.project_id


Row = Collection | Document | Project
"""A row with content of the knowledge base."""


def read_text(row: Row | None) -> str:
    """Return the text of a row; an empty text if the row has none."""
    return getattr(row, "content", "")


class DocumentChange(Record, frozen=True):
    """The change of a document between two states.

    An added document has no `before`, and a removed one has no `after`.
    """

    kind: ChangeKind
    before: DocumentHeader | None
    after: Document | None

    @property
    def key(self) -> tuple[str, str]:
        row = self.after or self.before
        assert row is not None  # noqa: S101  a change has at least one side
        return row.key


class HeaderChange(Record, frozen=True):
    """The change of a document, without any text.

    An added document has no `before`, and a removed one has no `after`.
    """

    kind: ChangeKind
    before: DocumentHeader | None
    after: DocumentHeader | None

    @property
    def header(self) -> DocumentHeader:
        """The document after the change, or before it was removed."""
        row = self.after or self.before
        assert row is not None  # noqa: S101  a change has at least one side
        return row

    @property
    def key(self) -> tuple[str, str]:
        return self.header.key


class CollectionChange(Record, frozen=True):
    """The change of a collection's row between two states."""

    kind: ChangeKind
    before: Collection | None
    after: Collection | None

    @property
    def key(self) -> str:
        row = self.after or self.before
        assert row is not None  # noqa: S101  a change has at least one side
        return row.name


class ProjectChange(Record, frozen=True):
    """The change of a project between two states."""

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
    """The changes between two states, without texts. It needs memory only for the names of the
    documents.
    """

    collections: tuple[CollectionChange, ...]
    documents: tuple[HeaderChange, ...]


class ChunkCounts(Record, frozen=True):
    """Numbers of chunks in an update of an index."""

    added: int = 0
    """Chunks that were put into the index."""
    removed: int = 0
    """Chunks that were removed from the index."""
    embedded: int = 0
    """Texts of added chunks that were embedded now."""
    cached: int = 0
    """Texts of added chunks whose vectors were in the cache."""


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
        """The counts as text, such as `3 documents added, 1 modified` or `no documents changed`."""
        counts = {kind: getattr(self, kind) for kind in ("added", "modified", "removed")}
        first, *others = [f"{number} {kind}" for kind, number in counts.items() if number] or ["no changed"]
        number, _, kind = first.partition(" ")
        return ", ".join([f"{number} document{'' if number == '1' else 's'} {kind}", *others])

    def __add__(self, other: ChangeCounts) -> ChangeCounts:
        return ChangeCounts(self.added + other.added, self.modified + other.modified, self.removed + other.removed)

    @property
    def total(self) -> int:
        return self.added + self.modified + self.removed


class KbBranch(Record, frozen=True):
    """A branch of the knowledge base."""

    name: str
    head: str
    dirty: bool
    """True if the working set differs from `head`."""


class RevisionInfo(Record, frozen=True):
    """The data of a revision."""

    revision: str
    parents: tuple[str, ...]
    message: str
    author: str
    date: str
    """ISO 8601 in UTC with `Z`, to the second."""

    @property
    def short(self) -> str:
        return self.revision[:7]

    @property
    def parent(self) -> str | None:
        return self.parents[0] if self.parents else None


class Link(Record, frozen=True):
    """A row of `git_links`: a git commit and its revision. Empty texts are unknown values."""

    git_commit: str
    dolt_commit: str
    dolt_branch: str
    git_branch: str = ""
    git_repo_url: str = ""
    linked_at: str = ""
    """The time of the pin, ISO 8601 in UTC."""
    source: Literal["pin", "manual"] = "pin"
    """`pin` for rows that are derived from the history of git, `manual` for rows that a user
    added.
    """
    superseded_by: str = ""
    """The commit that replaced this one in an amend or a rebase."""
    metadata: str = "{}"


class WorkingSet(Record, frozen=True):
    """The working set of a KB branch, as a place to read from."""

    branch: str


At = str | WorkingSet
"""A place to read from: the full hash of a revision, or the working set of a KB branch."""


class Chunk(Record, frozen=True):
    """A piece of a document.

    `number` counts from 0; `start` and `end` are offsets in characters.
    """

    number: int
    text: str
    start: int
    end: int


def content_hash(text: str) -> str:
    """Return the SHA-256 of the UTF-8 text, as 64 lower-case hexadecimal digits."""
    import hashlib  # a checkout that finds its index there hashes nothing

    return hashlib.sha256(text.encode()).hexdigest()


def encode_canonical_json(value: Any) -> str:
    """Encode a value as JSON with sorted keys, without spaces, and with no more escapes than JSON
    needs.

    Equal values have equal bytes. Raises `ValueError` for a number that is not finite.
    """
    text = msgspec.json.encode(value, order="sorted").decode()
    if "null" in text:  # msgspec also writes null for NaN
        import json

        json.dumps(msgspec.to_builtins(value), allow_nan=False)
    return text


class HasMetadata(Protocol):
    """A row whose metadata is an object as canonical JSON."""

    @property
    def metadata(self) -> str: ...


def format_notes_metadata(folder: str) -> str:
    """Return the metadata of a writable source's collection, which tells clients what it is."""
    return encode_canonical_json({"folder": folder, "writable": True})


def parse_metadata(row: HasMetadata) -> dict[str, Any]:
    """Return the metadata of a row as values, without `PIECES`."""
    metadata = msgspec.json.decode(row.metadata, type=dict[str, Any])
    metadata.pop(PIECES, None)
    return metadata


class _CodeMetadata(msgspec.Struct):
    pieces: list[IndexedPiece] = msgspec.field(name=PIECES)


def parse_pieces(row: HasMetadata) -> list[IndexedPiece]:
    """Return the pieces of a document of code.

    Raises `msgspec.DecodeError` for any other document.
    """
    return msgspec.json.decode(row.metadata, type=_CodeMetadata).pieces


def read_stated_title(row: HasMetadata) -> str:
    """Return the title in the metadata of a document, which comes from its front matter."""
    title = parse_metadata(row).get("title") if '"title"' in row.metadata else None
    return " ".join(title.split()) if isinstance(title, str) else ""


def metadata_from_row(text: str) -> dict[str, Any]:
    """Parse the metadata of an untrusted row.

    Raises `ValueError` unless it is an object as canonical JSON.
    """
    try:
        value = parse_user_json(text)
    except ValueError as error:
        raise ValueError(f"its metadata {error}") from error
    if not isinstance(value, dict) or encode_canonical_json(value) != text:
        raise ValueError("its metadata is not the canonical JSON of an object")
    return value


def parse_user_json(text: str) -> Any:
    """Parse JSON that can be stored exactly.

    Raises `ValueError`, whose message completes `It …`, for numbers that are not finite or exceed
    64 bits, for halves of surrogate pairs, and for more than 100 levels.
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
        for element in level:
            _require_storable(element)
        level = [part for element in level for part in _list_parts(element)]
    if level:
        raise ValueError(_TOO_DEEP)
    return value


_LEVELS = 100
_TOO_DEEP = f"is nested deeper than {_LEVELS} levels"


def _list_parts(value: Any) -> list[Any]:
    """Return the keys and values one level down."""
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, list) else []


def _require_storable(value: Any) -> None:
    match value:
        case str() if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ValueError(f"holds half of a surrogate pair, which is not a character: {value[:40]!a}") from None
        case float() if not math.isfinite(value):
            raise ValueError("holds a number that is not finite (NaN, or too large)")
        case int() if not -(2**63) <= value < 2**64:
            raise ValueError("holds a whole number beyond 64 bits")


def format_json(report: Any) -> str:
    """Encode a report as readable JSON, with the keys in the order of its definition."""
    try:
        return msgspec.json.format(msgspec.json.encode(report), indent=2).decode()
    except UnicodeEncodeError:
        import json  # a path or a branch that is not UTF-8 becomes an escaped lone surrogate

        return json.dumps(msgspec.to_builtins(report), indent=2)
