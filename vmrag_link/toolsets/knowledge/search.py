"""Search in issue logs and documents about tools, with one ranking over all collections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from vmrag_link.engines import logical
from vmrag_link.models import (
    ISSUES,
    KNOWLEDGE,
    TABLE_OF_KIND,
    At,
    Collection,
    Distance,
    Document,
    DocumentTable,
    Record,
)
from vmrag_link.retrieval.query import Hit, Mode, Query, to_distance, to_similarity
from vmrag_link.retrieval.search import Searcher
from vmrag_link.toolsets.knowledge import knowledge_docs, listing
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.query import require_query, search_index
from vmrag_link.workspace.follow.provenance import AnswerOrigin, find_view_origin

if TYPE_CHECKING:
    from vmrag_link.workspace import View


class KnowledgeHit(Record, frozen=True):
    """A whole chunk.

    `score` is its rank, 1 for the best; `distance` and `similarity` depend on its meaning alone.
    """

    content: str
    metadata: dict[str, Any]
    distance: float
    similarity: float
    score: float


class IssueHit(KnowledgeHit, frozen=True):
    log_id: str


class DocHit(KnowledgeHit, frozen=True):
    doc_id: str


class EitherHit(KnowledgeHit, frozen=True):
    source_table: DocumentTable
    log_id: Annotated[str | UnsetType, Meta(description="source_table is issue_logs")] = UNSET
    doc_id: Annotated[str | UnsetType, Meta(description="source_table is knowledge_docs")] = UNSET


class IssueHits(Record, frozen=True):
    """Hits in issue logs, best first. `searched` are the searched collections."""

    results: list[IssueHit]
    searched: list[str]


class DocHits(Record, frozen=True):
    """Hits in documents about tools, best first. `searched` are the searched collections."""

    results: list[DocHit]
    searched: list[str]


class EitherHits(Record, frozen=True):
    """Hits in both, best first. `searched` are the searched collections."""

    results: list[EitherHit]
    searched: list[str]


class _SearchResult(Record, frozen=True):
    """Hits, each with the values of `KnowledgeHit`."""

    hits: list[tuple[Hit, dict[str, Any]]]
    searched: list[str]
    origin: AnswerOrigin


def search_logs(
    ws: Workspace, text: str, *, project_id: str | None = None, filters: Mapping[str, Any] | None = None, limit: int = 5
) -> tuple[IssueHits, AnswerOrigin]:
    """Return the best passages of the issue logs that the filter selects, of one project or of all.

    Raises `UsageInvalid` for an empty query, `FilterInvalid`, `EmbeddingError` and `IndexFailed`.
    """
    filter_values = listing.parse_filter(filters or {})
    name = None if project_id is None else logical.collection_name(ISSUES, project_id)

    def list_passing(at: At) -> Iterable[Document] | None:
        return listing.filter_logs(ws, at, project_id, filter_values) if filter_values else None

    result = _search_collections(
        ws, text, lambda collection: collection.kind == ISSUES and name in (None, collection.name), list_passing, limit
    )
    hits = [IssueHit(**shared, log_id=hit.doc_id) for hit, shared in result.hits]
    return IssueHits(hits, result.searched), result.origin


def search_docs(
    ws: Workspace, text: str, *, tool_name: str | None = None, category: str | None = None, limit: int = 5
) -> tuple[DocHits, AnswerOrigin]:
    """Return the best passages about one tool or about all. Raises the errors of `search_logs`."""
    name = None if tool_name is None else logical.collection_name(KNOWLEDGE, tool_name)

    def list_passing(at: At) -> Iterable[Document] | None:
        return None if category is None else knowledge_docs.list_about(ws, at, tool_name, category)

    result = _search_collections(
        ws,
        text,
        lambda collection: collection.kind == KNOWLEDGE and name in (None, collection.name),
        list_passing,
        limit,
    )
    hits = [DocHit(**shared, doc_id=hit.doc_id) for hit, shared in result.hits]
    return DocHits(hits, result.searched), result.origin


def search_both(ws: Workspace, text: str, *, limit: int = 5) -> tuple[EitherHits, AnswerOrigin]:
    """Return the best passages of issue logs and documents about tools, and of no other collection.

    Raises the errors of `search_logs`.
    """
    result = _search_collections(ws, text, lambda collection: collection.kind in TABLE_OF_KIND, lambda _: None, limit)
    hits = [
        EitherHit(
            **shared,
            source_table=hit.table,
            log_id=hit.doc_id if hit.table == TABLE_OF_KIND[ISSUES] else UNSET,
            doc_id=hit.doc_id if hit.table == TABLE_OF_KIND[KNOWLEDGE] else UNSET,
        )
        for hit, shared in result.hits
    ]
    return EitherHits(hits, result.searched), result.origin


def _search_collections(
    ws: Workspace,
    text: str,
    is_searched: Callable[[Collection], bool],
    list_passing: Callable[[At], Iterable[Document] | None],
    limit: int,
) -> _SearchResult:
    """Search the collections. `list_passing` returns the documents to search; None for all."""
    require_query(text)

    def search_view(searcher: Searcher, view: View) -> _SearchResult:
        collections = {row.name: row for row in searcher.list_collections() if is_searched(row)}
        passing = list_passing(view.at)
        ids = None if passing is None else [document.doc_id for document in passing]
        hits: Sequence[Hit] = ()
        if collections and ids != []:
            where = None if ids is None else {"source_id": {"$in": ids}}
            hits = searcher.search(Query(text, tuple(collections), limit, Mode.HYBRID, where=where))
        cosines = searcher.compute_cosines(text, hits)
        rows = [
            (hit, _build_hit_values(hit, collections[hit.collection].distance, cosine))
            for hit, cosine in zip(hits, cosines, strict=True)
        ]
        return _SearchResult(rows, list(collections), find_view_origin(ws, view))

    return search_index(ws, search_view, files=False)


def _build_hit_values(hit: Hit, space: Distance, cosine: float) -> dict[str, Any]:
    """Return the values of `KnowledgeHit`."""
    return {
        "content": hit.text,
        "metadata": hit.shown_metadata,
        "distance": to_distance(space, cosine),
        "similarity": to_similarity(cosine),
        "score": hit.score,
    }
