"""The documents for an answer: the nearest to a query, the critical ones, and documents that they
link to by Markdown links and `related_docs`. All are read at one moment.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Container, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Annotated
from urllib.parse import unquote

from msgspec import Meta

from vmrag_link.errors import no_collection
from vmrag_link.models import LONGEST_QUERY, Document, Record, parse_metadata
from vmrag_link.retrieval.search import Searcher
from vmrag_link.retrieval.thresholds import SearchPurpose
from vmrag_link.toolsets.compounding import search
from vmrag_link.toolsets.compounding.doc_types import LEVELS, Level
from vmrag_link.toolsets.compounding.project import DocsProject
from vmrag_link.toolsets.compounding.search import (
    ANY_SCORE,
    IncludedAs,
    LinkedDocument,
    Match,
    Matches,
    NearDocument,
    SearchResult,
    Threshold,
    shown_path,
)
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.query import require_query, require_readable, search_index
from vmrag_link.workspace.follow.provenance import find_view_origin
from vmrag_link.workspace.indexed_rows import IndexedRows

if TYPE_CHECKING:
    from vmrag_link.workspace import View

_TARGET = re.compile(
    r"\]\([ \t]{0,8}<?([^()\s<>]{1,500})|^ {0,3}\[[^\]\n]{1,200}\]:[ \t]{1,8}<?([^\s<>]{1,500})", re.MULTILINE
)
MAX_LINKS = 500
"""Maximum number of links of one document."""

Question = Annotated[str, Meta(description="question or words to search for", max_length=LONGEST_QUERY)]
DocTypes = Annotated[Sequence[str], Meta(description="types of documents; default: all")]
Limit = Annotated[
    int | None,
    Meta(
        description="maximum number of documents; default: from the project",
        ge=1,
        le=100,
        extra={"clamped": True},
    ),
]
Sources = Annotated[
    int | None,
    Meta(description="maximum number of sources; default: from the project", ge=1, le=100, extra={"clamped": True}),
]
Relevance = Annotated[float | None, Meta(description="lowest relevance; default: from the project", ge=0, le=1)]


class AnswerRequest(Record, frozen=True):
    """A question. With `include_critical`, critical documents come first, near or not."""

    query: Question
    doc_types: DocTypes = ()
    max_sources: Sources = None
    min_relevance_score: Relevance = None
    min_promotion_level: Annotated[Level, Meta(description="lowest level")] = LEVELS[0]
    include_critical: Annotated[bool, Meta(description="put critical documents first")] = True


class SearchRequest(Record, frozen=True):
    query: Question
    doc_types: DocTypes = ()
    limit: Limit = None
    min_relevance_score: Relevance = None
    promotion_levels: Annotated[Sequence[Level], Meta(description="levels; default: all")] = ()


def search_semantic(ws: Workspace, project: DocsProject, request: SearchRequest) -> SearchResult:
    """Return the documents nearest to a query.

    Raises `UsageInvalid`, `DocTypeInvalid`, and the errors of `Searcher.search`.
    """
    require_query(request.query)
    where = search.filter_of(project.require_types(request.doc_types), request.promotion_levels)
    config = project.config.semantic_search
    threshold = Threshold(SearchPurpose.SEARCH, request.min_relevance_score, config.min_relevance_score)
    limit = config.default_limit if request.limit is None else request.limit

    def search_view(searcher: Searcher, view: View) -> SearchResult:
        matches = search.find_nearest(searcher, project.collection, request.query, threshold, where)
        collection = searcher.find_collection(project.collection)
        documents = [
            NearDocument(
                shown_path(project.docs, row.doc_id),
                row,
                match,
                headings=search.place_of(ws, collection, row, match.chunk),
            )
            for match in matches.ranked[:limit]
            if collection and (row := ws.engine.find_document(view.at, project.collection, match.doc_id))
        ]
        return SearchResult(
            collection=collection,
            documents=tuple(documents),
            total=len(matches.ranked),
            best=matches.best,
            min_score=matches.min_score,
            origin=find_view_origin(ws, view),
        )

    return search_index(ws, search_view, files=False)


def retrieve_documents(ws: Workspace, project: DocsProject, request: AnswerRequest) -> SearchResult:
    """Return the documents for an answer. Raises the errors of `search_semantic`."""
    require_query(request.query)
    types = project.require_types(request.doc_types)
    config = project.config.retrieval
    min_score = Threshold(SearchPurpose.ANSWER, request.min_relevance_score, config.min_relevance_score)
    limit = config.max_results if request.max_sources is None else request.max_sources
    levels = LEVELS[LEVELS.index(request.min_promotion_level) :] if request.min_promotion_level != LEVELS[0] else ()

    def search_view(searcher: Searcher, view: View) -> SearchResult:
        @cache
        def find_document(doc_id: str) -> Document | None:
            return ws.engine.find_document(view.at, project.collection, doc_id)

        def find_near(promotion_levels: Sequence[str], threshold: Threshold) -> Matches:
            where = search.filter_of(types, promotion_levels)
            return search.find_nearest(searcher, project.collection, request.query, threshold, where)

        critical: Sequence[Match] = ()
        if request.include_critical:
            any_score = Threshold(SearchPurpose.ANSWER, ANY_SCORE)
            critical = find_near(LEVELS[-1:], any_score).ranked[: config.max_critical_docs]
        matches = find_near(levels, min_score)
        others = [match for match in matches.ranked if match not in critical][:limit]
        chosen: list[tuple[Match, IncludedAs]] = [(match, "critical") for match in critical]
        chosen += [(match, "match") for match in others]
        sources = [
            NearDocument(shown_path(project.docs, row.doc_id), row, match, kind)
            for match, kind in chosen
            if (row := find_document(match.doc_id))
        ]
        known_ids = (
            {header.doc_id for header in ws.engine.read_headers(view.at, collection=project.collection)}
            if sources
            else ()
        )
        followed = follow_links(
            [source.document.doc_id for source in sources],
            find_document,
            known_ids,
            docs=project.docs,
            depth=project.config.link_resolution.max_depth,
            limit=config.max_linked_docs,
        )
        linked = [LinkedDocument(row, link.linked_from) for link in followed if (row := find_document(link.doc_id))]
        return SearchResult(
            collection=searcher.find_collection(project.collection),
            documents=tuple(sources),
            total=len(sources),
            best=matches.best,
            min_score=matches.min_score,
            origin=find_view_origin(ws, view),
            linked=tuple(linked),
        )

    return search_index(ws, search_view, files=False)


def search_collections(
    ws: Workspace, query: str, names: Sequence[str], *, sources: int, min_score: float | None
) -> SearchResult:
    """Return the documents of these collections, or of all, that are nearest to a query.

    Files of sources are included. Raises `CollectionMissing` and the errors of `search_semantic`.
    """
    require_query(query)

    def search_view(searcher: Searcher, view: View) -> SearchResult:
        existing_names = [collection.name for collection in searcher.list_collections()]
        for name in names:
            if name not in existing_names:
                require_readable(view, name, existing_names)
                raise no_collection(name, existing_names)
        matches_by_name = [
            (name, search.find_nearest(searcher, name, query, Threshold(SearchPurpose.ANSWER, min_score)))
            for name in names or existing_names
        ]
        ranked = sorted(
            ((name, match) for name, matches in matches_by_name for match in matches.ranked),
            key=lambda pair: (-pair[1].score, pair[0], pair[1].doc_id),
        )
        files = IndexedRows(view.sources.folder) if view.sources else None
        derived = frozenset(collection.name for collection in files.list_collections(view.at)) if files else frozenset()
        rows = [
            NearDocument(f"{name}/{row.doc_id}", row, match, file=row.doc_id if name in derived else "")
            for name, match in ranked[:sources]
            if (row := (files if files and name in derived else ws.engine).find_document(view.at, name, match.doc_id))
        ]
        best = max((matches.best for _, matches in matches_by_name if matches.best is not None), default=None)
        lowest = min((matches.min_score for _, matches in matches_by_name), default=min_score or 0.0)
        first_collection = searcher.find_collection(rows[0].document.collection) if rows else None
        return SearchResult(
            collection=first_collection,
            documents=tuple(rows),
            total=len(ranked),
            best=best,
            min_score=lowest,
            origin=find_view_origin(ws, view),
        )

    return search_index(ws, search_view)


class Linked(Record, frozen=True):
    """A document that another document links to."""

    doc_id: str
    linked_from: str


def follow_links(
    start: Sequence[str],
    document: Callable[[str], Document | None],
    known_ids: Container[str],
    *,
    docs: str,
    depth: int,
    limit: int,
) -> list[Linked]:
    """Return the documents that others reach by links, nearest first, without duplicates.

    `document` returns a document by id, `known_ids` are all ids, and `docs` is the folder of the
    documents.
    """
    links: list[Linked] = []
    seen = {*start}
    layer = [*start]
    for _ in range(depth):
        next_layer = []
        for source in layer:
            source_document = document(source)
            for target in list_references(source_document, known_ids, docs=docs) if source_document else ():
                if target in seen:
                    continue
                if len(links) == limit:
                    return links
                seen.add(target)
                next_layer.append(target)
                links.append(Linked(target, source))
        layer = next_layer
    return links


def list_references(document: Document, known_ids: Container[str], *, docs: str) -> list[str]:
    """Return the ids of the linked documents in their order, first the `related_docs`."""
    references: dict[str, None] = {}
    for text in _list_texts(document):
        target = _resolve_link(text, document.doc_id, known_ids, docs)
        if target and target != document.doc_id:
            references[target] = None
    return [*references]


def _list_texts(document: Document) -> Iterator[str]:
    """Yield the related documents of the metadata, then the targets of the links in the text."""
    related = parse_metadata(document).get("related_docs")
    references = related if isinstance(related, list) else [related]
    yield from (text for text in references[:MAX_LINKS] if isinstance(text, str))
    for number, match in enumerate(_TARGET.finditer(document.content)):
        if number == MAX_LINKS:
            return
        yield match[1] or match[2]


def _resolve_link(text: str, source: str, known_ids: Container[str], docs: str) -> str | None:
    """Return the id of a linked document, relative to its source, the folder or the root."""
    path = unquote(re.split(r"[#?]", text, maxsplit=1)[0])
    if not path or "://" in path:
        return None
    bare = path.lstrip("/")
    candidates = [] if path.startswith("/") else [posixpath.join(posixpath.dirname(source), path)]
    candidates += [bare, bare.removeprefix("./").removeprefix(f"{docs}/")]
    for candidate in candidates:
        normal = posixpath.normpath(candidate)
        for name in (normal, f"{normal}.md"):
            if name in known_ids:
                return name
    return None
