"""Search in libraries, by meaning and by words at once, ranked as every other query is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vmrag_link.documents import origin
from vmrag_link.models import Document, Record
from vmrag_link.ops.documents import named_files
from vmrag_link.ops.follow.provenance import Standing, viewed
from vmrag_link.ops.index.query import require_query, searching
from vmrag_link.retrieval.query import Hit, Mode, Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.toolsets.libraries import library, paging, search_filter
from vmrag_link.workspace import View, Workspace


class LibraryPassage(Record, frozen=True):
    """A chunk of a library's document, whole. `source`: as `named_files.shown_source`; `page` is 0
    in a text without pages; `score` from 1 downwards.
    """

    doc_id: str
    source: str
    title: str
    library: str
    file_type: str
    last_modified: str
    page: int
    content: str
    chunk_index: int
    metadata: dict[str, Any]
    score: float


class LibraryPassages(Record, frozen=True):
    passages: list[LibraryPassage]
    standing: Standing


def search(
    ws: Workspace, text: str, *, k: int, name: str | None = None, where: Mapping[str, Any] | None = None
) -> LibraryPassages:
    """The best passages of one library or of all; none where there is no such library.

    `where`: values that must all be equal (`search_filter`). Raises `UsageInvalid` for a query
    without a character, `FilterInvalid`, `Embedding` errors, `IndexFailed`.
    """
    require_query(text)
    wanted = search_filter.parse(where or {})

    def look(searcher: Searcher, view: View) -> LibraryPassages:
        there = library.libraries(ws, view.at)
        libraries = {each.name: each for each in there if name in (None, each.name) and searcher.collection(each.name)}
        narrowed = search_filter.narrow(ws, view.at, Query(text, k=k, mode=Mode.HYBRID), libraries, wanted)
        hits = searcher.search(narrowed) if narrowed else []
        rows = {key: ws.engine.document(view.at, *key) for key in {(hit.collection, hit.doc_id) for hit in hits}}
        paged = [row for row in rows.values() if row and paging.has_pages(row)]
        pages = {row.key: paging.pages_of(ws, libraries[row.collection], row) for row in paged}
        found = [
            _passage(ws, hit, row, pages[row.key][hit.chunk] if row.key in pages else paging.NO_PAGE)
            for hit in hits
            if (row := rows[hit.collection, hit.doc_id])
        ]
        return LibraryPassages(found, viewed(ws, view))

    return searching(ws, look, files=False)


def _passage(ws: Workspace, hit: Hit, document: Document, page: int) -> LibraryPassage:
    return LibraryPassage(
        document.doc_id,
        named_files.shown_source(ws, document),
        document.title,
        document.collection,
        document.file_type,
        document.last_modified,
        page,
        hit.text,
        hit.chunk,
        origin.shown_metadata(document),
        hit.score,
    )
