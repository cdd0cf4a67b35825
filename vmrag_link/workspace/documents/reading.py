"""Read whole documents of the work tree or of a git ref: stored ones, files of sources, or both.

Each function calls `read` with the rows and the origin of the answer, because the pin may move
while documents are read. Then `read` is called again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from vmrag_link.errors import NO_DOCUMENTS, CollectionMissing, GitReferenceMissing, ServerUnreachable, no_collection
from vmrag_link.git import plumbing
from vmrag_link.models import SYSTEM, At, Collection, Document, DocumentHeader
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.follow_pin import read_consistently
from vmrag_link.workspace.follow.provenance import (
    AnswerOrigin,
    KbBlock,
    add_sources,
    find_git_origin,
    find_origin,
    find_view_origin,
)
from vmrag_link.workspace.history import revparse
from vmrag_link.workspace.indexed_rows import IndexedRows
from vmrag_link.workspace.worktree import OpenSources

T = TypeVar("T")


def read_at(ws: Workspace, ref: str | None, read: Callable[[AnswerOrigin], T]) -> T:
    """Return the result of `read` for stored documents at `ref` (`revparse.resolve_rev`).

    Without `ref`, these are the documents of the work tree, after it followed its pin.
    """
    if ref is None or ref == revparse.WORKING:
        return read_consistently(ws, lambda: read(find_origin(ws)), index=False)
    return read(_find_revision_origin(ws, revparse.resolve_rev(ws, ref)))


def _find_revision_origin(ws: Workspace, revision: str) -> AnswerOrigin:
    """Return the origin of answers from a revision."""
    head = plumbing.read_head(ws.places).commit
    block = KbBlock(str(ws.places.top), head, None, revision, dirty=False, in_sync=True)
    return AnswerOrigin(revision, revision, block, ())


class TextSource(Protocol):
    """The methods for reading documents that an engine and an index have."""

    def list_collections(self, at: At) -> list[Collection]: ...

    def read_headers(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[DocumentHeader, None, None]: ...

    def count_documents(self, at: At, *, collection: str | None = None) -> int: ...

    def read_documents(self, at: At, *, collection: str | None = None) -> Iterator[Document]: ...


class JoinedTexts:
    """Stored documents and files of sources. Files hide a stored collection of the same name."""

    def __init__(self, rows: TextSource, files: IndexedRows) -> None:
        self._rows = rows
        self._files = files
        self._names = {collection.name for collection in files.list_collections("")}

    def list_collections(self, at: At) -> list[Collection]:
        stored = (row for row in self._rows.list_collections(at) if row.name not in self._names)
        return sorted([*stored, *self._files.list_collections(at)], key=lambda row: row.name)

    def read_headers(
        self, at: At, *, collection: str | None = None, ids: Iterable[str] | None = None
    ) -> Generator[DocumentHeader, None, None]:
        requested = None if ids is None else list(ids)
        for rows in self._select_rows(collection):
            yield from rows.read_headers(at, collection=collection, ids=requested)

    def count_documents(self, at: At, *, collection: str | None = None) -> int:
        return sum(rows.count_documents(at, collection=collection) for rows in self._select_rows(collection))

    def read_documents(self, at: At, *, collection: str | None = None) -> Iterator[Document]:
        for rows in self._select_rows(collection):
            yield from rows.read_documents(at, collection=collection)

    def _select_rows(self, collection: str | None) -> Sequence[TextSource]:
        if collection is None:
            return (self._rows, self._files)
        return (self._files,) if collection in self._names else (self._rows,)


def read_texts(ws: Workspace, ref: str | None, read: Callable[[TextSource, AnswerOrigin], T]) -> T:
    """Return the result of `read` for stored documents and files of sources.

    `ref`: as for `read_at`. Without stored documents, `read` gets only the files.
    """
    with files_at(ws, None if ref == revparse.WORKING else ref) as opened:
        if opened is None:
            return read_stored(ws, ref, read)
        files = IndexedRows(opened.folder)

        def read_both(rows: TextSource, origin: AnswerOrigin) -> T:
            return read(JoinedTexts(rows, files), add_sources(origin, opened))

        try:
            return read_stored(ws, ref, read_both)
        except NO_DOCUMENTS as error:
            origin = find_git_origin(ws, error)
            try:
                return read(files, add_sources(origin, opened))
            except CollectionMissing:
                if origin.notes:  # the collection may be among the missing stored documents
                    raise error from None
                raise


def read_stored(ws: Workspace, ref: str | None, read: Callable[[TextSource, AnswerOrigin], T]) -> T:
    """Return the result of `read` for the stored documents.

    If a Dolt server does not answer, the local index is read, if it exists.
    """
    try:
        return read_at(ws, ref, lambda origin: read(ws.engine, origin))
    except ServerUnreachable:
        if ref is None or ref == revparse.WORKING:
            return read_consistently(
                ws, lambda: ws.reader.read(lambda view: read(IndexedRows(view.folder), find_view_origin(ws, view)))
            )
        origin = _find_revision_origin(ws, revparse.resolve_rev(ws, ref))
        with ws.reader.open_index(origin.revision) as folder:
            return read(IndexedRows(folder), origin)


@contextlib.contextmanager
def files_at(ws: Workspace, ref: str | None) -> Iterator[OpenSources | None]:
    """Open the index of the files of sources at a git ref, or in the work tree.

    Yield None without sources, and for a name of the knowledge base.
    """
    if ref is None:
        with ws.source_index.open_work_tree(stored=ws.list_stored_collections()) as opened:
            yield opened
        return
    try:
        commit = plumbing.resolve_commit(ws.places, ref)
    except GitReferenceMissing:
        yield None
        return
    with ws.source_index.open_commit(commit, ws.sources.read_config_at(commit)) as opened:
        yield opened


def collection_names(
    source: TextSource, at: At, requested: Sequence[str], *, searched: bool = False, of_files: Sequence[str] = ()
) -> list[str]:
    """Return the requested collections that are stored.

    Without `requested`, return all except system collections, in which tools write. `searched`:
    include system collections that a search includes by default. `of_files`: collections that are
    not stored. Raises `CollectionMissing` for a name that is neither stored nor in `of_files`.
    """
    stored = {row.name: row for row in source.list_collections(at)}
    for name in requested:
        if name not in stored and name not in of_files:
            raise no_collection(name, sorted({*stored, *of_files}))
    if requested:
        return sorted({*requested} - {*of_files})
    return sorted(
        name for name, row in stored.items() if row.kind != SYSTEM or (searched and row.is_searched_by_default)
    )
