"""`vmrag rm` and the tools that remove documents: by name, pattern, id or filter.

A revision of its own keeps texts that were never committed. Notes, which are files of the work
tree, are deleted, and git or `vmrag restore --undo` restores them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from vmrag_link import hints
from vmrag_link.engines.base import Write
from vmrag_link.errors import ConfirmationMissing, NothingSelected, enumerated, plural, quoted
from vmrag_link.models import At, Record
from vmrag_link.settings import SourceSettings
from vmrag_link.workspace import Workspace, source_tree
from vmrag_link.workspace.documents import collections, leaving_out, note_names, note_writes, writing
from vmrag_link.workspace.documents.document_selection import Selection, select_documents
from vmrag_link.workspace.documents.note_files import NotesWritten
from vmrag_link.workspace.documents.unsaved import find_unsaved, keep_unsaved
from vmrag_link.workspace.documents.writing import Planned, WriteResult
from vmrag_link.workspace.history import document_names
from vmrag_link.workspace.history.document_names import DocumentName, NamedSelection, command_of
from vmrag_link.workspace.source_tree import SourceTree

if TYPE_CHECKING:
    from vmrag_link.workspace import DocumentStore


class Removal(Record, frozen=True):
    """The result of removing selected documents."""

    collection_name: str
    documents_deleted: int
    ids_deleted: list[str]
    missing_ids: list[str]
    """Requested ids that belong to no document and no chunk."""


class NamedRemoval(Record, frozen=True, rename={"documents": "removed"}):
    """The result of removing documents and whole collections by name."""

    documents: tuple[DocumentName, ...]
    collections: tuple[str, ...]
    unsaved: tuple[DocumentName, ...]
    """Removed documents whose text no other revision has."""
    kept: str
    """The revision that keeps `unsaved`; empty if there are none."""


def remove_selected(ws: DocumentStore, name: str, selection: Selection) -> WriteResult[Removal]:
    """Remove the selected documents. The id of a chunk means its document.

    Raises `NothingSelected`, `CollectionMissing`, `FilterInvalid`, and the errors of
    `writing.write_rows`. Nothing is removed then.
    """
    if not selection.ids and not selection.filtered:
        raise NothingSelected("no documents are selected.", hint="pass ids or a filter")
    if isinstance(ws, Workspace) and (source := ws.sources.find_writable(name)):
        return _remove_notes(ws, source, selection)

    def plan_removal(at: At) -> Planned[Removal]:
        collection = collections.find_collection(ws, at, name)
        selected = select_documents(ws, at, collection, selection)
        ids = list(dict.fromkeys(document.doc_id for document in selected.named))
        rows = Write(remove_documents=[(collection.name, doc_id) for doc_id in ids])
        return Planned(rows if ids else None, Removal(collection.name, len(ids), ids, selected.missing))

    return writing.write_rows(ws, plan_removal, f"remove from {name}")


def _remove_notes(ws: Workspace, source: SourceSettings, selection: Selection) -> WriteResult[Removal]:
    name = source.collection
    ws.files.refresh()
    selected = select_documents(ws.files, "", collections.find_collection(ws.files, "", name), selection)
    ids = list(dict.fromkeys(named.doc_id for named in selected.named))
    written = note_writes.remove_notes(ws, source, ids)
    return WriteResult(Removal(name, len(ids), ids, selected.missing), None, written.pending, notes=written)


def remove_named(
    ws: DocumentStore, names: Sequence[str], *, within: str | None, confirmed: bool, dry_run: bool = False
) -> WriteResult[NamedRemoval]:
    """Remove the documents and collections that `document_names.select_named` finds for these
    names.

    The next reader updates the index. Texts that no revision has stay in a revision of their own.
    `dry_run` removes nothing.

    Raises `ConfirmationMissing` if a name means more than one document and `confirmed` is false.
    Raises the errors of `select_named` and `writing.write_rows`. Nothing is removed then.
    """

    def plan_removal(at: At) -> Planned[NamedRemoval]:
        selected = document_names.select_named(ws.engine, [at], names, within=within)
        names_to_remove = set(selected.documents)
        unsaved = find_unsaved(ws, at, lambda key: DocumentName(*key) in names_to_remove, selected.collections)
        never_committed = tuple(DocumentName(*document.key) for document in unsaved.documents)
        if dry_run:
            return Planned(None, NamedRemoval(selected.documents, selected.collections, never_committed, ""))
        if not selected.exact and not confirmed:
            raise _confirmation_missing(selected, len(never_committed), command_of("rm", names, within))
        kept_revision = keep_unsaved(ws, at, unsaved, before="they were removed")
        rows = Write(
            remove_collections=selected.collections,
            remove_documents=[
                document.key for document in selected.documents if document.collection not in selected.collections
            ],
        )
        return Planned(
            None if rows.is_empty else rows,
            NamedRemoval(selected.documents, selected.collections, never_committed, kept_revision),
        )

    with leaving_out.explain_source_files(ws, names, within, lambda path: _suggest_git_rm(ws, path)):
        if isinstance(ws, Workspace) and ws.sources.find_writable():
            tree = source_tree.read_work_tree(ws)
            notes = note_names.select_notes(ws, names, [tree], within=within) if tree else None
            if tree and notes:
                command = command_of("rm", names, within)
                return _remove_named_notes(ws, tree, notes, command, confirmed=confirmed or dry_run, dry_run=dry_run)
        return writing.write_rows(ws, plan_removal, "remove documents", follow=False)


def _remove_named_notes(
    ws: Workspace, tree: SourceTree, notes: NamedSelection, command: str, *, confirmed: bool, dry_run: bool
) -> WriteResult[NamedRemoval]:
    """Delete notes, whose texts git or `undo` keeps."""
    unsaved = tuple(name for name in notes.documents if tree.files[name.key].uncommitted)
    if not notes.exact and not confirmed:
        raise _confirmation_missing(msgspec.structs.replace(notes, collections=()), len(unsaved), command)
    paths: list[str] = []
    kept: list[str] = []
    pending = ""
    for collection in () if dry_run else dict.fromkeys(name.collection for name in notes.documents):
        source = ws.sources.find_writable(collection)
        if source is None:
            raise collections.source_read_only(collection)
        ids = [name.doc_id for name in notes.documents if name.collection == collection]
        written = note_writes.remove_notes(ws, source, ids)
        paths += written.paths
        kept += written.kept
        pending = pending or written.pending
    report = NamedRemoval(notes.documents, (), unsaved, "")
    return WriteResult(report, None, pending, notes=NotesWritten(tuple(paths), tuple(kept), pending))


def _suggest_git_rm(ws: DocumentStore, path: str) -> str:
    """Return the hint to remove a file, or an empty text if the file does not exist."""
    if not (ws.places.top / path).is_file():
        return ""
    return hints.suggest_command(f"git rm {quoted(path)}", "remove the file, which is the document")


def _confirmation_missing(
    selected: document_names.NamedSelection, never_committed: int, command: str
) -> ConfirmationMissing:
    subject = plural(len(selected.documents), "document")
    if selected.collections:
        noun = "collection" if len(selected.collections) == 1 else "collections"
        subject = f"the {noun} {enumerated(selected.collections)} with {subject}"
    never = f", {never_committed} of them never committed" if never_committed else ""
    return ConfirmationMissing(
        f"this would remove {subject}{never}.",
        hint=f"run '{command} --yes' to remove them, or '{command} --dry-run' to list them",
        documents=len(selected.documents),
        collections=list(selected.collections),
        uncommitted_count=never_committed,
    )
