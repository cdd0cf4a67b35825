"""`vmrag move`: make a stored collection files, or the notes of a source stored documents.

The new documents are written before the old ones are removed. The same command repeats a killed
move. History stays where it was.
"""

from __future__ import annotations

import msgspec

from vmrag_link import config, locks, settings_edit
from vmrag_link.documents.library_origin import read_visible_metadata, remove_origin
from vmrag_link.engines.base import Write
from vmrag_link.errors import UsageInvalid, no_collection, quoted
from vmrag_link.file_access import write_atomically
from vmrag_link.git import staging, versions
from vmrag_link.models import At, Chunking, Collection, Document, Record
from vmrag_link.ops import trust
from vmrag_link.ops.sources.add_source import write_source
from vmrag_link.paths import CONFIG_NAME
from vmrag_link.settings import SourceSettings
from vmrag_link.workspace import Workspace, source_tree
from vmrag_link.workspace.documents import collections, writing
from vmrag_link.workspace.documents.note_files import NoteChange, NoteFolder, change_notes
from vmrag_link.workspace.documents.note_writes import metadata_of_note
from vmrag_link.workspace.documents.writing import Planned


class CollectionMove(Record, frozen=True):
    """Result of a move."""

    collection: str
    documents: int
    folder: str
    """The folder that has, or had, the notes, without a slash at its end."""
    staged: bool
    """True if git's index has the changed files and the settings file."""


def move_to_files(ws: Workspace, name: str, *, folder: str = "") -> CollectionMove:
    """Make the documents of a stored collection notes, and remove the collection.

    `folder` is that of the notes, by default `.vmrag/NAME`, or the folder of an existing source
    with this name. The removal is uncommitted in the knowledge base. Raises `CollectionMissing`,
    `ContentRefused` for a document that a file cannot contain, and the errors of `change_notes`.
    Nothing has changed then.
    """
    at = writing.require_writable(ws, index=False).at
    collection = collections.find_exact(ws, at, name)
    if collection is None:
        raise no_collection(name, [row.name for row in ws.engine.list_collections(at)])
    collections.require_plain(collection)
    source = _choose_source(ws, name, folder)
    documents = list(ws.engine.read_documents(at, collection=name))
    staged = _write_source(ws, source)

    def plan_files(notes: NoteFolder) -> list[NoteChange]:
        changes = []
        for document in documents:
            existing = notes.find_note(document.doc_id)
            metadata = _build_note_metadata(document)
            changes.append(notes.plan_change(document.doc_id, metadata, document.content, existing))
        return changes

    written = change_notes(ws, source, plan_files, allow_secret=True)
    writing.write_rows(
        ws, lambda _at: Planned(Write(remove_collections=[name]), None), f"move {name} to files", follow=False
    )
    return CollectionMove(name, len(documents), source.folder, staged and not written.pending)


def move_to_store(ws: Workspace, name: str) -> CollectionMove:
    """Store the notes of a source as documents, and delete their files and the source.

    Raises `CollectionMissing` and the errors of `writing.write_rows` and `change_notes`.
    """
    source = next((source for source in ws.config.sources if source.write and source.collection == name), None)
    if source is None:
        raise no_collection(name, [source.collection for source in ws.config.sources if source.write])
    tree = source_tree.read_work_tree(ws, stored=())
    keys = [key for key in tree.files if key[0] == name] if tree else []
    documents = list(tree.read_documents(keys).values()) if tree else []
    collection = _make_collection(ws, name)
    rows = [msgspec.structs.replace(document, source="", file_type="text") for document in documents]

    def plan_store(at: At) -> Planned[None]:
        new = [] if collections.find_exact(ws, at, name) else [collection]  # after a kill, it exists
        return Planned(Write(put_collections=new, put_documents=rows), None)

    settings_after = settings_edit.remove_source(config.read_settings_file(ws.places.config) or b"", name)
    writing.write_rows(ws, plan_store, f"store {name}", follow=False, moved_source=name)

    def plan_deletion(folder: NoteFolder) -> list[NoteChange]:
        notes = (folder.find_note(document.doc_id) for document in documents)
        return [folder.plan_removal(note) for note in notes if note]

    written = change_notes(ws, source, plan_deletion, trusted=True)
    unstaged = versions.has_unstaged_changes(ws.places, CONFIG_NAME)
    _write_settings(ws, settings_after)
    staged = not unstaged and staging.stage_path(ws.places, ws.places.config)
    return CollectionMove(name, len(documents), source.folder, staged and not written.pending)


def _choose_source(ws: Workspace, name: str, folder: str) -> SourceSettings:
    """Return the source of this name, or a new one. Raises `UsageInvalid` for another folder."""
    existing = next((source for source in ws.config.sources if source.collection == name), None)
    path = (folder or f".vmrag/{name}").rstrip("/")
    if existing and (not existing.write or (folder and existing.folder != path)):
        raise UsageInvalid(
            f"a source {name!r} already exists for other files.",
            hint=f"run 'vmrag sources' to show the files of {quoted(name)}",
        )
    return existing or SourceSettings(name, (f"{path}/",), write=True)


def _write_source(ws: Workspace, source: SourceSettings) -> bool:
    """Write a source into the settings file and trust it. Return whether the file is staged."""
    exists = any(configured.collection == source.collection for configured in ws.config.sources)
    staged = not versions.has_unstaged_changes(ws.places, CONFIG_NAME) if exists else write_source(ws, source)
    trust.trust_source(ws, source)
    return staged


def _build_note_metadata(document: Document) -> dict[str, object]:
    visible_metadata = remove_origin(read_visible_metadata(document))
    metadata = metadata_of_note(document.doc_id, document.title, visible_metadata, document.content)
    if document.source and "source" not in metadata:
        metadata["source"] = document.source
    return metadata


def _make_collection(ws: Workspace, name: str) -> Collection:
    chunking = Chunking(size=ws.config.chunking.size, overlap=ws.config.chunking.overlap)
    return collections.make_collection(name, ws.models.load_named(ws.config.embedding.model), chunking)


def _write_settings(ws: Workspace, text: bytes) -> None:
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="sources", timeout=ws.lock_timeout):
        write_atomically(ws.places.config, text)
    ws.reload_settings()
