"""Search in libraries by meaning and by words, ranked like every other query.

A filter has keys, each with the value that a passage must have. A passage of a document with pages
has the number of its first page.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from vmrag_link import clock
from vmrag_link.documents import library_origin
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

_TIME_KEYS = ("created_at", "last_modified")
_DOCUMENT_KEYS = ("doc_id", "source", "content_hash", "title", "file_type", *_TIME_KEYS)
_NUMBER_KEYS = ("chunk_index", "page")
KEYS = ("id", *_DOCUMENT_KEYS, "library", "content", *_NUMBER_KEYS)

_UNINDEXED_KEYS = frozenset((*_DOCUMENT_KEYS, "page"))
"""Keys of a filter that the index does not have."""


def parse_filter(given: Mapping[str, Any]) -> Filter:
    """Return the filter with checked values.

    Raises `FilterInvalid` for a key outside `KEYS`, and for a value that is not a text or a whole
    number.
    """
    return {key: _check_value(key, value) for key, value in given.items()}


def narrow_query(
    ws: Workspace, at: At, query: Query, libraries: Mapping[str, Collection], filter_values: Filter
) -> Query | None:
    """Return the query of these libraries with the filter in it; None if no passage can match.

    Values that the index does not have are looked up in the knowledge base.
    """
    searched = {name: library for name, library in libraries.items() if filter_values.get("library", name) == name}
    where: list[dict[str, Any]] = []
    if "id" in filter_values:
        where += _resolve_chunk(ws, at, searched, str(filter_values["id"]))
    if "chunk_index" in filter_values:
        where.append({"chunk_index": filter_values["chunk_index"]})
    if filter_values.keys() & _UNINDEXED_KEYS:
        conditions = _look_up_conditions(ws, at, searched, filter_values)
        if not conditions:
            return None
        where.append({"$or": conditions})
    if not searched:
        return None
    text = {"$regex": rf"\A{re.escape(str(filter_values['content']))}\z"} if "content" in filter_values else None
    return msgspec.structs.replace(
        query, collections=tuple(searched), where={"$and": where} if where else None, where_document=text
    )


def _look_up_conditions(
    ws: Workspace, at: At, libraries: Mapping[str, Collection], filter_values: Filter
) -> list[dict[str, Any]]:
    """Return alternative conditions. A passage meets one of them if its document and page match."""
    whole_documents: list[str] = []
    conditions: list[dict[str, Any]] = []
    for name, collection in libraries.items():
        for document in ws.engine.read_documents(at, collection=name):
            if not _matches_filter(ws, document, filter_values):
                continue
            page = filter_values.get("page")
            if page is None or (page == NO_PAGE and not has_pages(document)):
                whole_documents.append(document.doc_id)
            elif has_pages(document):
                pages = pages_of(ws, collection, document)
                chunks = [number for number, other in enumerate(pages) if other == page]
                if chunks:
                    conditions.append({"source_id": document.doc_id, "chunk_index": {"$in": chunks}})
    return [{"source_id": {"$in": whole_documents}}, *conditions] if whole_documents else conditions


def _check_value(key: str, value: Any) -> str | int:
    if key not in KEYS:
        raise FilterInvalid(
            f"searches cannot be filtered by {key!r}.",
            hint=f"use these keys: {', '.join(sorted(KEYS))}",
            key=key,
        )
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise FilterInvalid(
            f"the filter compares {key!r} with {json.dumps(value)}, which is neither a text nor a whole number.",
            hint='pass an object, such as \'{"file_type": "pdf"}\'',
            key=key,
        )
    if key in _NUMBER_KEYS and isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value):
        return int(value)
    if key in _TIME_KEYS:
        return _normalize_time(str(value))
    return value if key in _NUMBER_KEYS else str(value)


def _normalize_time(text: str) -> str:
    """Return a time in the stored form. A text that is not a time stays, and equals nothing."""
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return text
    return clock.format_file_time((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp())


def _resolve_chunk(ws: Workspace, at: At, names: Iterable[str], name: str) -> list[dict[str, Any]]:
    """Return the document and the chunk that a name means: a document's id, or else a chunk's."""
    chunk = parse_chunk_id(name)
    if chunk is None or any(ws.engine.find_document(at, collection, name) for collection in names):
        return [{"source_id": name}]
    doc_id, number = chunk
    return [{"source_id": doc_id}, {"chunk_index": number}]


def _matches_filter(ws: Workspace, document: Document, filter_values: Filter) -> bool:
    """Return whether a document matches. A source can have its shown or its stored form."""
    for key in _DOCUMENT_KEYS:
        values = [getattr(document, key)]
        if key == "source":
            values.append(named_files.shown_source(ws, document))
        if key in filter_values and filter_values[key] not in values:
            return False
    return True


class LibraryPassage(Record, frozen=True):
    """A whole chunk of a library's document.

    `source` is in the form of `named_files.shown_source`. `page` is 0 in a text without pages.
    `score` is 1 for the best passage.
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
    """Passages, best first."""

    results: list[LibraryPassage]


def search_passages(
    ws: Workspace, text: str, *, k: int, name: str | None = None, where: Mapping[str, Any] | None = None
) -> tuple[LibraryPassages, AnswerOrigin]:
    """Return the best passages of one library or of all; none if there is no such library.

    `where` has values that must all be equal (`parse_filter`). Raises `UsageInvalid` for an empty
    query, `FilterInvalid`, `EmbeddingError` and `IndexFailed`.
    """
    require_query(text)
    filter_values = parse_filter(where or {})

    def search_view(searcher: Searcher, view: View) -> tuple[LibraryPassages, AnswerOrigin]:
        libraries = {
            library.name: library
            for library in all_libraries(ws, view.at)
            if name in (None, library.name) and searcher.find_collection(library.name)
        }
        narrowed = narrow_query(ws, view.at, Query(text, k=k, mode=Mode.HYBRID), libraries, filter_values)
        hits = searcher.search(narrowed) if narrowed else []
        keys = {(hit.collection, hit.doc_id) for hit in hits}
        documents = {key: document for key in keys if (document := ws.engine.find_document(view.at, *key))}
        pages = {
            key: pages_of(ws, libraries[document.collection], document)
            for key, document in documents.items()
            if has_pages(document)
        }
        passages: list[LibraryPassage] = []
        for hit in hits:
            key = (hit.collection, hit.doc_id)
            if key in documents:
                page = pages[key][hit.chunk] if key in pages else NO_PAGE
                passages.append(_build_passage(ws, hit, documents[key], page))
        return LibraryPassages(passages), find_view_origin(ws, view)

    return search_index(ws, search_view, files=False)


def _build_passage(ws: Workspace, hit: Hit, document: Document, page: int) -> LibraryPassage:
    return LibraryPassage(
        doc_id=document.doc_id,
        source=named_files.shown_source(ws, document),
        title=document.title,
        library=document.collection,
        file_type=document.file_type,
        last_modified=document.last_modified,
        page=page,
        content=hit.text,
        chunk_index=hit.chunk,
        metadata=library_origin.read_visible_metadata(document),
        score=hit.score,
    )


NO_PAGE = 0
"""The page of a chunk of a text without pages."""


def has_pages(document: Document) -> bool:
    return PAGE_BREAK in document.content


def pages_of(ws: Workspace, collection: Collection, document: Document) -> list[int]:
    """Return the page, from 1, of the first visible character of each chunk.

    Only for a document that `has_pages`.
    """
    pages: list[int] = []
    page = 1
    counted = 0
    for chunk in chunks_of(ws, collection, document):
        visible = chunk.start + len(chunk.text) - len(chunk.text.lstrip())
        page += document.content.count(PAGE_BREAK, counted, visible)
        counted = max(counted, visible)
        pages.append(page)
    return pages
