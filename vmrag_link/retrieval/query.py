"""The records of a search: a query and its hits. Commands, tools and `search` share them."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

from vmrag_link.index.metadata import PROVENANCE, build_chunk_metadata
from vmrag_link.models import ContentKind, Distance, DocumentHeader, DocumentTable, Record
from vmrag_link.retrieval.narrowing import Narrowing

MAX_NEIGHBOURS = 5
"""Maximum number of chunks before and after a hit that an answer adds."""

MIN_BUDGET_TOKENS = 100
"""Minimum size of a packed answer: a head line and a few other lines. A packed answer has as many
whole passages as its size allows.
"""

MAX_BUDGET_TOKENS = 1_000_000

FIRST_HITS = 3
"""Number of hits that decide whether an answer is weak, and that a weak answer shows."""

MAX_PACKED_HITS = 200
"""Default number of hits that a packed answer considers."""

TITLES: Mapping[ContentKind, str] = {"document": "Documentation", "code": "Code"}
"""Titles of groups of results."""


class Mode(enum.StrEnum):
    """How chunks are ranked: by words (of the chunk and its document), by meaning, or by both
    (`fusion`).
    """

    HYBRID = "hybrid"
    VECTOR = "vector"
    KEYWORD = "keyword"


class Query(Record, frozen=True):
    """A question to an index."""

    text: str
    collections: tuple[str, ...] | None = None
    """Names of collections. None means all except those of kind `system`, which tools use for their
    own data.
    """

    k: int = 5
    mode: Mode = Mode.HYBRID
    where: Mapping[str, Any] | None = None
    """A filter over metadata as people write it (see `filters`)."""

    where_document: Mapping[str, Any] | None = None
    """A filter over texts as people write it."""

    narrowing: Narrowing | None = None
    """Applies in addition to the filters."""


class Hit(Record, frozen=True):
    """One chunk of an answer."""

    rank: int
    """The rank, from 1."""

    collection: str
    doc_id: str
    chunk: int
    """The number of the chunk in its document."""

    chunks: int
    """The number of chunks of the document."""

    score: float
    """Higher is better. For `vector`, this is nearly the cosine. For `keyword`, it is the BM25
    score of the chunk and, weighted, of its document. For `hybrid`, it is the weighted share of the
    best scores of this query by words and by meaning, and 1 for a chunk that is the best by both.

    If both documents and code answer, each kind has its own scores, and `rank` combines both kinds.
    """

    text: str
    content_hash: str
    """The hash of the document."""

    metadata: dict[str, Any]
    table: DocumentTable = "documents"
    """The table of the document."""

    kind: ContentKind = "document"
    also_in: tuple[str, ...] = ()
    """Languages of further translations, and paths of the original and of copies.

    They are not separate results.
    """

    @property
    def placed_metadata(self) -> dict[str, Any]:
        """The metadata with the position of the chunk in its document, like the index stores it."""
        document = DocumentHeader(self.collection, self.doc_id, "", self.content_hash, "")
        return self.metadata | build_chunk_metadata(document, self.table, self.chunk, self.chunks)

    @property
    def shown_metadata(self) -> dict[str, Any]:
        """`placed_metadata` without the keys that identify the document (`PROVENANCE`)."""
        return {key: value for key, value in self.placed_metadata.items() if key not in PROVENANCE}


class HasKind(Protocol):
    """A result with a kind: document or code."""

    @property
    def kind(self) -> ContentKind: ...


K = TypeVar("K", bound=HasKind)


def group_by_kind(results: Sequence[K]) -> list[tuple[str, K]]:
    """Return the results by kind, beginning with the kind of the first result.

    The first result of each group has the title of the group, and the others have an empty text. If
    all results have one kind, there are no titles.
    """
    groups: dict[ContentKind, list[K]] = {}
    for result in results:
        groups.setdefault(result.kind, []).append(result)
    titled: list[tuple[str, K]] = []
    for kind, (first, *others) in groups.items():
        titled.append((TITLES[kind] if len(groups) > 1 else "", first))
        titled += [("", result) for result in others]
    return titled


class NearHit(Record, frozen=True):
    """A hit, with the cosine of its vector and the query's vector."""

    hit: Hit
    cosine: float

    @property
    def similarity(self) -> float:
        return to_similarity(self.cosine)


def to_distance(space: Distance, cosine: float) -> float:
    """Return Chroma's distance between unit vectors. For l2 it is squared.

    It is never negative, although rounding might make it so.
    """
    return max(0.0, round((2 if space == "l2" else 1) * (1 - cosine), 6))


def to_similarity(cosine: float) -> float:
    """Return the similarity that people see: 0 to 1.

    It is `1 - distance`, or for l2 `1 - distance / 2`.
    """
    return round(min(1.0, max(0.0, cosine)), 4)
