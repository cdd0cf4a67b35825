"""What an answer is made of: the documents nearest to a query, the critical ones, and those that
they link to, by Markdown links and `related_docs`. All are read at one moment.
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
from vmrag_link.retrieval.fusion import SearchPurpose
from vmrag_link.retrieval.search import Searcher
from vmrag_link.toolsets.compounding import search
from vmrag_link.toolsets.compounding.doc_types import LEVELS, Level
from vmrag_link.toolsets.compounding.project import DocsProject
from vmrag_link.toolsets.compounding.search import (
    ANY,
    Found,
    IncludedAs,
    LinkedDocument,
    Match,
    Matches,
    NearDocument,
    Threshold,
    shown_path,
)
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.query import require_query, require_readable, search_index
from vmrag_link.workspace.follow.provenance import find_view_origin
from vmrag_link.workspace.indexed_rows import IndexedRows

if TYPE_CHECKING:
    from vmrag_link.workspace import View

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
    """`include_critical`: whether critical documents come first, near or not."""

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


def search_semantic(ws: Workspace, project: DocsProject, request: SearchRequest) -> Found:
    """The documents nearest to a query. Raises `UsageInvalid`, `DocTypeInvalid`, and as
    `Searcher.search`.
    """
    require_query(request.query)
    where = search.filter_of(project.require_types(request.doc_types), request.promotion_levels)
    config = project.config.semantic_search
    wanted = Threshold(SearchPurpose.SEARCH, request.min_relevance_score, config.min_relevance_score)
    most = config.default_limit if request.limit is None else request.limit

    def look(searcher: Searcher, view: View) -> Found:
        near = search.find_nearest(searcher, project.collection, request.query, wanted, where)
        collection = searcher.find_collection(project.collection)
        shown = [
            NearDocument(
                shown_path(project.docs, row.doc_id),
                row,
                each,
                headings=search.place_of(ws, collection, row, each.chunk),
            )
            for each in near.found[:most]
            if collection and (row := ws.engine.find_document(view.at, project.collection, each.doc_id))
        ]
        return Found(collection, tuple(shown), len(near.found), near.best, near.least, find_view_origin(ws, view))

    return search_index(ws, look, files=False)


def retrieve_documents(ws: Workspace, project: DocsProject, wanted: AnswerRequest) -> Found:
    """Raises as `semantic`."""
    require_query(wanted.query)
    types = project.require_types(wanted.doc_types)
    config = project.config.retrieval
    least = Threshold(SearchPurpose.ANSWER, wanted.min_relevance_score, config.min_relevance_score)
    most = config.max_results if wanted.max_sources is None else wanted.max_sources
    levels = LEVELS[LEVELS.index(wanted.min_promotion_level) :] if wanted.min_promotion_level != LEVELS[0] else ()

    def look(searcher: Searcher, view: View) -> Found:
        @cache
        def document(doc_id: str) -> Document | None:
            return ws.engine.find_document(view.at, project.collection, doc_id)

        def near(levels: Sequence[str], from_: Threshold) -> Matches:
            return search.find_nearest(
                searcher, project.collection, wanted.query, from_, search.filter_of(types, levels)
            )

        critical = near(LEVELS[-1:], Threshold(SearchPurpose.ANSWER, ANY)).found if wanted.include_critical else ()
        first = critical[: config.max_critical_docs]
        matches = near(levels, least)
        others = [each for each in matches.found if each not in first][:most]
        chosen: list[tuple[Match, IncludedAs]] = [(each, "critical") for each in first]
        chosen += [(each, "match") for each in others]
        sources = [
            NearDocument(shown_path(project.docs, row.doc_id), row, each, kind)
            for each, kind in chosen
            if (row := document(each.doc_id))
        ]
        known = (
            {header.doc_id for header in ws.engine.read_headers(view.at, collection=project.collection)}
            if sources
            else ()
        )
        followed = follow_links(
            [source.document.doc_id for source in sources],
            document,
            known,
            docs=project.docs,
            depth=project.config.link_resolution.max_depth,
            most=config.max_linked_docs,
        )
        linked = [LinkedDocument(row, each.linked_from) for each in followed if (row := document(each.doc_id))]
        return Found(
            searcher.find_collection(project.collection),
            tuple(sources),
            len(sources),
            matches.best,
            matches.least,
            find_view_origin(ws, view),
            tuple(linked),
        )

    return search_index(ws, look, files=False)


def of_collections(ws: Workspace, query: str, names: Sequence[str], *, sources: int, least: float | None) -> Found:
    """The documents of these collections (none: of all) that are nearest to a query, with files of
    sources.

    Raises `CollectionMissing`, and as `semantic`.
    """
    require_query(query)

    def look(searcher: Searcher, view: View) -> Found:
        held = [collection.name for collection in searcher.list_collections()]
        for name in names:
            if name not in held:
                require_readable(view, name, held)
                raise no_collection(name, held)
        found = [
            (name, search.find_nearest(searcher, name, query, Threshold(SearchPurpose.ANSWER, least)))
            for name in names or held
        ]
        ranked = sorted(
            ((name, match) for name, matches in found for match in matches.found),
            key=lambda each: (-each[1].score, each[0], each[1].doc_id),
        )
        files = IndexedRows(view.sources.folder) if view.sources else None
        derived = frozenset(collection.name for collection in files.list_collections(view.at)) if files else frozenset()
        rows = [
            NearDocument(f"{name}/{row.doc_id}", row, match, file=row.doc_id if name in derived else "")
            for name, match in ranked[:sources]
            if (row := (files if files and name in derived else ws.engine).find_document(view.at, name, match.doc_id))
        ]
        best = max((matches.best for _, matches in found if matches.best is not None), default=None)
        asked = min((matches.least for _, matches in found), default=least or 0.0)
        first = searcher.find_collection(rows[0].document.collection) if rows else None
        return Found(first, tuple(rows), len(ranked), best, asked, find_view_origin(ws, view))

    return search_index(ws, look)


_TARGET = re.compile(
    r"\]\([ \t]{0,8}<?([^()\s<>]{1,500})|^ {0,3}\[[^\]\n]{1,200}\]:[ \t]{1,8}<?([^\s<>]{1,500})", re.MULTILINE
)
MOST_TARGETS = 500
"""Of one document."""


class Linked(Record, frozen=True):
    """A document that is linked from another one."""

    doc_id: str
    linked_from: str


def follow_links(
    start: Sequence[str],
    document: Callable[[str], Document | None],
    known: Container[str],
    *,
    docs: str,
    depth: int,
    most: int,
) -> list[Linked]:
    """The documents that are reached from others by links, nearest first, each once.

    `document` gives one by id, `known` are all ids; `docs`: the documents' folder.
    """
    found: list[Linked] = []
    seen, layer = {*start}, [*start]
    for _ in range(depth):
        following = []
        for source in layer:
            here = document(source)
            for target in list_references(here, known, docs=docs) if here else ():
                if target in seen:
                    continue
                if len(found) == most:
                    return found
                seen.add(target)
                following.append(target)
                found.append(Linked(target, source))
        layer = following
    return found


def list_references(document: Document, known: Container[str], *, docs: str) -> list[str]:
    """The ids of the documents that it refers to, in its order, those of `related_docs` first."""
    found: dict[str, None] = {}
    for text in _texts(document):
        target = _resolved(text, document.doc_id, known, docs)
        if target and target != document.doc_id:
            found[target] = None
    return [*found]


def _texts(document: Document) -> Iterator[str]:
    related = parse_metadata(document).get("related_docs")
    listed = [related] if isinstance(related, str) else related if isinstance(related, list) else []
    yield from (each for each in listed[:MOST_TARGETS] if isinstance(each, str))
    for number, match in enumerate(_TARGET.finditer(document.content)):
        if number == MOST_TARGETS:
            return
        yield match[1] or match[2]


def _resolved(text: str, source: str, known: Container[str], docs: str) -> str | None:
    """The document that is meant, from beside its source, from the folder, or from the root."""
    path = unquote(re.split(r"[#?]", text, maxsplit=1)[0])
    if not path or "://" in path:
        return None
    bare = path.lstrip("/")
    candidates = [] if path.startswith("/") else [posixpath.join(posixpath.dirname(source), path)]
    candidates += [bare, bare.removeprefix("./").removeprefix(f"{docs}/")]
    for candidate in candidates:
        found = posixpath.normpath(candidate)
        for name in (found, f"{found}.md"):
            if name in known:
                return name
    return None
