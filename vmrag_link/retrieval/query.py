"""A query and its answers."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from vmrag_link.index.metadata import PROVENANCE, place
from vmrag_link.models import Distance, DocumentHeader, DocumentTable, Record
from vmrag_link.retrieval.narrowing import Narrowing

MOST_NEIGHBOURS = 5

LEAST_BUDGET = 100
"""Tokens of a packed answer: a head line, and a few lines."""

MOST_BUDGET = 1_000_000

MOST_HITS = 200
"""The ranked pieces that are looked at for one, where nobody says how many."""


class Mode(enum.StrEnum):
    """How chunks are ranked: by words (the chunk's own and its document's), by meaning, or by both
    (`fusion`).
    """

    HYBRID = "hybrid"
    VECTOR = "vector"
    KEYWORD = "keyword"


class Query(Record, frozen=True):
    """`collections`: None for all but those of kind `system`, in which tools write for themselves.

    Filters are as people write them (see `filters`); `narrowing` counts beside them.
    """

    text: str
    collections: tuple[str, ...] | None = None
    k: int = 5
    mode: Mode = Mode.HYBRID
    where: Mapping[str, Any] | None = None
    where_document: Mapping[str, Any] | None = None
    narrowing: Narrowing | None = None


class Hit(Record, frozen=True):
    """One chunk of an answer; `rank` counts from 1. Its document is in `table`, and has
    `content_hash` and `chunks` chunks.

    A higher `score` is better: nearly the cosine for `vector`; BM25 of the chunk and, weighted, of
    its document for `keyword`; for `hybrid` the weighted share of the best scores of this query by
    words and by meaning, 1 for a chunk that is the best by both.
    """

    rank: int
    collection: str
    doc_id: str
    chunk: int
    chunks: int
    score: float
    text: str
    content_hash: str
    metadata: dict[str, Any]
    table: DocumentTable = "documents"

    @property
    def placed_metadata(self) -> dict[str, Any]:
        """The metadata with the chunk's place in its document, as the index stores it."""
        document = DocumentHeader(self.collection, self.doc_id, "", self.content_hash, "")
        return self.metadata | place(document, self.table, self.chunk, self.chunks)

    @property
    def shown_metadata(self) -> dict[str, Any]:
        """The same without what names the document elsewhere in an answer (`PROVENANCE`)."""
        return {key: value for key, value in self.placed_metadata.items() if key not in PROVENANCE}


class Near(Record, frozen=True):
    """A hit, with the cosine of its vector and the query's."""

    hit: Hit
    cosine: float

    @property
    def similarity(self) -> float:
        return similarity(self.cosine)


def distance(space: Distance, cosine: float) -> float:
    """As Chroma has it between unit vectors: l2 is squared.

    Never below zero, where rounding might take it.
    """
    return max(0.0, round((2 if space == "l2" else 1) * (1 - cosine), 6))


def similarity(cosine: float) -> float:
    """A cosine as people are shown it: 0 to 1; `1 - distance`, in l2 `1 - distance / 2`."""
    return round(min(1.0, max(0.0, cosine)), 4)
