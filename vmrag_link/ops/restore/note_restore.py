"""`vmrag restore` for notes: as a git commit has them, or as they were before a command replaced or
deleted them.

A *note* is a Markdown file in the folder of a source that vmrag may write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from vmrag_link.errors import DocumentMissing, quoted
from vmrag_link.git import plumbing
from vmrag_link.git.objects import hash_blob
from vmrag_link.models import ChangeKind, Record
from vmrag_link.workspace import Workspace, source_tree
from vmrag_link.workspace.documents import undo
from vmrag_link.workspace.documents.note_files import NoteChange, NoteFolder, NotesWritten, change_notes
from vmrag_link.workspace.documents.note_names import select_notes
from vmrag_link.workspace.history.document_names import DocumentName, NamedSelection
from vmrag_link.workspace.source_tree import SourceTree


class RestoredNote(Record, frozen=True):
    """A restored note."""

    name: DocumentName
    kind: ChangeKind
    """`removed`: the note did not exist in the commit, so it was deleted."""


class RestoredNotes(Record, frozen=True):
    """Restored notes. `commit`: the git commit; empty for kept texts that no commit has."""

    commit: str
    notes: tuple[RestoredNote, ...]
    written: NotesWritten


class _Trees(NamedTuple):
    commit: str
    committed: SourceTree | None
    """The files of the commit; None without a commit or sources."""
    present: SourceTree | None
    """The files of the work tree."""


def find_notes_at(ws: Workspace, names: Sequence[str], *, ref: str | None, within: str | None) -> NamedSelection | None:
    """Return the notes that these names mean, here or at a git ref; None if one name means none.

    Raises `DocumentAmbiguous`, `GitReferenceMissing`.
    """
    trees = _open_trees(ws, ref)
    return select_notes(ws, names, [trees.committed, trees.present], within=within)


def restore_notes(ws: Workspace, names: Sequence[DocumentName], *, ref: str | None) -> RestoredNotes:
    """Restore notes as a git commit has them, by default HEAD. Delete notes that it does not have.

    Raises the errors of `change_notes`. Texts that git does not have are kept for `undo_note`.
    """
    trees = _open_trees(ws, ref)
    written: list[tuple[str, NotesWritten]] = []
    for collection in dict.fromkeys(name.collection for name in names):
        source = ws.sources.find_writable(collection)
        if source is None:
            continue
        ids = [name.doc_id for name in names if name.collection == collection]

        def plan_notes(folder: NoteFolder, ids: Sequence[str] = ids) -> list[NoteChange]:
            return [change for doc_id in ids for change in _plan_restore(ws, folder, trees, doc_id)]

        written.append((collection, change_notes(ws, source, plan_notes, allow_secret=True)))
    return _report_restored(trees.commit, written)


def _report_restored(commit: str, written: Sequence[tuple[str, NotesWritten]]) -> RestoredNotes:
    """Return the report on the written notes of each collection.

    It leaves out `NotesWritten.changes`, which have the whole texts.
    """
    results = [result for _, result in written]
    return RestoredNotes(
        commit=commit,
        notes=tuple(
            _describe_change(collection, change) for collection, result in written for change in result.changes
        ),
        written=NotesWritten(
            paths=tuple(path for result in results for path in result.paths),
            kept=tuple(name for result in results for name in result.kept),
            pending=next((result.pending for result in results if result.pending), ""),
        ),
    )


def _describe_change(collection: str, change: NoteChange) -> RestoredNote:
    kind: ChangeKind = "added" if change.before is None else "modified"
    return RestoredNote(DocumentName(collection, change.doc_id), "removed" if change.after is None else kind)


def _plan_restore(ws: Workspace, folder: NoteFolder, trees: _Trees, doc_id: str) -> list[NoteChange]:
    """Return the changes that make a note as it is in the commit, perhaps at another path."""
    key = (folder.source.collection, doc_id)
    file = trees.committed.files.get(key) if trees.committed else None
    data = plumbing.read_blob(ws.places, f"{trees.commit}:{file.path}") if file else None
    present = folder.find_note(doc_id)
    changes = []
    if present and (file is None or present.path != file.path):
        changes.append(folder.plan_removal(present))
    if file and data is not None:
        before = folder.read_file(file.path)
        forms = () if before is None else (before, before.replace(b"\r\n", b"\n"))
        same = any(hash_blob(form, like=file.blob) == file.blob for form in forms)
        changes.append(NoteChange(doc_id, file.path, before, before if same else data))
    return changes


def undo_note(ws: Workspace, name: str | None) -> RestoredNotes:
    """Restore the text that the latest command replaced or deleted, of any note or of this one.

    The present text is kept in turn. Raises `DocumentMissing` if nothing is kept, and the errors of
    `change_notes`.
    """
    for path, note in undo.list_kept_notes(ws.places):
        document = DocumentName(note.collection, note.doc_id)
        if name is not None and name not in (str(document), note.doc_id, note.path):
            continue
        source = ws.sources.find_writable(note.collection)
        if source is None:
            continue

        def plan_undo(folder: NoteFolder, note: undo.KeptNote = note) -> list[NoteChange]:
            return [NoteChange(note.doc_id, note.path, folder.read_file(note.path), note.data)]

        written = change_notes(ws, source, plan_undo, allow_secret=True)
        path.unlink(missing_ok=True)
        report = _report_restored("", [(note.collection, written)])
        # The file can have that text already, if the user restored it by hand.
        return report if report.notes else replace(report, notes=(RestoredNote(document, "modified"),))
    subject = f" of {name!r}" if name else ""
    raise DocumentMissing(
        f"no replaced or deleted text{subject} is available. vmrag keeps only texts that git does not have.",
        hint=f"run 'vmrag restore {quoted(name) if name else 'NAME'}' to restore it from HEAD",
        doc_id=name or "",
    )


def _open_trees(ws: Workspace, ref: str | None) -> _Trees:
    commit = plumbing.resolve_commit(ws.places, ref) if ref else plumbing.read_head(ws.places).commit or ""
    config = None if ref else ws.sources.config  # a ref has settings of its own
    committed = source_tree.read_commit(ws, commit, config) if commit else None
    return _Trees(commit, committed, source_tree.read_work_tree(ws))
