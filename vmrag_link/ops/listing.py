"""`vmrag list`: list stored documents and files of sources."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from vmrag_link import shown_names
from vmrag_link.errors import NO_DOCUMENTS, Busy, FileSystemError, IndexExtraMissing, IndexFailed, no_collection
from vmrag_link.index.contents import count_chunks_by_document
from vmrag_link.models import At, ChangeKind, DocumentHeader, Record, WorkingSet, parse_metadata
from vmrag_link.workspace import Workspace, local_store, reasons, source_tree
from vmrag_link.workspace.documents import reading
from vmrag_link.workspace.follow.follow_pin import follow_and_warn
from vmrag_link.workspace.history import named_places
from vmrag_link.workspace.indexed_rows import IndexedRows

if TYPE_CHECKING:
    from vmrag_link.workspace import ReadableStore

_MARKS: Mapping[str, Literal["added", "modified"]] = {"added": "added", "modified": "modified", "unmerged": "modified"}


class DocumentRow(Record, frozen=True):
    """A listed document."""

    collection: str
    doc_id: str
    title: str
    content_hash: str
    metadata: dict[str, Any]
    chunks: int | None
    """Number of chunks; None if the index does not have this state of the document."""
    uncommitted: Literal["added", "modified", "removed"] | None
    name: str = ""
    """The name as in `shown_names`."""

    @property
    def key(self) -> tuple[str, str]:
        return (self.collection, self.doc_id)


class ListReport(Record, frozen=True):
    """The result of `list_documents`."""

    documents: list[DocumentRow]


def list_documents(ws: ReadableStore, collection: str | None) -> ListReport:
    """List the documents of the workspace, with marks for uncommitted changes and removals.

    Raises `CollectionMissing`.
    """
    files = _list_files(ws, collection) if isinstance(ws, Workspace) else None
    explain: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if isinstance(ws, Workspace) and files is None and collection is not None:
        explain = named_places.explain_missing_collection(ws, [collection])
    with explain:
        rows = _list_stored(ws, collection, files)
    keys = [row.key for row in rows]
    if isinstance(ws, Workspace) and collection is not None and ws.sources.configured:
        names = named_places.PlaceNames(ws, named_places.find_working_place(ws)).shown_names(keys)
    else:
        names = shown_names.name_among(keys, {row.collection for row in files or ()} - _list_note_collections(ws))
    return ListReport([replace(row, name=names[row.key]) for row in rows])


def _list_note_collections(ws: ReadableStore) -> set[str]:
    """Return the collections whose files are notes. Stored documents of these are outdated."""
    return (
        {source.collection for source in ws.sources.configured if source.write} if isinstance(ws, Workspace) else set()
    )


def _list_stored(ws: ReadableStore, collection: str | None, files: list[DocumentRow] | None) -> list[DocumentRow]:
    """List the stored documents, and add the rows of `files`."""
    try:
        at = _follow_place(ws)
    except NO_DOCUMENTS as error:
        if files is None:
            raise
        for note in reasons.explain_missing_documents(error):
            ws.progress.note(note)
        return files
    if files is not None and collection is not None:
        return files
    if collection is not None:
        collections = [row.name for row in ws.engine.list_collections(at)]
        if collection not in collections:
            raise no_collection(collection, collections)
    changes = {}
    if isinstance(at, WorkingSet) and isinstance(ws, Workspace):
        changes = {change.key: change for change in ws.engine.diff(ws.require_revision(), at).documents}
    chunks = _count_chunks(ws, at) if isinstance(ws, Workspace) else {}
    headers = {header.key: header for header in ws.engine.read_headers(at, collection=collection)}
    for key, change in changes.items():
        if change.before and change.kind == "removed" and collection in (None, key[0]):
            headers[key] = change.before
    note_collections = _list_note_collections(ws)
    rows = [
        _form_row(header, chunks.get(key), changes[key].kind if key in changes else None)
        for key, header in headers.items()
        if header.collection not in note_collections
    ]
    return sorted([*rows, *(files or ())], key=lambda row: row.key)


def _form_row(header: DocumentHeader, chunks: int | None, uncommitted: ChangeKind | None) -> DocumentRow:
    return DocumentRow(
        collection=header.collection,
        doc_id=header.doc_id,
        title=header.title,
        content_hash=header.content_hash,
        metadata=parse_metadata(header),
        chunks=chunks,
        uncommitted=uncommitted,
    )


def _list_files(ws: Workspace, collection: str | None) -> list[DocumentRow] | None:
    """Return the rows of existing files of sources; None if no source is meant."""
    try:
        return _indexed_files(ws, collection)
    except IndexExtraMissing:  # a list does not need the extra
        tree = source_tree.read_work_tree(ws)
        keys = [key for key in tree.files if collection in (None, key[0])] if tree else []
        if tree is None or (collection is not None and tree.find_source(collection) is None):
            return None
        marks = {key: _MARKS.get(file.uncommitted) for key, file in tree.files.items()}
        return [_form_row(document.header, None, marks[key]) for key, document in tree.read_documents(keys).items()]


def _indexed_files(ws: Workspace, collection: str | None) -> list[DocumentRow] | None:
    with reading.files_at(ws, None) as opened:
        if opened is None or (collection is not None and collection not in opened.collections):
            return None
        chunks = count_chunks_by_document(opened.folder)
        rows = []
        for header in IndexedRows(opened.folder).read_headers("", collection=collection):
            states = opened.uncommitted.get(header.collection, {})
            rows.append(_form_row(header, chunks[header.key], _MARKS.get(states.get(header.doc_id, ""))))
        return rows


def _follow_place(ws: ReadableStore) -> At:
    """Follow the pin, and return where documents are read."""
    if not isinstance(ws, Workspace):
        return local_store.AT
    follow_and_warn(ws)
    return ws.locate_documents()


def _count_chunks(ws: Workspace, at: At) -> dict[tuple[str, str], int]:
    """Return the numbers of chunks by document if the index has this state.

    It does not wait for a lock.
    """
    revision = ws.require_revision()
    try:
        if isinstance(at, str):
            return {} if ws.views.find_problem(at) else count_chunks_by_document(ws.views.view_path(at))
        copy = ws.sync_context._replace(lock_timeout=0).working_copy(at.branch, revision)
        with copy.lock_for_reading() as problem:
            return {} if problem else count_chunks_by_document(copy.path)
    except (Busy, FileSystemError, IndexFailed):
        return {}
