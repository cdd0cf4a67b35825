"""Find stored documents that are copies of tracked files, to warn that they may be outdated.

A source could read such a file without storing it. The path that a document records as its source
decides, never its text. No file is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vmrag_link.documents.import_base import escapes_folder
from vmrag_link.engines.base import Engine
from vmrag_link.errors import plural
from vmrag_link.models import SOURCE, At, Collection, Document, Record
from vmrag_link.workspace import Workspace, twins

if TYPE_CHECKING:
    from vmrag_link.workspace import ReadableStore

CODE = "STORED_COPIES"


class StoredCopy(Record, frozen=True):
    """A stored document that is a copy of a file."""

    collection: str
    doc_id: str
    path: str
    """The file, from the top of the repository."""


def suggest_removal(ws: Workspace) -> str:
    """Return the hint to remove copies. Without sources, the files first become documents."""
    if ws.sources.configured:
        return "run 'vmrag sources dedupe' to remove the stored copies"
    return "run 'vmrag init && vmrag sources dedupe' to search the files instead"


def form_sentence(copies: Sequence[StoredCopy], hint: str = "") -> str:
    """Return the warning about copies, with the hint of `suggest_removal`."""
    files = "a tracked file" if len(copies) == 1 else "tracked files"
    return f"{plural(len(copies), 'stored copy')} of {files} may be outdated{f'; {hint}' if hint else '.'}"


def list_copies(ws: Workspace, at: At) -> tuple[StoredCopy, ...]:
    """Return all copies in a revision or branch, sorted by name.

    Raises `EngineError` and `GitFailed`.
    """
    return _select_tracked(ws, dict(twins.list_files(ws, ws.engine, at)))


def find_copies(ws: ReadableStore, documents: Iterable[tuple[Collection, Document]]) -> tuple[StoredCopy, ...]:
    """Return the copies among documents that were read. Raises `GitFailed`."""
    if not isinstance(ws, Workspace):
        return ()
    paths: dict[tuple[str, str], str] = {}
    for collection, document in documents:
        if document.source and collection.kind != SOURCE:
            paths |= twins.list_paths(ws, collection, [(document.doc_id, document.source)])
    return _select_tracked(ws, paths)


def find_copies_by_name(ws: ReadableStore, at: At, names: Iterable[tuple[str, str]]) -> tuple[StoredCopy, ...]:
    """Return the copies among the documents with these keys. Raises `EngineError`, `GitFailed`."""
    if not isinstance(ws, Workspace):
        return ()
    ids: dict[str, dict[str, None]] = {}
    for collection, doc_id in names:
        ids.setdefault(collection, {})[doc_id] = None
    return find_copies(ws, _read_documents(ws.engine, at, ids)) if ids else ()


def _read_documents(engine: Engine, at: At, ids: dict[str, dict[str, None]]) -> Iterable[tuple[Collection, Document]]:
    for collection in engine.list_collections(at):
        if collection.name in ids:
            documents = engine.read_documents(at, collection=collection.name, ids=ids[collection.name])
            yield from ((collection, document) for document in documents)


def _select_tracked(ws: Workspace, paths: dict[tuple[str, str], str]) -> tuple[StoredCopy, ...]:
    """Return the documents whose files git tracks. `paths`: path of the file by key."""
    if not paths:
        return ()
    from vmrag_link.git import listing
    from vmrag_link.sources import rules

    # A path from an untrusted source may lead out of the repository.
    readable = {path for path in paths.values() if rules.can_read(path) and not escapes_folder(path)}
    tracked = listing.list_tracked_files(ws.places, readable) if readable else ()
    return tuple(StoredCopy(*key, path) for key, path in sorted(paths.items()) if path in tracked)
