"""Reading documents here or at another place, and in which collections."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from vmrag_link.errors import GitReferenceMissing, NotInitialized, PinMissing, ServerUnreachable
from vmrag_link.git import plumbing
from vmrag_link.models import SYSTEM, At, Collection, Document
from vmrag_link.ops.follow.follow_pin import read_consistently
from vmrag_link.ops.follow.provenance import KbBlock, Standing, standing, viewed, with_sources
from vmrag_link.ops.history import revparse
from vmrag_link.suggest import no_collection
from vmrag_link.workspace import Workspace, twins
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

    def count(self, at: At, *, collection: str | None = None) -> int: ...

    def documents(self, at: At, *, collection: str | None = None) -> Iterator[Document]: ...


class WithFiles:
    """Rows of a knowledge base, and the documents of sources, as those of one place. `hidden`: rows
    that are left out, because their files answer.
    """

    def __init__(self, rows: TextSource, files: IndexedRows, hidden: Iterable[tuple[str, str]] = ()) -> None:
        self._rows, self._files, self._hidden = rows, files, frozenset(hidden)
        self._names = {each.name for each in files.collections("")}

    def collections(self, at: At) -> list[Collection]:
        return sorted([*self._rows.collections(at), *self._files.collections(at)], key=lambda each: each.name)

    def count(self, at: At, *, collection: str | None = None) -> int:
        return sum(each.count(at, collection=collection) for each in self._of(collection))

    def documents(self, at: At, *, collection: str | None = None) -> Iterator[Document]:
        for each in self._of(collection):
            yield from (row for row in each.documents(at, collection=collection) if row.key not in self._hidden)

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
            hidden = twins.of_files(ws, stands.at, opened)
            return look(WithFiles(rows, files, hidden), with_sources(stands, opened, hidden))

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
