"""Answers for people: each passage with its place in its document, and in a file that is here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from vmrag_link import terminal_text
from vmrag_link.documents.headings import header_path
from vmrag_link.errors import EngineError
from vmrag_link.git import blobs_here
from vmrag_link.index import keywords
from vmrag_link.models import SOURCE, Collection, Document, Record, pieces_of
from vmrag_link.ops.documents import stale
from vmrag_link.ops.documents.document_selection import chunks_of
from vmrag_link.ops.documents.source_files import line_of, lines_of, source_file, written_lines
from vmrag_link.ops.documents.stale import StaleReport
from vmrag_link.ops.follow.provenance import KbBlock
from vmrag_link.ops.follow.ranked_place import RankedRevision
from vmrag_link.ops.index.query import answer, require_query, searching
from vmrag_link.retrieval.query import Hit, Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.sync import source_views
from vmrag_link.workspace import ReadableStore, View, Workspace
from vmrag_link.workspace.indexed_rows import IndexedRows

_UNTITLED = frozenset(("text", "rst", "asciidoc", "csv", "json", "xml"))
"""Types of files in whose texts a line that begins with `#` is no heading."""


class Excerpt(Record, frozen=True):
    """Whole lines of a document; `first` counts from 1."""

    first: int
    lines: list[str]


class PlacedPassage(Hit, frozen=True):
    """A hit and where it stands.

    `matches`: the characters of its text that are words of the query, from and to; `best`: the
    first of them in the line that has most, the first character where there are none.
    `header_path`: the headings above that place, with ` > ` between them; `line`: its line in the
    document's text, from 1. `file`: the path of the document's file below the top of the work tree,
    or an absolute one; `file_line`: the same line there, or in the commit whose files are asked.
    `excerpt`: only where it is asked for.
    `symbol`: what of code it is, with its parents. `uncommitted`: how the file of a source differs
    from the commit.
    """

    matches: tuple[tuple[int, int], ...] = ()
    best: int = 0
    header_path: str = ""
    line: int | None = None
    file: str | None = None
    file_line: int | None = None
    excerpt: Excerpt | None = None
    symbol: str = ""
    uncommitted: str = ""


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
    """`notes`: why the answer is not from the pinned revision, if so. `stale`: of which documents
    among its sources the files were changed since.
    """

    results: list[PlacedPassage]
    kb: KbBlock
    notes: tuple[str, ...] = ()
    stale: StaleReport | None = None


def passages(
    ws: ReadableStore, asked: Query, *, at: RankedRevision | None = None, context: int | None = None
) -> PassageReport:
    """As `query.query`, with the place of each passage.

    `context`: so many lines of the document above and below it, too.
    """
    require_query(asked.text)

    def look(searcher: Searcher, view: View) -> PassageReport:
        found = answer(ws, searcher, view, asked)
        passages = _marked(asked.text, found.results, view.sources.uncommitted if view.sources else {})
        outdated = None
        try:
            read = list(_read(ws, searcher, view, passages))
            committed = _committed(ws, view, read) if at else {}
            passages = _placed(ws, read, passages, context, committed)
            if at is None and isinstance(ws, Workspace):
                outdated = stale.report(ws, stale.among_documents(ws, read))
        except EngineError as why:  # the index answers without the knowledge base
            ws.progress.note(f"Where the answers stand cannot be told: {why.message}")
        return PassageReport(passages, found.kb, found.notes, outdated)

    return searching(ws, look, at=at)


def file_places(
    ws: ReadableStore, searcher: Searcher, view: View, query: str, hits: Sequence[Hit]
) -> list[PassagePlace | None]:
    """Where these answers to a query stand; None for those that are of no source."""
    derived = {each.name for each in searcher.collections() if each.kind == SOURCE}
    if view.sources is None or not derived.intersection(each.collection for each in hits):
        return [None] * len(hits)
    passages = _marked(query, hits, view.sources.uncommitted)
    of_text = [each for each in passages if each.collection in derived and "last_line" not in each.metadata]
    places = {document.key: _Places(ws, found, document) for found, document in _read(ws, searcher, view, of_text)}
    return [
        _file_place(each, places.get((each.collection, each.doc_id))) if each.collection in derived else None
        for each in passages
    ]


def _file_place(passage: PlacedPassage, there: _Places | None) -> PassagePlace:
    about, heading = passage.metadata, ""
    lines = (about["line"], about["last_line"]) if "last_line" in about else None
    if there:
        heading, lines = there.of(passage, None).header_path, there.file_lines(passage)
    return PassagePlace(passage.doc_id, lines, passage.symbol, heading, passage.uncommitted)


def _marked(query: str, hits: Sequence[Hit], uncommitted: Mapping[str, Mapping[str, str]]) -> list[PlacedPassage]:
    texts = [hit.text for hit in hits]
    return [
        PlacedPassage(
            **msgspec.structs.asdict(hit),
            matches=tuple(spans),
            best=_best(hit.text, spans),
            symbol=hit.metadata.get("symbol", "") if _is_code(hit) else "",
            uncommitted=uncommitted.get(hit.collection, {}).get(hit.doc_id, ""),
        )
        for hit, spans in zip(hits, keywords.matches(query, texts), strict=True)
    ]


def _best(text: str, spans: Sequence[tuple[int, int]]) -> int:
    if not spans:
        return len(text) - len(text.lstrip())
    lines = [_line_at(text, start) for start, _ in spans]
    return spans[max(range(len(spans)), key=lambda each: (lines.count(lines[each]), -each))][0]


def _read(
    ws: ReadableStore, searcher: Searcher, view: View, passages: Sequence[PlacedPassage]
) -> Iterator[tuple[Collection, Document]]:
    """The documents of the passages, each once."""
    ids: dict[str, dict[str, None]] = {}
    for each in passages:
        ids.setdefault(each.collection, {})[each.doc_id] = None
    files = IndexedRows(view.sources.folder) if view.sources else None
    derived = {each.name: each for each in files.collections(view.at)} if files else {}
    rows = {each.name: each for each in ws.engine.collections(view.at)} if ids.keys() - derived.keys() else {}
    for name, some in ids.items():
        collection = derived.get(name) or rows.get(name) or searcher.collection(name)  # SQL may have left out its row
        store = files if files and name in derived else ws.engine
        if collection:
            yield from ((collection, document) for document in store.documents(view.at, collection=name, ids=some))


def _placed(
    ws: ReadableStore,
    read: Sequence[tuple[Collection, Document]],
    passages: Sequence[PlacedPassage],
    context: int | None,
    committed: Mapping[tuple[str, str], bytes],
) -> list[PlacedPassage]:
    """The passages with their places. `committed`: files as they are at the place that is asked."""
    places = {
        document.key: _Places(ws, collection, document, committed.get(document.key)) for collection, document in read
    }
    found = ((each, places.get((each.collection, each.doc_id))) for each in passages)
    return [there.of(each, context) if there else each for each, there in found]


def _committed(
    ws: ReadableStore, view: View, read: Sequence[tuple[Collection, Document]]
) -> dict[tuple[str, str], bytes]:
    """What the files of sources among these are at the commit that answers; nothing for one that
    this clone has not any more.
    """
    if view.sources is None:
        return {}
    tags = source_views.read(view.sources.folder).tags
    keys = [document.key for collection, document in read if collection.kind == SOURCE]
    blobs = {key: tags[key[0]][key[1]].partition(" ")[0] for key in keys}
    contents = blobs_here.contents(ws.places, blobs.values())
    return {key: contents.get(blob, b"") for key, blob in blobs.items()}


class _Places:
    """The places in one document. `committed`: its file, where a commit is asked."""

    def __init__(
        self, ws: ReadableStore, collection: Collection, document: Document, committed: bytes | None = None
    ) -> None:
        self._ws, self._collection, self._document = ws, collection, document
        self._file: str | None = document.source
        if committed is not None:
            self._written = lines_of(committed)
            return
        file = source_file(ws.places, collection, document)
        self._file = _named(ws, file) if file else None
        self._written = written_lines(file, document, as_written=collection.kind == SOURCE) if file else None

    def of(self, passage: PlacedPassage, context: int | None) -> PlacedPassage:
        start = self._start(passage)
        if start is None:
            return passage
        document, text = self._document, self._document.content
        line, untitled = _line_at(text, start + passage.best), document.file_type in _UNTITLED or _is_code(passage)
        return msgspec.structs.replace(
            passage,
            header_path="" if untitled else header_path(text, start + passage.best),
            line=line,
            file=self._file,
            file_line=None if self._written is None else line_of(line, self._written, document),
            excerpt=None if context is None else _excerpt(text, start, start + len(passage.text), context),
        )

    def file_lines(self, passage: PlacedPassage) -> tuple[int, int] | None:
        """The first and the last line in the file; None where it does not hold them."""
        start = self._start(passage)
        if start is None or self._written is None:
            return None
        text, passed = self._document.content, passage.text
        ends = (start + len(passed) - len(passed.lstrip()), start + len(passed.rstrip()))
        first, last = (line_of(_line_at(text, each), self._written, self._document) for each in ends)
        return (first, last) if first and last and first <= last else None

    def _start(self, passage: PlacedPassage) -> int | None:
        """Where a passage begins in the text; None if it does not stand there."""
        text = self._document.content
        if _is_code(passage):
            return int(pieces_of(self._document)[passage.chunk][0])
        first = text.find(passage.text)
        if first < 0:
            return None
        if text.find(passage.text, first + 1) < 0:
            return first
        pieces = chunks_of(self._ws, self._collection, self._document)
        return pieces[passage.chunk].start if passage.chunk < len(pieces) else None


def _is_code(passage: Hit) -> bool:
    """Whether it was cut by symbols."""
    return "last_line" in passage.metadata


def _named(ws: ReadableStore, file: Path) -> str:
    """Equal on every machine, for a file of the repository."""
    top = Path(os.path.realpath(ws.places.top))
    return file.relative_to(top).as_posix() if file.is_relative_to(top) else str(file)


def _line_at(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _excerpt(text: str, start: int, end: int, context: int) -> Excerpt:
    """The lines of these characters, and so many around them, without empty ones at the ends."""
    passage = text[start:end]
    start += len(passage) - len(passage.lstrip())
    end -= len(passage) - len(passage.rstrip())
    lines = terminal_text.lines(text)
    first = max(1, _line_at(text, start) - context)
    return Excerpt(first, lines[first - 1 : _line_at(text, max(start, end)) + context])
