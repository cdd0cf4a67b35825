"""What an answer is made of: the documents nearest to a query, the critical ones, and those that
they link to. All read at one moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Literal

from vmrag_link.models import Collection, Document, Record
from vmrag_link.ops.follow.provenance import Standing, viewed
from vmrag_link.ops.index.query import require_query, require_readable, searching
from vmrag_link.retrieval.search import Searcher
from vmrag_link.retrieval.thresholds import Use
from vmrag_link.suggest import no_collection
from vmrag_link.toolsets.compounding import links, search
from vmrag_link.toolsets.compounding.doc_types import LEVELS, Level
from vmrag_link.toolsets.compounding.project import DocsProject
from vmrag_link.toolsets.compounding.search import ANY, Match, Matches, Threshold
from vmrag_link.workspace import View, Workspace
from vmrag_link.workspace.indexed_rows import IndexedRows

IncludedAs = Literal["match", "critical"]


class AnswerRequest(Record, frozen=True):
    """`types`: empty for all. `critical`: whether critical documents come first, near or not."""

    query: str
    types: Sequence[str] = ()
    level: Level = LEVELS[0]
    sources: int | None = None
    least: float | None = None
    critical: bool = True


class SourceDocument(Record, frozen=True):
    document: Document
    match: Match
    included_as: IncludedAs


class LinkedDocument(Record, frozen=True):
    document: Document
    linked_from: str


class Retrieved(Record, frozen=True):
    """`collection`: None where nothing is mirrored. `best`, `least`: as of `Matches`."""

    collection: Collection | None

    sources: tuple[SourceDocument, ...]
    linked: tuple[LinkedDocument, ...]
    best: float | None
    least: float
    standing: Standing


class NearDocument(Record, frozen=True):
    """`headings`: those that the best chunk stands under."""

    document: Document
    match: Match
    headings: str


class Found(Record, frozen=True):
    """`total`: how many documents are near enough, of which `documents` are the first."""

    documents: tuple[NearDocument, ...]
    total: int
    best: float | None
    least: float
    standing: Standing


def semantic(
    ws: Workspace,
    project: DocsProject,
    query: str,
    *,
    types: Sequence[str],
    levels: Sequence[Level],
    limit: int,
    least: float | None,
) -> Found:
    """The documents nearest to a query. Raises `UsageInvalid`, `DocTypeInvalid`, and as
    `Searcher.search`.
    """
    require_query(query)
    where = search.filter_of(project.require_types(types), levels)
    wanted = Threshold(Use.SEARCH, least, project.config.semantic_search.min_relevance_score)

    def look(searcher: Searcher, view: View) -> Found:
        near = search.nearest(searcher, project.collection, query, wanted, where)
        collection = searcher.collection(project.collection)
        shown = [
            NearDocument(row, each, search.place_of(ws, collection, row, each.chunk))
            for each in near.found[:limit]
            if collection and (row := ws.engine.document(view.at, project.collection, each.doc_id))
        ]
        return Found(tuple(shown), len(near.found), near.best, near.least, viewed(ws, view))

    return searching(ws, look, files=False)


def retrieve(ws: Workspace, project: DocsProject, wanted: AnswerRequest) -> Retrieved:
    """Raises as `semantic`."""
    require_query(wanted.query)
    types = project.require_types(wanted.types)
    config = project.config.retrieval
    least = Threshold(Use.ANSWER, wanted.least, config.min_relevance_score)
    most = config.max_results if wanted.sources is None else wanted.sources
    levels = LEVELS[LEVELS.index(wanted.level) :] if wanted.level != LEVELS[0] else ()

    def look(searcher: Searcher, view: View) -> Retrieved:
        @cache
        def document(doc_id: str) -> Document | None:
            return ws.engine.document(view.at, project.collection, doc_id)

        def near(levels: Sequence[str], from_: Threshold) -> Matches:
            return search.nearest(searcher, project.collection, wanted.query, from_, search.filter_of(types, levels))

        critical = near(LEVELS[-1:], Threshold(Use.ANSWER, ANY)).found if wanted.critical else ()
        first = critical[: config.max_critical_docs]
        matches = near(levels, least)
        others = [each for each in matches.found if each not in first][:most]
        chosen: list[tuple[Match, IncludedAs]] = [(each, "critical") for each in first]
        chosen += [(each, "match") for each in others]
        sources = [SourceDocument(row, each, kind) for each, kind in chosen if (row := document(each.doc_id))]
        known = {each.doc_id for each in ws.engine.headers(view.at, collection=project.collection)} if sources else ()
        followed = links.follow(
            [each.document.doc_id for each in sources],
            document,
            known,
            docs=project.docs,
            depth=project.config.link_resolution.max_depth,
            most=config.max_linked_docs,
        )
        linked = [LinkedDocument(row, each.linked_from) for each in followed if (row := document(each.doc_id))]
        return Retrieved(
            searcher.collection(project.collection),
            tuple(sources),
            tuple(linked),
            matches.best,
            matches.least,
            viewed(ws, view),
        )

    return searching(ws, look, files=False)


class CollectionMatches(Record, frozen=True):
    """The best documents of several collections. `best`, `least`: as of `Matches`, over all.
    `collection`: that of the first; None without one. `files`: which are made of files.
    """

    sources: tuple[SourceDocument, ...]
    collection: Collection | None
    files: frozenset[str]
    best: float | None
    least: float
    standing: Standing


def of_collections(
    ws: Workspace, query: str, names: Sequence[str], *, sources: int, least: float | None
) -> CollectionMatches:
    """The documents of these collections (none: of all) that are nearest to a query, with files of
    sources.

    Raises `CollectionMissing`, and as `semantic`.
    """
    require_query(query)

    def look(searcher: Searcher, view: View) -> CollectionMatches:
        held = [each.name for each in searcher.collections()]
        for name in names:
            if name not in held:
                require_readable(view, name, held)
                raise no_collection(name, held)
        found = [(name, search.nearest(searcher, name, query, Threshold(Use.ANSWER, least))) for name in names or held]
        ranked = sorted(
            ((name, match) for name, matches in found for match in matches.found),
            key=lambda each: (-each[1].score, each[0], each[1].doc_id),
        )
        files = IndexedRows(view.sources.folder) if view.sources else None
        derived = frozenset(each.name for each in files.collections(view.at)) if files else frozenset()
        rows = [
            SourceDocument(row, match, "match")
            for name, match in ranked[:sources]
            if (row := (files if files and name in derived else ws.engine).document(view.at, name, match.doc_id))
        ]
        best = max((matches.best for _, matches in found if matches.best is not None), default=None)
        asked = min((matches.least for _, matches in found), default=least or 0.0)
        first = searcher.collection(rows[0].document.collection) if rows else None
        return CollectionMatches(tuple(rows), first, derived, best, asked, viewed(ws, view))

    return searching(ws, look)
