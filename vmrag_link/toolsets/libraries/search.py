"""Search in libraries, by meaning and by words at once, ranked as every other query is.

A filter has keys, each with the one value that a passage must have. A passage of a text with pages
says on which page it begins.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from vmrag_link import clock
from vmrag_link.documents import import_base
from vmrag_link.errors import FilterInvalid
from vmrag_link.index.metadata import parse_chunk_id
from vmrag_link.models import PAGE_BREAK, At, Collection, Document, Record
from vmrag_link.retrieval.query import Hit, Mode, Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.toolsets.libraries.ingest import all_libraries
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.query import require_query, search_index
from vmrag_link.workspace.documents import named_files
from vmrag_link.workspace.documents.document_selection import chunks_of
from vmrag_link.workspace.follow.provenance import AnswerOrigin, find_view_origin

if TYPE_CHECKING:
    from vmrag_link.workspace import View

Filter = Mapping[str, str | int]

_TIMES = ("created_at", "last_modified")
_OF_DOCUMENT = ("doc_id", "source", "content_hash", "title", "file_type", *_TIMES)
_NUMBERS = ("chunk_index", "page")
KEYS = ("id", *_OF_DOCUMENT, "library", "content", *_NUMBERS)

_LOOKED_UP = frozenset((*_OF_DOCUMENT, "page"))
"""What the index does not hold."""


def parse_filter(given: Mapping[str, Any]) -> Filter:
    """Raises `FilterInvalid` for another key than `KEYS`, and a value that is no text and no whole
    number.
    """
    return {key: _value(key, value) for key, value in given.items()}


def narrow_query(
    ws: Workspace, at: At, asked: Query, libraries: Mapping[str, Collection], wanted: Filter
) -> Query | None:
    """The query of these libraries with the filter in it; None if no passage can pass.

    What the index does not hold of a document is looked up in the knowledge base.
    """
    among = {name: library for name, library in libraries.items() if wanted.get("library", name) == name}
    where: list[dict[str, Any]] = []
    if "id" in wanted:
        where += _of_chunk(ws, at, among, str(wanted["id"]))
    if "chunk_index" in wanted:
        where.append({"chunk_index": wanted["chunk_index"]})
    if wanted.keys() & _LOOKED_UP:
        found = _looked_up(ws, at, among, wanted)
        where.append({"$or": found})
        among = among if found else {}
    if not among:
        return None
    text = {"$regex": rf"\A{re.escape(str(wanted['content']))}\z"} if "content" in wanted else None
    return msgspec.structs.replace(
        asked, collections=tuple(among), where={"$and": where} if where else None, where_document=text
    )


def _looked_up(ws: Workspace, at: At, among: Mapping[str, Collection], wanted: Filter) -> list[dict[str, Any]]:
    """Conditions of which a passage meets one if its document and its page are those wanted."""
    whole: list[str] = []
    some: list[dict[str, Any]] = []
    for name, collection in among.items():
        for document in ws.engine.read_documents(at, collection=name):
            if not _passes(ws, document, wanted):
                continue
            page = wanted.get("page")
            if page is None or (page == NO_PAGE and not has_pages(document)):
                whole.append(document.doc_id)
            elif has_pages(document):
                pages = pages_of(ws, collection, document)
                chunks = [number for number, each in enumerate(pages) if each == page]
                some += [{"source_id": document.doc_id, "chunk_index": {"$in": chunks}}] if chunks else []
    return [*([{"source_id": {"$in": whole}}] if whole else []), *some]


def _value(key: str, value: Any) -> str | int:
    if key not in KEYS:
        raise FilterInvalid(
            f"The filter asks for {key!r}, which a search cannot filter by.",
            hint=f"It takes {', '.join(sorted(KEYS))}.",
            key=key,
        )
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise FilterInvalid(
            f"The filter compares {key!r} with {json.dumps(value)}, which is neither a text nor a whole number.",
            hint='For example: {"file_type": "pdf"}',
            key=key,
        )
    if key in _NUMBERS and isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value):
        return int(value)
    if key in _TIMES:
        return _moment(str(value))
    return value if key in _NUMBERS else str(value)


def _moment(text: str) -> str:
    """A time in whatever zone, as it is stored; what is no time stays, and equals nothing."""
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return text
    return clock.format_file_time((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp())


def _of_chunk(ws: Workspace, at: At, names: Iterable[str], name: str) -> list[dict[str, Any]]:
    """What a chunk's name means: a document that has it, else a chunk of one."""
    found = parse_chunk_id(name)
    if found is None or any(ws.engine.find_document(at, each, name) for each in names):
        return [{"source_id": name}]
    doc_id, number = found
    return [{"source_id": doc_id}, {"chunk_index": number}]


def _passes(ws: Workspace, document: Document, wanted: Filter) -> bool:
    """A source may be given as it is shown, or as it is stored."""
    for key in _OF_DOCUMENT:
        values = (getattr(document, key), *((named_files.shown_source(ws, document),) if key == "source" else ()))
        if key in wanted and wanted[key] not in values:
            return False
    return True


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
    """Best first."""

    results: list[LibraryPassage]


def search_passages(
    ws: Workspace, text: str, *, k: int, name: str | None = None, where: Mapping[str, Any] | None = None
) -> tuple[LibraryPassages, AnswerOrigin]:
    """The best passages of one library or of all; none where there is no such library.

    `where`: values that must all be equal (`search_filter`). Raises `UsageInvalid` for a query
    without a character, `FilterInvalid`, `Embedding` errors, `IndexFailed`.
    """
    require_query(text)
    wanted = parse_filter(where or {})

    def look(searcher: Searcher, view: View) -> tuple[LibraryPassages, AnswerOrigin]:
        there = all_libraries(ws, view.at)
        libraries = {
            each.name: each for each in there if name in (None, each.name) and searcher.find_collection(each.name)
        }
        narrowed = narrow_query(ws, view.at, Query(text, k=k, mode=Mode.HYBRID), libraries, wanted)
        hits = searcher.search(narrowed) if narrowed else []
        rows = {key: ws.engine.find_document(view.at, *key) for key in {(hit.collection, hit.doc_id) for hit in hits}}
        paged = [row for row in rows.values() if row and has_pages(row)]
        pages = {row.key: pages_of(ws, libraries[row.collection], row) for row in paged}
        found = [
            _passage(ws, hit, row, pages[row.key][hit.chunk] if row.key in pages else NO_PAGE)
            for hit in hits
            if (row := rows[hit.collection, hit.doc_id])
        ]
        return LibraryPassages(found), find_view_origin(ws, view)

    return search_index(ws, look, files=False)


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
        import_base.read_visible_metadata(document),
        hit.score,
    )


NO_PAGE = 0
"""The page of a chunk of a text without pages."""


def has_pages(document: Document) -> bool:
    return PAGE_BREAK in document.content


def pages_of(ws: Workspace, collection: Collection, document: Document) -> list[int]:
    """The page, from 1, of the first character that is seen of each chunk. Only for one that
    `has_pages`.
    """
    pages, page, counted = [], 1, 0
    for chunk in chunks_of(ws, collection, document):
        seen = chunk.start + len(chunk.text) - len(chunk.text.lstrip())
        page += document.content.count(PAGE_BREAK, counted, seen)
        counted = max(counted, seen)
        pages.append(page)
    return pages
