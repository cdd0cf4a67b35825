"""Find the earlier history of a document that `vmrag move` moved to a file or to the store."""

from __future__ import annotations

from vmrag_link.git import file_log, plumbing
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.history.document_names import DocumentName


def find_stored_revision(ws: Workspace, note: DocumentName) -> str:
    """Return the newest revision that has a note as a stored document, or ""."""
    revision = ws.current_revision if ws.is_initialized else None
    if revision is None:
        return ""
    storing_revisions = ws.engine.read_document_history(revision, *note.key)
    if not storing_revisions:
        return ""
    return next((info.revision for info in ws.engine.log(revision) if info.revision in storing_revisions), "")


def find_note_path(ws: Workspace, document: DocumentName) -> str:
    """Return the path of the note that a stored document was before, or "".

    This is the path that `vmrag move` gives to notes by default.
    """
    from vmrag_link.settings import SourceSettings
    from vmrag_link.sources import notes

    head = plumbing.read_head(ws.places).commit
    if head is None:
        return ""
    path = notes.note_path(SourceSettings(document.collection, (f".vmrag/{document.collection}/",)), document.doc_id)
    return path if file_log.read_file_log(ws.places, [head], path, limit=1) else ""
