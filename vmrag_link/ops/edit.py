"""`vmrag edit`: replace the text of a stored document or a note, and keep everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmrag_link.documents.importing import ImportedDocument
from vmrag_link.errors import UsageInvalid, quoted
from vmrag_link.models import Document, content_hash
from vmrag_link.workspace import Workspace, local_store, source_tree
from vmrag_link.workspace.documents import collections, leaving_out, note_files, note_names, note_writes, writing
from vmrag_link.workspace.documents.drafts import title_after_edit
from vmrag_link.workspace.documents.import_reports import PutCounts
from vmrag_link.workspace.documents.put import PutRequest, put_documents, version_of
from vmrag_link.workspace.documents.writing import WriteResult
from vmrag_link.workspace.history import document_names
from vmrag_link.workspace.history.document_names import DocumentName, DocumentPlace

if TYPE_CHECKING:
    from vmrag_link.workspace import DocumentStore


def read_for_edit(ws: DocumentStore, name: str) -> Document:
    """Return the stored document or note `[COLLECTION/]DOC`, before the user edits its text.

    Raises `SourceReadOnly` for a document of another source, `DocumentMissing`, `DocumentAmbiguous`
    and `CollectionMissing` for the name, `UsageInvalid` for a document that `vmrag add` cannot
    store, and the errors of `writing.require_writable`.
    """
    note = _find_note(ws, name) if isinstance(ws, Workspace) else None
    if note:
        return note
    with leaving_out.explain_source_files(ws, [name], None, lambda path: f"edit the file {quoted(path)}"):
        place = _find_place(ws)
        stored = document_names.find_in(ws.engine, place, name)
        document = ws.engine.find_document(place.at, *stored.key)
        if document is None:  # another process removed it after the search
            raise document_names.missing_document(ws.engine, place.at, str(stored))
        collections.require_open(collections.find_collection(ws, place.at, stored.collection))
        return document


def store_edited(ws: DocumentStore, before: Document, text: str) -> WriteResult[PutCounts]:
    """Store a new text in the place of a document that `read_for_edit` returned.

    Raises `UsageInvalid` for an empty text, `KnowledgeMoved` if another process changed or removed
    the document, and the errors of `put_documents`.
    """
    name = str(DocumentName(*before.key))
    if not text.strip():
        raise UsageInvalid("the edited text is empty, so nothing was stored", hint=f"run 'vmrag rm {quoted(name)}'")
    source = ws.sources.find_writable(before.collection) if isinstance(ws, Workspace) else None
    if isinstance(ws, Workspace) and source:
        return note_writes.replace_text(ws, source, before, text)
    document = ImportedDocument(
        doc_id=before.doc_id,
        title=title_after_edit(before, text),
        content=text,
        content_hash=content_hash(text),
        file_type=before.file_type,
        metadata=before.metadata,
        source=before.source,
        last_modified=before.last_modified,
    )
    expected = {before.doc_id: version_of(before)}
    return put_documents(ws, PutRequest(before.collection, [document], "replace", expected=expected))


def _find_note(ws: Workspace, name: str) -> Document | None:
    """Return the note that a name means; None if a stored document is meant."""
    if not ws.sources.find_writable():
        return None
    tree = source_tree.read_work_tree(ws)
    if tree is None:
        return None
    notes = note_names.select_notes(ws, [name], [tree], within=None)
    if not notes or not notes.exact or len(notes.documents) != 1:
        return None
    key = notes.documents[0].key
    source = ws.sources.find_writable(key[0])
    if source is None:
        return None
    note_files.require_trust(ws, source)
    return tree.read_documents([key]).get(key)


def _find_place(ws: DocumentStore) -> DocumentPlace:
    if not isinstance(ws, Workspace):  # not versioned
        return DocumentPlace(local_store.AT, "")
    target = writing.require_writable(ws, index=False)
    return DocumentPlace(target.at, target.revision)
