"""Search in issue logs and in documents about tools: one ranking over all collections asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from vmrag_link.engines import logical
from vmrag_link.errors import UsageInvalid
from vmrag_link.models import ISSUES, KNOWLEDGE, At, Collection, Document, DocumentTable, Record
from vmrag_link.ops.follow.provenance import Standing, viewed
from vmrag_link.ops.index.query import searching
from vmrag_link.ops.knowledge import issue_filter, knowledge_docs
from vmrag_link.retrieval.query import Hit, Mode, Query, distance, similarity
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace import View, Workspace


class KnowledgePassage(Record, frozen=True):
    """A chunk that answers. `score`: what it was ranked by; `similarity`: of its meaning alone."""

    doc_id: str
    source_table: DocumentTable
    title: str
    content: str
    metadata: dict[str, Any]
    distance: float
    similarity: float
    score: float


class KnowledgePassages(Record, frozen=True):
    """Best first. `searched`: the collections that were asked."""

    results: list[KnowledgePassage]
    searched: list[str]
    standing: Standing


def issues(
    ws: Workspace,
    text: str,
    *,
    project_id: str | None = None,
    filters: Mapping[str, Any] | None = None,
    limit: int = 5,
) -> KnowledgePassages:
    """The best passages of the issue logs that pass the filter, of one project or of all.

    None where there are none. Raises `UsageInvalid` for a query without a word, `FilterInvalid`,
    `Embedding` errors, `IndexFailed`.
    """
    wanted = issue_filter.parse(filters or {})
    name = None if project_id is None else logical.collection_name(ISSUES, project_id)

    def passing(at: At) -> Iterable[Document] | None:
        return issue_filter.logs(ws, at, project_id, wanted) if wanted else None

    return _search(ws, text, lambda each: each.kind == ISSUES and name in (None, each.name), passing, limit)


def knowledge(
    ws: Workspace, text: str, *, tool_name: str | None = None, category: str | None = None, limit: int = 5
) -> KnowledgePassages:
    """The best passages about one tool or about all. Raises as `issues`."""
    name = None if tool_name is None else logical.collection_name(KNOWLEDGE, tool_name)

    def passing(at: At) -> Iterable[Document] | None:
        return None if category is None else knowledge_docs.about(ws, at, tool_name, category)

    return _search(ws, text, lambda each: each.kind == KNOWLEDGE and name in (None, each.name), passing, limit)


def everything(ws: Workspace, text: str, *, limit: int = 5) -> KnowledgePassages:
    """The best passages of both; nothing of other collections. Raises as `issues`."""
    return _search(ws, text, lambda each: each.kind in (ISSUES, KNOWLEDGE), lambda _: None, limit)


def _search(
    ws: Workspace,
    text: str,
    asked: Callable[[Collection], bool],
    passing: Callable[[At], Iterable[Document] | None],
    limit: int,
) -> KnowledgePassages:
    """`passing`: the documents that may answer; None for all."""
    if not text.strip():
        raise UsageInvalid("The query is empty.", hint="Say what is sought.", parameter="query")

    def look(searcher: Searcher, view: View) -> KnowledgePassages:
        held = {each.name: each for each in searcher.collections() if asked(each)}
        among = passing(view.at)
        ids = None if among is None else [each.doc_id for each in among]
        hits: Sequence[Hit] = ()
        if held and ids != []:
            where = None if ids is None else {"source_id": {"$in": ids}}
            hits = searcher.search(Query(text, tuple(held), limit, Mode.HYBRID, where=where))
        cosines = searcher.cosines(text, hits)
        found = [_passage(hit, held[hit.collection], cosine) for hit, cosine in zip(hits, cosines, strict=True)]
        return KnowledgePassages(found, list(held), viewed(ws, view))

    return searching(ws, look)


def _passage(hit: Hit, collection: Collection, cosine: float) -> KnowledgePassage:
    return KnowledgePassage(
        hit.doc_id,
        hit.table,
        hit.metadata.get("title", ""),
        hit.text,
        hit.placed_metadata,
        distance(collection.distance, cosine),
        similarity(cosine),
        hit.score,
    )
