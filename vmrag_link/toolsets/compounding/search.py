"""Search for a project's documents: one entry for each document, with its best chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from vmrag_link.documents.chunking import read_header_paths
from vmrag_link.models import Collection, Document, Record
from vmrag_link.retrieval.query import Mode, Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.retrieval.thresholds import SearchPurpose, choose_threshold
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents.document_selection import chunks_of
from vmrag_link.workspace.follow.provenance import AnswerOrigin

FIRST_CHUNKS = 1000
"""Number of chunks in the first search. If it is not enough, the second search covers
all chunks.
"""

ALL_CHUNKS = 10_000_000
MAX_EXCERPT_CHARS = 300
ANY_SCORE = -1.0
"""A score below any similarity."""


class Match(Record, frozen=True):
    """A document and its best chunk. `score` is the chunk's similarity, from 0 to 1."""

    doc_id: str
    score: float
    chunk: int
    text: str

    @property
    def excerpt(self) -> str:
        text = " ".join(self.text.split())
        return text if len(text) <= MAX_EXCERPT_CHARS else f"{text[: MAX_EXCERPT_CHARS - 1].rstrip()}…"


IncludedAs = Literal["match", "critical"]


class NearDocument(Record, frozen=True):
    """A document near a text.

    `path` is its name for people. `file` is its file in the work tree; empty for a stored document.
    `headings` are the headings above the best chunk, if they are requested.
    """

    path: str
    document: Document
    match: Match
    included_as: IncludedAs = "match"
    file: str = ""
    headings: str = ""


class LinkedDocument(Record, frozen=True):
    document: Document
    linked_from: str


class SearchResult(Record, frozen=True):
    """The result of a search.

    `documents` are the first of the `total` matching documents, and the documents that they link
    to. `best` and `min_score` are as in `Matches`. `collection` is the collection of the first
    document.
    """

    collection: Collection | None
    documents: tuple[NearDocument, ...]
    total: int
    best: float | None
    min_score: float
    origin: AnswerOrigin
    linked: tuple[LinkedDocument, ...] = ()


def shown_path(folder: str, doc_id: str) -> str:
    return f"./{folder}/{doc_id}"


class Matches(Record, frozen=True):
    """The matches of a search."""

    ranked: tuple[Match, ...]
    best: float | None
    """The highest score; None without any."""
    min_score: float


class Threshold(Record, frozen=True):
    """The values that determine the minimum score."""

    use: SearchPurpose
    given: float | None = None
    configured: float | None = None


def find_nearest(
    searcher: Searcher, collection: str, text: str, threshold: Threshold, where: Mapping[str, Any] | None = None
) -> Matches:
    """Return the documents of a collection that are nearest to a text.

    The index can lack the collection. Raises the errors of `Searcher.search`.
    """
    indexed = searcher.find_collection(collection)
    function = indexed.embedding_function if indexed else ""
    min_score = choose_threshold(threshold.use, function, given=threshold.given, configured=threshold.configured)
    if indexed is None:
        return Matches((), None, min_score)
    for k in (FIRST_CHUNKS, ALL_CHUNKS):
        query = Query(text, (collection,), k, Mode.VECTOR, where)
        near = searcher.find_nearest(query)
        if len(near) < k or near[-1].similarity < min_score:
            break
    best: dict[str, Match] = {}
    for near_hit in near:  # the best first
        hit = near_hit.hit
        best.setdefault(hit.doc_id, Match(hit.doc_id, near_hit.similarity, hit.chunk, hit.text))
    ranked = sorted(
        (match for match in best.values() if match.score >= min_score), key=lambda match: (-match.score, match.doc_id)
    )
    return Matches(tuple(ranked), near[0].similarity if near else None, min_score)


def filter_of(types: Sequence[str], levels: Sequence[str]) -> dict[str, Any] | None:
    """Return the conditions on metadata; None for no conditions."""
    parts = [{key: {"$in": [*values]}} for key, values in (("doc_type", types), ("promotion_level", levels)) if values]
    return {"$and": parts} if len(parts) > 1 else next(iter(parts), None)


def place_of(ws: Workspace, collection: Collection, document: Document, chunk: int) -> str:
    """Return the headings above a chunk."""
    pieces = chunks_of(ws, collection, document)
    return read_header_paths(document).find_passage_path(pieces[chunk].start) if chunk < len(pieces) else ""
