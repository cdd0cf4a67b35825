"""Which notes names mean: a note is also named by the path of its file."""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.errors import CollectionMissing, DocumentAmbiguous, DocumentMissing, UsageInvalid
from vmrag_link.settings import SourceSettings
from vmrag_link.sources import notes
from vmrag_link.workspace import Workspace, source_tree
from vmrag_link.workspace.history import document_names
from vmrag_link.workspace.history.document_names import DocumentName, NamedSelection
from vmrag_link.workspace.source_tree import FileNames, SourceTree


def find_note_id(ws: Workspace, source: SourceSettings, name: str) -> str:
    """Return the id of the note at a path below the folder of a source, or the name itself."""
    if not name.startswith(f"{source.folder}/"):
        return name
    tree = source_tree.read_work_tree(ws)
    note = tree.find_note(name) if tree else None
    return note[1] if note else notes.path_id(source.folder, name)


def select_notes(
    ws: Workspace, names: Sequence[str], trees: Sequence[SourceTree | None], *, within: str | None
) -> NamedSelection | None:
    """Return the notes in some trees that these names mean; None if a stored document is meant.

    Raises `DocumentAmbiguous`, and `DocumentMissing` if no stored document can be meant.
    """
    writable = [source.collection for source in ws.sources.configured if source.write]
    if not writable or not names or within not in (None, *writable):
        return None
    by_path = {name: note for name in names for tree in trees if tree and (note := tree.find_note(name))}
    by_name = {name: note[1] if within else str(DocumentName(*note)) for name, note in by_path.items()}
    names = [by_name.get(name, name) for name in names]
    rows = FileNames(*trees).select_collections(writable)
    try:
        return document_names.select_named(rows, [""], names, within=within)
    except DocumentAmbiguous:
        raise
    except (DocumentMissing, CollectionMissing, UsageInvalid):
        if within or not ws.is_initialized or any(name.partition("/")[0] in writable for name in names):
            raise
        return None
