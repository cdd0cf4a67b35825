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
FileLines = Meta(description="of a file whose lines are the document's")
OfFile = Meta(description="kind of the collection is source")
OfTree = Meta(description="the lines are those of a file of the repository")
Weak = Meta(description="no passage shares a rare word with the question, and none is near it")
Packing = Meta(description="max_tokens or neighbours was given")
Truncated = Annotated[bool | UnsetType, Meta(description="the document was cut to 2000 characters")]


class PeekedDocument(Record, frozen=True):
    """`truncated`: the text was cut."""

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
    """What a chunk of a file says of its place (`PassagePlace`): `path` is that below the top of
    the work tree, `lines` are its first and its last one there. `heading`: those above it, with
    ` > ` between.
    """

    path: Annotated[str, OfFile] = ""
    lines: Annotated[list[int] | None, FileLines] = None
    symbol: Annotated[str, Meta(description="of a file of code")] = ""
    heading: Annotated[str, Meta(description="of a file with headings")] = ""
    uncommitted: Annotated[str, Meta(description="the file differs from the commit")] = ""


AlsoIn = Meta(description="languages of translations and paths of copies")


class QueryMatch(FileMatch, frozen=True):
    """A chunk. `id` is its document's where that has no other chunk."""

    id: str
    collection: Annotated[str | UnsetType, Meta(description="no collection was named")] = UNSET
    document: Annotated[str | UnsetType, WithDocuments] = UNSET
    truncated: Truncated = UNSET
    metadata: Annotated[dict[str, Any] | UnsetType, WithMetadatas] = UNSET
    distance: Annotated[float | UnsetType, WithDistances] = UNSET
    similarity: Annotated[float | UnsetType, WithDistances] = UNSET
    embedding: Annotated[list[float] | UnsetType, WithEmbeddings] = UNSET
    also_in: Annotated[list[str] | UnsetType, AlsoIn] = UNSET


class QueryMatches(Record, frozen=True):
    """Of one text, best first."""

    query: str
    matches: list[QueryMatch]
    weak: Annotated[Literal[True] | UnsetType, Weak] = UNSET


class QueryPassage(Record, frozen=True, kw_only=True):
    """Lines of a document, as they are in it (`workspace.answers.packing.PackedPassage`)."""

    collection: str
    path: Annotated[str | UnsetType, OfTree] = UNSET
    lines: Annotated[list[int] | UnsetType, OfTree] = UNSET
    id: Annotated[str | UnsetType, Meta(description="path is not there")] = UNSET
    symbol: Annotated[str | UnsetType, Meta(description="of code")] = UNSET
    signature: Annotated[str | UnsetType, Meta(description="a long symbol or a table begins above")] = UNSET
    heading: Annotated[str | UnsetType, Meta(description="of a text with headings")] = UNSET
    commit: Annotated[str | UnsetType, OfFile] = UNSET
    revision: Annotated[str | UnsetType, Meta(description="of a stored document")] = UNSET
    uncommitted: Annotated[str | UnsetType, Meta(description="the file differs from the commit")] = UNSET
    outdated: Annotated[str | UnsetType, Meta(description="changed files or lines that the note cites")] = UNSET
    also_in: Annotated[list[str] | UnsetType, AlsoIn] = UNSET
    cut: Annotated[str | UnsetType, Meta(description="it does not hold whole lines, or was cut to fit")] = UNSET
    text: str


class ChromaQueryDocumentsResult(ToolResult, frozen=True):
    """`ids` and `distances` hold the matches of `results` in their order, which is that of `mode`.
    `collection_name` is null where all collections were searched. With max_tokens all three are
    empty, and `passages` have about so many `tokens` together.
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
    """`embedding`: a vector for each chunk."""

    id: str
    document: Annotated[str | UnsetType, WithDocuments] = UNSET
    metadata: Annotated[dict[str, Any] | UnsetType, WithMetadatas] = UNSET
    embedding: Annotated[list[list[float]] | UnsetType, WithEmbeddings] = UNSET


class ChromaGetDocumentsResult(ToolResult, frozen=True):
    """`missing_ids` name nothing."""

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
    """`unchanged_ids`: documents that were like that already."""

    collection_name: str
    documents_updated: int
    ids: list[str]
    unchanged_ids: list[str]
