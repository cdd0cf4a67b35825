"""Read documents here or at another place, of some collections, or the lines of them that a pattern
matches (`vmrag grep`).
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from msgspec.structs import replace

from vmrag_link import terminal_text
from vmrag_link.errors import (
    FilterInvalid,
    GitReferenceMissing,
    NotInitialized,
    PinMissing,
    ServerUnreachable,
    UsageInvalid,
    no_collection,
    quoted,
)
from vmrag_link.git import plumbing
from vmrag_link.models import SYSTEM, At, Collection, Document, DocumentHeader, Record
from vmrag_link.ops.follow.follow_pin import read_consistently
from vmrag_link.ops.follow.provenance import KbBlock, Standing, standing, viewed, with_sources
from vmrag_link.ops.history import known, revparse
from vmrag_link.progress import Task
from vmrag_link.shown_names import names_in_rows
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.indexed_rows import IndexedRows
from vmrag_link.workspace.worktree import OpenSources

T = TypeVar("T")


def read(ws: Workspace, ref: str | None, look: Callable[[Standing], T]) -> T:
    """What `look` returns, of the work tree at its pin, or of `ref` (as `revparse.resolve_at`).

    It may be called again, where the pin moves meanwhile.
    """
    if ref is None or ref == revparse.WORKING:
        return read_consistently(ws, lambda: look(standing(ws)), index=False)
    return look(_at(ws, revparse.resolve_rev(ws, ref)))


def _at(ws: Workspace, revision: str) -> Standing:
    head = plumbing.head(ws.places).commit
    block = KbBlock(str(ws.places.top), head, None, revision, dirty=False, in_sync=True)
    return Standing(revision, revision, block, ())


class TextSource(Protocol):
    """Where whole documents are read: a knowledge base, or an index of it."""

    def collections(self, at: At) -> list[Collection]: ...

    def headers(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[DocumentHeader, None, None]: ...

    def count(self, at: At, *, collection: str | None = None) -> int: ...

    def documents(self, at: At, *, collection: str | None = None) -> Iterator[Document]: ...


class WithFiles:
    """Rows of a knowledge base, and the documents of sources, as those of one place."""

    def __init__(self, rows: TextSource, files: IndexedRows) -> None:
        self._rows, self._files = rows, files
        self._names = {each.name for each in files.collections("")}

    def collections(self, at: At) -> list[Collection]:
        stored = (row for row in self._rows.collections(at) if row.name not in self._names)
        return sorted([*stored, *self._files.collections(at)], key=lambda row: row.name)

    def headers(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[DocumentHeader, None, None]:
        requested = None if ids is None else list(ids)
        for rows in self._of(collection):
            yield from rows.headers(at, collection=collection, ids=requested)

    def count(self, at: At, *, collection: str | None = None) -> int:
        return sum(each.count(at, collection=collection) for each in self._of(collection))

    def documents(self, at: At, *, collection: str | None = None) -> Iterator[Document]:
        for each in self._of(collection):
            yield from each.documents(at, collection=collection)

    def _of(self, collection: str | None) -> Sequence[TextSource]:
        if collection is None:
            return (self._rows, self._files)
        return (self._files,) if collection in self._names else (self._rows,)


def read_texts(ws: Workspace, ref: str | None, look: Callable[[TextSource, Standing], T]) -> T:
    """As `read`, with the documents of sources. While a Dolt server does not answer, the index is
    read, if it is here; without a knowledge base, the files alone.
    """
    here = ref is None or ref == revparse.WORKING
    with files_at(ws, None if here else ref) as opened:
        files = IndexedRows(opened.folder) if opened else None

        def both(rows: TextSource, stands: Standing) -> T:
            if files is None or opened is None:
                return look(rows, stands)
            return look(WithFiles(rows, files), with_sources(stands, opened))

        try:
            return read(ws, ref, lambda stands: both(ws.engine, stands))
        except (NotInitialized, PinMissing):
            if files is None:
                raise
            return look(files, with_sources(_at(ws, ""), opened))
        except ServerUnreachable:
            if here:
                return read_consistently(
                    ws, lambda: ws.reader.read(lambda view: both(IndexedRows(view.folder), viewed(ws, view)))
                )
            stands = _at(ws, revparse.resolve_rev(ws, ref or ""))
            with ws.reader.index_of(stands.revision) as folder:
                return both(IndexedRows(folder), stands)


@contextlib.contextmanager
def files_at(ws: Workspace, ref: str | None) -> Iterator[OpenSources | None]:
    """The documents of sources at what git calls by a ref, or in the work tree; None if there are
    none, as at a revision of the knowledge base, which has no files.
    """
    if ref is None:
        with ws.sources.here(stored=ws.stored_collections()) as opened:
            yield opened
        return
    try:
        commit = plumbing.resolve(ws.places, ref)
    except GitReferenceMissing:
        yield None
        return
    with ws.sources.at(commit, ws.sources.config_at(commit)) as opened:
        yield opened


def collection_names(source: TextSource, at: At, wanted: Sequence[str], *, searched: bool = False) -> list[str]:
    """These collections; if none are named, all but those in which tools write for themselves, or
    all that are `searched`.

    Raises `CollectionMissing`.
    """
    there = {each.name: each for each in source.collections(at)}
    for name in wanted:
        if name not in there:
            raise no_collection(name, sorted(there))
    return sorted(
        set(wanted) or {name for name, each in there.items() if each.kind != SYSTEM or (searched and each.searched)}
    )


Spans = tuple[tuple[int, int], ...]
Finder = Callable[[str], Spans | None]
"""Where in a line something is found; None: nowhere."""


class Pattern(Record, frozen=True):
    """What is looked for, as Python's `re` has it; with `fixed` the text itself. `linear`: as
    Rust's `regex` has it, in time linear in the text, because a stranger may have written it; where
    in a line it matches is not told then.
    """

    text: str
    fixed: bool = False
    ignore_case: bool = False
    linear: bool = False

    def finder(self) -> Finder:
        """Raises `UsageInvalid` for what is no regular expression."""
        if self.linear and not self.fixed:
            return self._linear_finder()
        wanted = self._compiled()

        def spans(line: str) -> Spans | None:
            found = [each.span() for each in wanted.finditer(line)]
            return tuple(each for each in found if each[1] > each[0]) if found else None

        return spans

    def _linear_finder(self) -> Finder:
        from vmrag_link.retrieval.filters import linear_pattern  # people's patterns do not need it

        try:
            passes = linear_pattern(f"(?i){self.text}" if self.ignore_case else self.text, said="This is")
        except FilterInvalid as error:
            raise UsageInvalid(error.message, hint=error.hint, parameter="pattern") from None
        return lambda line: () if passes(line) else None

    def _compiled(self) -> re.Pattern[str]:
        flags = re.IGNORECASE if self.ignore_case else re.NOFLAG
        try:
            with warnings.catch_warnings():  # `[[` means another set in a later Python
                warnings.simplefilter("ignore")
                return re.compile(re.escape(self.text) if self.fixed else self.text, flags)
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageInvalid(
                f"{self.text!r} is no regular expression: {error}.",
                hint=f"vmrag grep -F -- {quoted(self.text)}   (finds the text itself)",
                parameter="pattern",
            ) from None


class MatchedLine(Record, frozen=True):
    """`number` counts from 1; `matches`: characters of the line, from and to. A line that is not
    `matched` is near to one.
    """

    number: int
    text: str
    matched: bool
    matches: Spans


class MatchedDocument(Record, frozen=True):
    """`count`: how many lines match; `lines`: these lines, and the requested context.
    `name`: as in `shown_names`.
    """

    collection: str
    doc_id: str
    title: str
    count: int
    lines: list[MatchedLine]
    name: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return (self.collection, self.doc_id)


class GrepReport(Record, frozen=True):
    """`notes`: why this is not the pinned revision, if so."""

    documents: list[MatchedDocument]
    kb: KbBlock
    notes: tuple[str, ...] = ()


def grep(
    ws: Workspace, pattern: Pattern, *, collections: Sequence[str] = (), ref: str | None = None, context: int = 0
) -> GrepReport:
    """Every document with a line that matches, by name.

    `collections`: only these; by default all but those in which tools write for themselves. `ref`:
    as `revparse.resolve_at`. Raises `UsageInvalid`, `CollectionMissing`.
    """
    wanted = pattern.finder()

    def look(source: TextSource, here: Standing) -> GrepReport:
        names = collection_names(source, here.at, collections, searched=True)
        with ws.progress.task("searching", sum(source.count(here.at, collection=each) for each in names)) as task:
            documents = (each for name in names for each in source.documents(here.at, collection=name))
            found = list(_search(documents, wanted, context, task))
        sources = {row.name for row in source.collections(here.at) if row.has_paths_as_ids}
        names_of = names_in_rows((match.key for match in found), sources, here.at, source)
        return GrepReport([replace(match, name=names_of[match.key]) for match in found], here.kb, here.notes)

    with known.naming_collections(ws, collections):
        return read_texts(ws, ref, look)


def _search(documents: Iterable[Document], wanted: Finder, context: int, task: Task) -> Iterator[MatchedDocument]:
    for document in documents:
        if found := _match(document, wanted, context):
            yield found
        task.advance()


def _match(document: Document, wanted: Finder, context: int) -> MatchedDocument | None:
    lines = terminal_text.lines(document.content)
    hits = {number: spans for number, line in enumerate(lines, start=1) if (spans := wanted(line)) is not None}
    if not hits:
        return None
    shown = {near for number in hits for near in range(max(1, number - context), min(len(lines), number + context) + 1)}
    found = [MatchedLine(number, lines[number - 1], number in hits, hits.get(number, ())) for number in sorted(shown)]
    return MatchedDocument(document.collection, document.doc_id, document.title, len(hits), found)
