"""Results of the tools for documents."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from vmrag_link.models import Record
from vmrag_mcp.results import ToolResult

WithDocuments = Meta(description="include has documents")
WithMetadatas = Meta(description="include has metadatas")
WithDistances = Meta(description="include has distances, and mode is not keyword")
WithEmbeddings = Meta(description="include has embeddings")
FileLines = Meta(description="the document consists of lines of a file")
OfFile = Meta(description="kind of the collection is source")
OfTree = Meta(description="the lines are lines of a file in the repository")
Weak = Meta(description="no passage shares a rare word with the question, and none is near it")
Packing = Meta(description="max_tokens or neighbours was given")
Truncated = Annotated[bool | UnsetType, Meta(description="the document was cut to 2000 characters")]


class PeekedDocument(Record, frozen=True):
    """A document in a glance at a collection. `truncated`: the text was cut."""

    id: str
    document: str
    metadata: dict[str, Any]
    truncated: bool


class DocumentColumns(Record, frozen=True):
    """Documents as lists of equal length."""

    ids: list[str]
    documents: list[str]
    metadatas: list[dict[str, Any]]


class ChromaPeekCollectionResult(ToolResult, frozen=True):
    collection_name: str
    documents: list[PeekedDocument]
    total_in_collection: int
    limit: int


class FileMatch(Record, frozen=True, kw_only=True, omit_defaults=True):
    """The place of a chunk in a file (`PassagePlace`).

    `path` is relative to the top of the work tree. `lines` are the first and the last line there.
    `heading` has the headings above the chunk, with ` > ` between them.
    """

    path: Annotated[str, OfFile] = ""
    lines: Annotated[list[int] | None, FileLines] = None
    symbol: Annotated[str, Meta(description="the file is code")] = ""
    heading: Annotated[str, Meta(description="the file has headings")] = ""
    uncommitted: Annotated[str, Meta(description="the file differs from the commit")] = ""


AlsoIn = Meta(description="languages of translations and paths of copies")


class QueryMatch(FileMatch, frozen=True):
    """A chunk. Its `id` is the id of its document if the document has no other chunk."""

    id: str
    collection: Annotated[str | UnsetType, Meta(description="the call names no collection")] = UNSET
    document: Annotated[str | UnsetType, WithDocuments] = UNSET
    truncated: Truncated = UNSET
    metadata: Annotated[dict[str, Any] | UnsetType, WithMetadatas] = UNSET
    distance: Annotated[float | UnsetType, WithDistances] = UNSET
    similarity: Annotated[float | UnsetType, WithDistances] = UNSET
    embedding: Annotated[list[float] | UnsetType, WithEmbeddings] = UNSET
    also_in: Annotated[list[str] | UnsetType, AlsoIn] = UNSET


class QueryMatches(Record, frozen=True):
    """The matches of one text, best first."""

    query: str
    matches: list[QueryMatch]
    weak: Annotated[Literal[True] | UnsetType, Weak] = UNSET


class QueryPassage(Record, frozen=True, kw_only=True):
    """Unchanged lines of a document (`packing.PackedPassage`)."""

    collection: str
    path: Annotated[str | UnsetType, OfTree] = UNSET
    lines: Annotated[list[int] | UnsetType, OfTree] = UNSET
    id: Annotated[str | UnsetType, Meta(description="path is absent")] = UNSET
    symbol: Annotated[str | UnsetType, Meta(description="the passage is code")] = UNSET
    signature: Annotated[str | UnsetType, Meta(description="a long symbol or a table begins above")] = UNSET
    heading: Annotated[str | UnsetType, Meta(description="the text has headings")] = UNSET
    commit: Annotated[str | UnsetType, OfFile] = UNSET
    revision: Annotated[str | UnsetType, Meta(description="the document is stored")] = UNSET
    uncommitted: Annotated[str | UnsetType, Meta(description="the file differs from the commit")] = UNSET
    outdated: Annotated[str | UnsetType, Meta(description="changed files or lines that the note cites")] = UNSET
    also_in: Annotated[list[str] | UnsetType, AlsoIn] = UNSET
    cut: Annotated[str | UnsetType, Meta(description="the passage has partial lines, or was cut to fit")] = UNSET
    text: str


class ChromaQueryDocumentsResult(ToolResult, frozen=True):
    """The matches of all texts.

    `ids` and `distances` contain the matches of `results` in their order, which is the order of
    `mode`. `collection_name` is null if all collections were searched. With max_tokens, the three
    lists are empty, and `passages` have about `tokens` tokens together.
    """

    collection_name: str | None
    mode: str
    results: list[QueryMatches]
    ids: list[list[str]]
    distances: Annotated[list[list[float]] | UnsetType, WithDistances] = UNSET
    passages: Annotated[list[QueryPassage] | UnsetType, Packing] = UNSET
    tokens: Annotated[int | UnsetType, Packing] = UNSET
    weak: Annotated[Literal[True] | UnsetType, Weak] = UNSET


class FoundDocument(Record, frozen=True):
    """A document. `embedding` has a vector for each chunk."""

    id: str
    document: Annotated[str | UnsetType, WithDocuments] = UNSET
    metadata: Annotated[dict[str, Any] | UnsetType, WithMetadatas] = UNSET
    embedding: Annotated[list[list[float]] | UnsetType, WithEmbeddings] = UNSET


class ChromaGetDocumentsResult(ToolResult, frozen=True):
    """The documents of a page. `missing_ids` are ids without a document."""

    collection_name: str
    documents: list[FoundDocument]
    total_matching: int
    has_more: bool
    missing_ids: list[str]


class ChromaAddDocumentsResult(ToolResult, frozen=True):
    collection_name: str
    documents_added: int
    ids: list[str]
    chunks_created: int


class ChromaUpdateDocumentsResult(ToolResult, frozen=True):
    """The changed documents. `unchanged_ids` are documents that already had these values."""

    collection_name: str
    documents_updated: int
    ids: list[str]
    unchanged_ids: list[str]
