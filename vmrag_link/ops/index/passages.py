"""Answers for people: each passage with its place in its document, and in a file that is here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from vmrag_link import terminal_text
from vmrag_link.documents.headings import header_path
from vmrag_link.errors import EngineError
from vmrag_link.index import keywords
from vmrag_link.models import At, Collection, Document, Record
from vmrag_link.ops.documents import stale
from vmrag_link.ops.documents.document_selection import chunks_of
from vmrag_link.ops.documents.source_files import line_of, source_file, written_lines
from vmrag_link.ops.documents.stale import StaleReport
from vmrag_link.ops.follow.provenance import KbBlock
from vmrag_link.ops.index.query import RankedRevision, answer, require_query, searching
from vmrag_link.retrieval.query import Hit, Query
from vmrag_link.retrieval.search import Searcher
from vmrag_link.workspace import DocumentStore, View, Workspace

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
    or an absolute one; `file_line`: the same line there. `excerpt`: only where it is asked for.
    """

    matches: tuple[tuple[int, int], ...] = ()
    best: int = 0
    header_path: str = ""
    line: int | None = None
    file: str | None = None
    file_line: int | None = None
    excerpt: Excerpt | None = None


class PassageReport(Record, frozen=True):
    """`notes`: why the answer is not from the pinned revision, if so. `stale`: of which documents
    among its sources the files were changed since.
    """

    results: list[PlacedPassage]
    kb: KbBlock
    notes: tuple[str, ...] = ()
    stale: StaleReport | None = None


def passages(
    ws: DocumentStore, asked: Query, *, at: RankedRevision | None = None, context: int | None = None
) -> PassageReport:
    """As `query.query`, with the place of each passage.

    `context`: so many lines of the document above and below it, too.
    """
    require_query(asked.text)

    def look(searcher: Searcher, view: View) -> PassageReport:
        found = answer(ws, searcher, view, asked)
        passages = _marked(asked.text, found.results)
        outdated = None
        try:
            read = list(_read(ws, searcher, view.at, passages))
            passages = _placed(ws, read, passages, context)
            if at is None and isinstance(ws, Workspace):
                outdated = stale.report(ws, stale.among_documents(ws, read))
        except EngineError as why:  # the index answers without the knowledge base
            ws.progress.note(f"Where the answers stand cannot be told: {why.message}")
        return PassageReport(passages, found.kb, found.notes, outdated)

    return searching(ws, look, at=at)


def _marked(query: str, hits: Sequence[Hit]) -> list[PlacedPassage]:
    texts = [hit.text for hit in hits]
    return [
        PlacedPassage(**msgspec.structs.asdict(hit), matches=tuple(spans), best=_best(hit.text, spans))
        for hit, spans in zip(hits, keywords.matches(query, texts), strict=True)
    ]


def _best(text: str, spans: Sequence[tuple[int, int]]) -> int:
    if not spans:
        return len(text) - len(text.lstrip())
    lines = [_line_at(text, start) for start, _ in spans]
    return spans[max(range(len(spans)), key=lambda each: (lines.count(lines[each]), -each))][0]


def _read(
    ws: DocumentStore, searcher: Searcher, at: At, passages: Sequence[PlacedPassage]
) -> Iterator[tuple[Collection, Document]]:
    """The documents of the passages, each once."""
    ids: dict[str, dict[str, None]] = {}
    for each in passages:
        ids.setdefault(each.collection, {})[each.doc_id] = None
    rows = {each.name: each for each in ws.engine.collections(at)}
    for name, some in ids.items():
        collection = rows.get(name) or searcher.collection(name)  # SQL may have left out its row
        if collection:
            yield from ((collection, document) for document in ws.engine.documents(at, collection=name, ids=some))


def _placed(
    ws: DocumentStore,
    read: Sequence[tuple[Collection, Document]],
    passages: Sequence[PlacedPassage],
    context: int | None,
) -> list[PlacedPassage]:
    """The passages with their places."""
    places = {document.key: _Places(ws, collection, document) for collection, document in read}
    found = ((each, places.get((each.collection, each.doc_id))) for each in passages)
    return [there.of(each, context) if there else each for each, there in found]


class _Places:
    """The places in one document."""

    def __init__(self, ws: DocumentStore, collection: Collection, document: Document) -> None:
        self._ws, self._collection, self._document = ws, collection, document
        self._file = source_file(ws.places, collection, document)
        self._written = written_lines(self._file, document) if self._file else None

    def of(self, passage: PlacedPassage, context: int | None) -> PlacedPassage:
        start = self._start(passage)
        if start is None:
            return passage
        document, text = self._document, self._document.content
        line = _line_at(text, start + passage.best)
        return msgspec.structs.replace(
            passage,
            header_path="" if document.file_type in _UNTITLED else header_path(text, start + passage.best),
            line=line,
            file=_named(self._ws, self._file) if self._file else None,
            file_line=None if self._written is None else line_of(line, self._written, document),
            excerpt=None if context is None else _excerpt(text, start, start + len(passage.text), context),
        )

    def _start(self, passage: PlacedPassage) -> int | None:
        """Where a passage begins in the text; None if it does not stand there."""
        text = self._document.content
        first = text.find(passage.text)
        if first < 0:
            return None
        if text.find(passage.text, first + 1) < 0:
            return first
        pieces = chunks_of(self._ws, self._collection, self._document)
        return pieces[passage.chunk].start if passage.chunk < len(pieces) else None


def _named(ws: DocumentStore, file: Path) -> str:
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
