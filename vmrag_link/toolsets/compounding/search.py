"""A project's documents nearest to a query: one entry a document, by its best chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from vmrag_link.documents.chunking import read_header_paths
from vmrag_link.models import Collection, Document, Record
from vmrag_link.retrieval.fusion import SearchPurpose, choose_threshold
from vmrag_link.retrieval.query import Mode, Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents.document_selection import chunks_of
from vmrag_link.workspace.follow.provenance import AnswerOrigin

FIRST = 1000
"""Chunks that are looked at before all of them are."""

ALL = 10_000_000
EXCERPT = 300
ANY = -1.0
"""Less than any similarity."""


class Match(Record, frozen=True):
    """A document and its best chunk; `score`: the similarity of that, 0 to 1."""

    doc_id: str
    score: float
    chunk: int
    text: str

    @property
    def excerpt(self) -> str:
        text = " ".join(self.text.split())
        return text if len(text) <= EXCERPT else f"{text[: EXCERPT - 1].rstrip()}…"


IncludedAs = Literal["match", "critical"]


class NearDocument(Record, frozen=True):
    """A document near a text. `path`: how people know it. `file`: the file of the work tree that
    the document is; empty where it is stored. `headings`: those that the best chunk stands under,
    where they are asked for.
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


class Found(Record, frozen=True):
    """`documents`: the first of the `total` that are near enough, and what they link to. `best`,
    `least`: as of `Matches`. `collection`: that of the first; None without one.
    """

    collection: Collection | None
    documents: tuple[NearDocument, ...]
    total: int
    best: float | None
    least: float
    standing: AnswerOrigin
    linked: tuple[LinkedDocument, ...] = ()


def shown_path(folder: str, doc_id: str) -> str:
    return f"./{folder}/{doc_id}"


class Matches(Record, frozen=True):
    """Those of at least `least`, best first. `best`: the highest score; None: of nothing."""

    found: tuple[Match, ...]
    best: float | None
    least: float


class Threshold(Record, frozen=True):
    """What decides from which score on a document counts."""

    use: SearchPurpose
    given: float | None = None
    configured: float | None = None


def find_nearest(
    searcher: Searcher, collection: str, text: str, wanted: Threshold, where: Mapping[str, Any] | None = None
) -> Matches:
    """The documents of a collection that an index may hold. Raises as `Searcher.search`."""
    held = searcher.find_collection(collection)
    function = held.embedding_function if held else ""
    least = choose_threshold(wanted.use, function, given=wanted.given, configured=wanted.configured)
    if held is None:
        return Matches((), None, least)
    for k in (FIRST, ALL):
        asked = Query(text, (collection,), k, Mode.VECTOR, where)
        near = searcher.find_nearest(asked)
        if len(near) < k or near[-1].similarity < least:
            break
    best: dict[str, Match] = {}
    for each in near:  # the best first
        hit = each.hit
        best.setdefault(hit.doc_id, Match(hit.doc_id, each.similarity, hit.chunk, hit.text))
    found = sorted((each for each in best.values() if each.score >= least), key=lambda each: (-each.score, each.doc_id))
    return Matches(tuple(found), near[0].similarity if near else None, least)


def filter_of(types: Sequence[str], levels: Sequence[str]) -> dict[str, Any] | None:
    """What metadata must be; None for anything."""
    parts = [{key: {"$in": [*each]}} for key, each in (("doc_type", types), ("promotion_level", levels)) if each]
    return {"$and": parts} if parts[1:] else parts[0] if parts else None


def place_of(ws: Workspace, collection: Collection, document: Document, chunk: int) -> str:
    """The headings that a chunk stands under."""
    pieces = chunks_of(ws, collection, document)
    return read_header_paths(document).find_passage_path(pieces[chunk].start) if chunk < len(pieces) else ""
