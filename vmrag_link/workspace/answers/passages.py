"""Answers for people: each passage with its place in its document, and in a file that is here."""

from __future__ import annotations

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
from vmrag_link.workspace.follow.provenance import KbBlock, RankedRevision

if TYPE_CHECKING:
    from vmrag_link.workspace import ReadableStore, View
    from vmrag_link.workspace.indexed_rows import IndexedRows


class PassagePlace(Record, frozen=True):
    """Where a chunk of a source's document stands: in which file, and from which line to which
    there, from 1; None where the file's lines are not the text's.

    `symbol`: what of code it is; `heading`: the headings above it, with ` > ` between them.
    `uncommitted`: how the file differs from the commit.
    """

    path: str
    lines: tuple[int, int] | None
    symbol: str
    heading: str
    uncommitted: str


class PassageReport(Record, frozen=True):
    """`notes`: why the answer is not from the pinned revision, if so. `copies`: the
    documents among the results that are copies of tracked files.
    """

    results: list[PlacedPassage]
    kb: KbBlock
    notes: tuple[str, ...] = ()
    copies: tuple[StoredCopy, ...] = ()
    weak: Literal[True] | UnsetType = UNSET
    """True for a weak answer (`retrieval.weakness`), otherwise UNSET."""


def find_passages(
    ws: ReadableStore,
    asked: Query,
    *,
    at: RankedRevision | None = None,
    context: int | None = None,
    neighbours: int = 0,
) -> PassageReport:
    """As `query.query`, with the place of each passage.

    `context`: so many lines of the document above and below it, too; `neighbours`: so many chunks.
    """
    require_query(asked.text)

    def look(searcher: Searcher, view: View) -> PassageReport:
        found = answer_from_index(ws, searcher, view, asked)
        passages = _marked(searcher, view, asked.text, found.results)
        copies: tuple[StoredCopy, ...] = ()
        try:
            read = list(read_documents(ws, searcher, view, passages))
            committed = committed_files(ws, view, read) if at else {}
            places = _places(ws, read, committed)
            question = CodeQuestion(asked.text)
            passages = [
                there.place_passage(each, context, neighbours, question=question) if there else each
                for each, there in ((each, places.get((each.collection, each.doc_id))) for each in passages)
            ]
            outdated = mark_notes(ws, read, view.sources.commit if at and view.sources else None)
            passages = [
                replace(passage, outdated=outdated.get((passage.collection, passage.doc_id), ""))
                for passage in passages
            ]
            if at is None and found.kb.in_sync:
                copies = find_copies(ws, read)
        except EngineError as why:  # the index answers without the knowledge base
            ws.progress.note(f"Where the answers stand cannot be told: {why.message}")
        return PassageReport(passages, found.kb, found.notes, copies, found.weak)

    report = search_index(ws, look, at=at)
    return report if at else replace(report, kb=with_untracked_matches(ws, asked, report.kb))


def file_places(
    ws: ReadableStore, searcher: Searcher, view: View, query: str, hits: Sequence[Hit]
) -> list[PassagePlace | None]:
    """Where these answers to a query stand; None for those that are of no source."""
    derived = {collection.name: collection for collection in searcher.list_collections() if collection.kind == SOURCE}
    if view.sources is None or not derived.keys() & {hit.collection for hit in hits}:
        return [None] * len(hits)
    passages = _marked(searcher, view, query, hits)
    code = {name for name, each in derived.items() if each.is_code}
    of_text = [passage for passage in passages if passage.collection in derived.keys() - code]
    places = {
        document.key: PassagePlaces(ws, found, document)
        for found, document in read_documents(ws, searcher, view, of_text)
    }
    return [
        _file_place(passage, places.get((passage.collection, passage.doc_id)), is_code=passage.collection in code)
        if passage.collection in derived
        else None
        for passage in passages
    ]


def _file_place(passage: PlacedPassage, there: PassagePlaces | None, *, is_code: bool) -> PassagePlace:
    """`there`: None for code, whose index knows its lines, and for what cannot be read."""
    lines = (passage.metadata["line"], passage.metadata["last_line"]) if is_code else None
    heading = ""
    if there:
        heading, lines = there.place_passage(passage).header_path, there.file_lines(passage)
    path = there.path if there else None
    return PassagePlace(path or passage.doc_id, lines, passage.symbol, heading, passage.uncommitted)


def _marked(searcher: Searcher, view: View, query: str, hits: Sequence[Hit]) -> list[PlacedPassage]:
    """What is known without their documents."""
    code = {collection.name for collection in searcher.list_collections() if collection.is_code}
    uncommitted = view.sources.uncommitted if view.sources else {}
    names = names_of_hits(searcher, hits)
    texts = [hit.text for hit in hits]
    return [
        PlacedPassage(
            **msgspec.structs.asdict(hit),
            name=names[hit.collection, hit.doc_id],
            matches=tuple(spans),
            best=_best(hit.text, spans),
            symbol=hit.metadata.get("symbol", "") if hit.collection in code else "",
            uncommitted=uncommitted.get(hit.collection, {}).get(hit.doc_id, ""),
        )
        for hit, spans in zip(hits, keywords.find_matches(query, texts), strict=True)
    ]


def mark_notes(
    ws: ReadableStore, documents: Sequence[tuple[Collection, Document]], commit: str | None
) -> Mapping[tuple[str, str], str]:
    """Return the marks of outdated notes, as `find_outdated` does."""
    if not any(collection.has_notes for collection, _ in documents):
        return {}
    from vmrag_link.workspace.documents.outdated_marks import find_outdated  # most answers have no notes

    return find_outdated(ws, documents, commit)


def names_of_hits(searcher: Searcher, hits: Iterable[Hit]) -> dict[tuple[str, str], str]:
    """Return the names of the documents, as in `shown_names`."""
    return names_of_keys(searcher, ((hit.collection, hit.doc_id) for hit in hits))


def names_of_keys(searcher: Searcher, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the names of documents in the index of a searcher, as in `shown_names`."""
    rows = {row.name: row for row in searcher.list_collections()}
    sources = {name for name, row in rows.items() if row.has_paths_as_ids}
    return name_documents(keys, sources, rows, searcher.count_chunks)


def _best(text: str, spans: Sequence[tuple[int, int]]) -> int:
    if not spans:
        return len(text) - len(text.lstrip())
    lines = [line_at(text, start) for start, _ in spans]
    return spans[max(range(len(spans)), key=lambda number: (lines.count(lines[number]), -number))][0]


def read_documents(
    ws: ReadableStore, searcher: Searcher, view: View, passages: Sequence[Hit]
) -> Iterator[tuple[Collection, Document]]:
    """The documents of the passages, each once."""
    ids: dict[str, dict[str, None]] = {}
    for passage in passages:
        ids.setdefault(passage.collection, {})[passage.doc_id] = None
    files = _open_files(view)
    derived = {each.name: each for each in files.list_collections(view.at)} if files else {}
    rows = {each.name: each for each in ws.engine.list_collections(view.at)} if ids.keys() - derived.keys() else {}
    for name, some in ids.items():
        collection = (
            derived.get(name) or rows.get(name) or searcher.find_collection(name)
        )  # SQL may have left out its row
        store = files if files and name in derived else ws.engine
        if collection:
            yield from ((collection, document) for document in store.read_documents(view.at, collection=name, ids=some))


def _open_files(view: View) -> IndexedRows | None:
    if view.sources is None:
        return None
    from vmrag_link.workspace.indexed_rows import IndexedRows

    return IndexedRows(view.sources.folder)


def _places(
    ws: ReadableStore, read: Sequence[tuple[Collection, Document]], committed: Mapping[tuple[str, str], bytes]
) -> dict[tuple[str, str], PassagePlaces]:
    """Those in each document. `committed`: files as they are at the place that is asked."""
    return {
        document.key: PassagePlaces(ws, collection, document, committed.get(document.key))
        for collection, document in read
    }


def committed_files(
    ws: ReadableStore, view: View, read: Sequence[tuple[Collection, Document]]
) -> dict[tuple[str, str], bytes]:
    """What the files of sources among these are at the commit that answers; nothing for one that
    this clone has not any more.
    """
    if view.sources is None:
        return {}
    from vmrag_link.git import beside
    from vmrag_link.paths import BorrowedParts
    from vmrag_link.sync import source_views

    tags = source_views.read_contents(view.sources.folder).tags
    keys = [document.key for collection, document in read if collection.kind == SOURCE]
    blobs = {key: tags[key[0]][key[1]].partition(" ")[0] for key in keys}
    objects = view.sources.objects
    places = ws.places._replace(borrowed=BorrowedParts(objects)) if objects else ws.places
    contents = beside.read_blobs(places, blobs.values())
    return {key: contents.get(blob, b"") for key, blob in blobs.items()}
