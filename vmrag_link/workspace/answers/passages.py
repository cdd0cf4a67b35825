"""Answer a query with places: the lines of each passage in its document and in a local file.

`vmrag query`, the Python API and the tools call `find_passages`. `query.answer_query` gives the
same results without places. `passage_places` finds the place of one passage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from vmrag_link.errors import EngineError
from vmrag_link.index import keywords
from vmrag_link.models import SOURCE, Collection, Document, Record
from vmrag_link.retrieval.code_ranking import CodeQuestion
from vmrag_link.retrieval.query import Hit, Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.shown_names import name_documents
from vmrag_link.workspace.answers.passage_places import PassagePlaces, PlacedPassage, line_at
from vmrag_link.workspace.answers.query import answer_from_index, require_query, search_index, with_untracked_matches
from vmrag_link.workspace.documents.copies import StoredCopy, find_copies
from vmrag_link.workspace.follow.provenance import KbBlock
from vmrag_link.workspace.follow.search_scope import RankedRevision

if TYPE_CHECKING:
    from vmrag_link.workspace import ReadableStore, View
    from vmrag_link.workspace.indexed_rows import IndexedRows


Key = tuple[str, str]
"""Collection and id of a document."""


class PassagePlace(Record, frozen=True):
    """The position of a chunk in a file of a source."""

    path: str
    lines: tuple[int, int] | None
    """First and last line in the file, from 1. None if the file was converted to another text."""
    symbol: str
    """The symbol of code."""
    heading: str
    """Headings above, separated by ` > `."""
    uncommitted: str
    """How the file differs from the commit."""


class PassageReport(Record, frozen=True):
    """The answer to a query, with places."""

    results: list[PlacedPassage]
    kb: KbBlock
    notes: tuple[str, ...] = ()
    """Why the answer is not from the pinned revision; empty if it is."""
    copies: tuple[StoredCopy, ...] = ()
    """Documents among the results that are copies of tracked files."""
    weak: Literal[True] | UnsetType = UNSET
    """True for a weak answer (`retrieval.weakness`), otherwise UNSET."""


def find_passages(
    ws: ReadableStore,
    query: Query,
    *,
    at: RankedRevision | None = None,
    context: int | None = None,
    neighbours: int = 0,
) -> PassageReport:
    """Answer a query like `query.answer_query`, with the place of each passage.

    `context`: number of lines to add above and below each passage. `neighbours`: number of chunks
    to add. If the documents cannot be read, the passages have no places.
    """
    require_query(query.text)

    def answer_with_places(searcher: Searcher, view: View) -> PassageReport:
        report = answer_from_index(ws, searcher, view, query)
        passages = _mark_matches(searcher, view, query.text, report.results)
        copies: tuple[StoredCopy, ...] = ()
        try:
            documents = list(read_documents(ws, searcher, view, passages))
            committed = committed_files(ws, view, documents) if at else {}
            places = {
                document.key: PassagePlaces(ws, collection, document, committed.get(document.key))
                for collection, document in documents
            }
            question = CodeQuestion(query.text)
            outdated = mark_notes(ws, documents, view.sources.commit if at and view.sources else None)
            placed = []
            for passage in passages:
                key = (passage.collection, passage.doc_id)
                place = places.get(key)
                at_place = place.place_passage(passage, context, neighbours, question=question) if place else passage
                placed.append(replace(at_place, outdated=outdated.get(key, "")))
            passages = placed
            if at is None and report.kb.in_sync:
                copies = find_copies(ws, documents)
        except EngineError as error:  # the index answers without the knowledge base
            ws.progress.note(f"cannot find the places of the results: {error.message}")
        return PassageReport(passages, report.kb, report.notes, copies, report.weak)

    report = search_index(ws, answer_with_places, at=at)
    return report if at else replace(report, kb=with_untracked_matches(ws, query, report.kb))


def file_places(
    ws: ReadableStore, searcher: Searcher, view: View, query: str, hits: Sequence[Hit]
) -> list[PassagePlace | None]:
    """Return the places of results in files of sources; None for results of other collections."""
    is_code = {row.name: row.is_code for row in searcher.list_collections() if row.kind == SOURCE}
    if view.sources is None or not is_code.keys() & {hit.collection for hit in hits}:
        return [None] * len(hits)
    passages = _mark_matches(searcher, view, query, hits)
    texts = [passage for passage in passages if is_code.get(passage.collection) is False]
    document_places = {
        document.key: PassagePlaces(ws, collection, document)
        for collection, document in read_documents(ws, searcher, view, texts)
    }
    places: list[PassagePlace | None] = []
    for passage in passages:
        place = None
        if passage.collection in is_code:
            document_place = document_places.get((passage.collection, passage.doc_id))
            place = _form_file_place(passage, document_place, is_code=is_code[passage.collection])
        places.append(place)
    return places


def _form_file_place(passage: PlacedPassage, document_place: PassagePlaces | None, *, is_code: bool) -> PassagePlace:
    """Return the place of a passage in its file.

    `document_place`: None for code, whose index has its lines, and for unreadable documents.
    """
    lines = (passage.metadata["line"], passage.metadata["last_line"]) if is_code else None
    heading = ""
    if document_place:
        heading = document_place.place_passage(passage).header_path
        lines = document_place.file_lines(passage)
    path = document_place.path if document_place else None
    return PassagePlace(path or passage.doc_id, lines, passage.symbol, heading, passage.uncommitted)


def _mark_matches(searcher: Searcher, view: View, query: str, hits: Sequence[Hit]) -> list[PlacedPassage]:
    """Return the hits with names, matching words and symbols, without reading their documents."""
    code = {collection.name for collection in searcher.list_collections() if collection.is_code}
    uncommitted = view.sources.uncommitted if view.sources else {}
    names = names_of_hits(searcher, hits)
    texts = [hit.text for hit in hits]
    return [
        PlacedPassage(
            **msgspec.structs.asdict(hit),
            name=names[hit.collection, hit.doc_id],
            matches=tuple(spans),
            best=_find_best(hit.text, spans),
            symbol=hit.metadata.get("symbol", "") if hit.collection in code else "",
            uncommitted=uncommitted.get(hit.collection, {}).get(hit.doc_id, ""),
        )
        for hit, spans in zip(hits, keywords.find_matches(query, texts), strict=True)
    ]


def mark_notes(
    ws: ReadableStore, documents: Sequence[tuple[Collection, Document]], commit: str | None
) -> Mapping[Key, str]:
    """Return a sentence for each outdated note, by key.

    `commit`: the commit that is searched, None for the work tree.
    """
    if not any(collection.has_notes for collection, _ in documents):
        return {}
    from vmrag_link.workspace.documents.outdated_marks import find_outdated  # most answers have no notes

    return find_outdated(ws, documents, commit)


def names_of_hits(searcher: Searcher, hits: Iterable[Hit]) -> dict[Key, str]:
    """Return the printed name of each hit's document (`shown_names`)."""
    return names_of_keys(searcher, ((hit.collection, hit.doc_id) for hit in hits))


def names_of_keys(searcher: Searcher, keys: Iterable[Key]) -> dict[Key, str]:
    """Return the printed name of each document (`shown_names`)."""
    rows = {row.name: row for row in searcher.list_collections()}
    sources = {name for name, row in rows.items() if row.has_paths_as_ids}
    return name_documents(keys, sources, rows, searcher.count_chunks)


def _find_best(text: str, spans: Sequence[tuple[int, int]]) -> int:
    """Return the start of the first match in the line with the most matches.

    `spans`: the matches. Without matches, return the start of the first word.
    """
    if not spans:
        return len(text) - len(text.lstrip())
    matches_by_line = Counter(line_at(text, start) for start, _ in spans)
    return max((start for start, _ in spans), key=lambda start: matches_by_line[line_at(text, start)])


def read_documents(
    ws: ReadableStore, searcher: Searcher, view: View, passages: Sequence[Hit]
) -> Iterator[tuple[Collection, Document]]:
    """Yield the documents of the passages, each once: files from their index, others as stored."""
    ids: dict[str, dict[str, None]] = {}  # the inner dict is an ordered set
    for passage in passages:
        ids.setdefault(passage.collection, {})[passage.doc_id] = None
    files: IndexedRows | None = None
    file_collections: dict[str, Collection] = {}
    if view.sources:
        from vmrag_link.workspace.indexed_rows import IndexedRows

        files = IndexedRows(view.sources.folder)
        file_collections = {collection.name: collection for collection in files.list_collections(view.at)}
    stored_collections: dict[str, Collection] = {}
    if ids.keys() - file_collections.keys():
        stored_collections = {collection.name: collection for collection in ws.engine.list_collections(view.at)}
    for name, doc_ids in ids.items():
        # A row that SQL wrote may lack its collection.
        collection = file_collections.get(name) or stored_collections.get(name) or searcher.find_collection(name)
        rows = files if files and name in file_collections else ws.engine
        if collection:
            for document in rows.read_documents(view.at, collection=name, ids=doc_ids):
                yield collection, document


def committed_files(
    ws: ReadableStore, view: View, documents: Sequence[tuple[Collection, Document]]
) -> dict[Key, bytes]:
    """Return the contents of files of sources at the commit that answers.

    They are empty for a file whose blob this clone lacks.
    """
    if view.sources is None:
        return {}
    from vmrag_link.git import readonly
    from vmrag_link.paths import BorrowedParts
    from vmrag_link.sync import source_views

    tags = source_views.read_contents(view.sources.folder).tags
    keys = [document.key for collection, document in documents if collection.kind == SOURCE]
    blobs = {key: tags[key[0]][key[1]].partition(" ")[0] for key in keys}
    objects = view.sources.objects
    places = ws.places._replace(borrowed=BorrowedParts(objects)) if objects else ws.places
    contents = readonly.read_blobs(places, blobs.values())
    return {key: contents.get(blob, b"") for key, blob in blobs.items()}
