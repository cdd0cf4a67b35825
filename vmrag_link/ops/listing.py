"""List documents (`vmrag list`), and show one document or revision (`vmrag show`)."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec.structs import replace

from vmrag_link import shown_names
from vmrag_link.errors import (
    NO_DOCUMENTS,
    Busy,
    ConfigInvalid,
    FileSystemError,
    GitReferenceMissing,
    IndexExtraMissing,
    IndexFailed,
    no_collection,
)
from vmrag_link.git import plumbing
from vmrag_link.index.contents import count_chunks_by_document
from vmrag_link.models import At, ChangeKind, DocumentHeader, Record, WorkingSet, content_hash, parse_metadata
from vmrag_link.workspace import Workspace, local_store, reasons, source_tree
from vmrag_link.workspace.documents import file_texts, reading
from vmrag_link.workspace.follow.follow_pin import follow_and_warn
from vmrag_link.workspace.history import document_names, named_places, revparse
from vmrag_link.workspace.history.document_names import DocumentName, DocumentPlace, NamedRows
from vmrag_link.workspace.indexed_rows import IndexedRows
from vmrag_link.workspace.source_tree import FileNames, SourceTree

if TYPE_CHECKING:
    from vmrag_link.workspace import DocumentStore, ReadableStore
    from vmrag_link.workspace.history.document_history import LogStep, Revisions

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
    documents: list[DocumentRow]


class ShowReport(Record, frozen=True):
    """A shown document. A file of no source has no collection, and its path as `doc_id`."""

    collection: str
    doc_id: str
    title: str
    content: str
    content_hash: str
    metadata: dict[str, Any]
    revision: str


def list_documents(ws: ReadableStore, collection: str | None) -> ListReport:
    """List the documents of the workspace, with marks for uncommitted changes and removals.

    Raises `CollectionMissing`.
    """
    files = _list_files(ws, collection) if isinstance(ws, Workspace) else None
    if isinstance(ws, Workspace) and files is None and collection is not None:
        with named_places.explain_missing_collection(ws, [collection]):
            rows = _list_stored(ws, collection, None)
    else:
        rows = _list_stored(ws, collection, files)
    keys = [row.key for row in rows.documents]
    if isinstance(ws, Workspace) and collection is not None and ws.sources.configured:
        names = named_places.PlaceNames(ws, named_places.find_working_place(ws)).shown_names(keys)
    else:
        notes = (
            {source.collection for source in ws.sources.configured if source.write}
            if isinstance(ws, Workspace)
            else set()
        )
        names = shown_names.name_among(keys, {row.collection for row in files or ()} - notes)
    return ListReport([replace(row, name=names[row.key]) for row in rows.documents])


def _list_stored(ws: ReadableStore, collection: str | None, files: list[DocumentRow] | None) -> ListReport:
    """List the stored documents, and add the rows of `files`."""
    try:
        at = _follow_place(ws)
    except NO_DOCUMENTS as error:
        if files is None:
            raise
        for note in reasons.explain_missing_documents(error):
            ws.progress.note(note)
        return ListReport(files)
    if files is not None and collection is not None:
        return ListReport(files)
    if collection is not None and all(row.name != collection for row in ws.engine.list_collections(at)):
        raise no_collection(collection, [row.name for row in ws.engine.list_collections(at)])
    changes = {}
    if isinstance(at, WorkingSet) and isinstance(ws, Workspace):
        changes = {change.key: change for change in ws.engine.diff(ws.require_revision(), at).documents}
    chunks = _chunk_counts(ws, at) if isinstance(ws, Workspace) else {}
    notes = (
        {source.collection for source in ws.sources.configured if source.write} if isinstance(ws, Workspace) else set()
    )
    stored = ws.engine.read_headers(at, collection=collection)
    headers = {header.key: header for header in stored if header.collection not in notes}
    for key, change in changes.items():
        if change.before and change.kind == "removed" and collection in (None, key[0]) and key[0] not in notes:
            headers[key] = change.before
    rows = [
        _form_row(header, chunks.get(key), changes[key].kind if key in changes else None)
        for key, header in sorted(headers.items())
    ]
    return ListReport(sorted([*rows, *(files or ())], key=lambda row: (row.collection, row.doc_id)))


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
    """Return the rows of files of sources; None if no source is meant. git reports
    removed files.
    """
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
        return [
            _form_row(
                header,
                chunks[header.key],
                _MARKS.get(opened.uncommitted.get(header.collection, {}).get(header.doc_id, "")),
            )
            for header in IndexedRows(opened.folder).read_headers("", collection=collection)
        ]


def _follow_place(ws: ReadableStore) -> At:
    """Follow the pin, and return where documents are read."""
    if not isinstance(ws, Workspace):
        return local_store.AT
    follow_and_warn(ws)
    return ws.locate_documents()


def _chunk_counts(ws: Workspace, at: At) -> dict[tuple[str, str], int]:
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


def show_file(ws: Workspace, name: str) -> ShowReport | None:
    """Return the document of a source that `[REF:]NAME` means; None if it means no file."""
    if not ws.sources.configured and ":" not in name:
        return None
    parts = revparse.separate_ref(name)
    for ref, rest in ((None, name), *([parts] if parts else [])):
        tree = _find_tree(ws, ref)
        rows = FileNames(tree)
        for file in dict.fromkeys((rest, document_names.without_line(rest))):
            commit = tree and (tree.commit or plumbing.read_head(ws.places).commit)
            if tree and (note := tree.find_note(file)):
                return _show_report(rows, "", DocumentName(*note), commit or "")
            if tree and document_names.find_candidates(rows, "", file):
                return _show_report(rows, "", document_names.find_document(rows, [""], file), commit or "")
    return None


def _show_tracked(ws: Workspace, name: str) -> ShowReport | None:
    """Return the tracked text file that `[REF:]PATH` means, which no source names."""
    file = file_texts.find_named(ws, name)
    if file is None:
        return None
    title = posixpath.splitext(posixpath.basename(file.path))[0]
    commit = file.commit or plumbing.read_head(ws.places).commit or ""
    return ShowReport(
        collection="",
        doc_id=file.path,
        title=title,
        content=file.text,
        content_hash=content_hash(file.text),
        metadata={},
        revision=commit,
    )


def _find_tree(ws: Workspace, ref: str | None) -> SourceTree | None:
    if ref in (None, revparse.WORKING):
        return source_tree.read_work_tree(ws)
    with contextlib.suppress(ConfigInvalid, GitReferenceMissing):
        return named_places.tree_at(ws, plumbing.resolve_commit(ws.places, ref or ""))
    return None


def show_stored(ws: DocumentStore, name: str) -> ShowReport:
    """Return the stored document `[REF:]NAME`. Raises the errors of `document_names.find_at`."""
    return show_at(ws, *document_names.find_at(ws, name))


def show_at(ws: DocumentStore, place: DocumentPlace, name: DocumentName) -> ShowReport:
    """Return the stored document at a place. Raises `DocumentMissing` and `CollectionMissing`."""
    return _show_report(ws.engine, place.at, name, place.revision)


def _show_report(rows: NamedRows, at: At, name: DocumentName, revision: str) -> ShowReport:
    document = rows.find_document(at, *name.key)
    if document is None:  # another process removed it after the search
        raise document_names.no_document(rows, at, *name.key)
    metadata = parse_metadata(document)
    return ShowReport(*name.key, document.title, document.content, document.content_hash, metadata, revision)


class ShownRevision(NamedTuple):
    """A shown revision. `history` has one step, and reads what it changed on demand."""

    history: Revisions
    step: LogStep


def show_name(ws: Workspace, name: str | None) -> ShowReport | ShownRevision:
    """Return the document or the revision that a name means. A document has priority.

    Without a name, return the current revision. Raises the errors of `document_names.find_at`.
    """
    if name is None:
        follow_and_warn(ws)
        return _show_revision(ws, ws.require_stored_revision())
    if file := show_file(ws, name) or _show_tracked(ws, name):
        return file
    with named_places.explain_missing_file(ws, name):
        return _show_named(ws, name)


def _show_named(ws: Workspace, name: str) -> ShowReport | ShownRevision:
    try:
        place, rest = document_names.split_ref(ws, name)
    except GitReferenceMissing as unknown:
        return _show_revision(ws, _resolve_or(ws, name, unknown))  # a git expression may have a colon
    if rest == name and not document_names.find_candidates(ws.engine, place.at, name):
        with contextlib.suppress(GitReferenceMissing):
            return _show_revision(ws, revparse.resolve_rev(ws, name))
    return show_at(ws, place, document_names.find_in(ws.engine, place, rest))


def _resolve_or(ws: Workspace, name: str, unknown: GitReferenceMissing) -> str:
    try:
        return revparse.resolve_rev(ws, name)
    except GitReferenceMissing:
        raise unknown from None


def _show_revision(ws: Workspace, revision: str) -> ShownRevision:
    from vmrag_link.workspace.history import log  # imported here, because a list needs no history
    from vmrag_link.workspace.history.document_history import LogStep, Revisions

    (info,) = log.add_pins(ws, [log.read_info(ws.engine, revision)])
    step = LogStep(info, info.parents)
    return ShownRevision(Revisions(ws, [step], more=False), step)
