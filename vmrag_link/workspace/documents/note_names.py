"""Find the notes that names mean. The path of its file is also a name of a note.

Other names of documents are resolved by `history.document_names`.
"""

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
    """Return the notes in some trees that these names mean; None if they may mean stored documents.

    `within`: as for `document_names.select_named`. Raises `DocumentAmbiguous`, and
    `DocumentMissing` if the names can only mean notes.
    """
    writable = [source.collection for source in ws.sources.configured if source.write]
    if not writable or not names or within not in (None, *writable):
        return None
    names = [_replace_path(name, trees, within) for name in names]
    rows = FileNames(*trees).select_collections(writable)
    try:
        return document_names.select_named(rows, [""], names, within=within)
    except DocumentAmbiguous:
        raise
    except (DocumentMissing, CollectionMissing, UsageInvalid):
        if within or not ws.is_initialized or any(name.partition("/")[0] in writable for name in names):
            raise
        return None


def _replace_path(name: str, trees: Sequence[SourceTree | None], within: str | None) -> str:
    """Return the full name of the note whose file has this path, or its id if `within` is given.

    Another name is returned unchanged. If several trees have the file, the last one decides.
    """
    for tree in reversed(trees):
        if tree and (note := tree.find_note(name)):
            return note[1] if within else str(DocumentName(*note))
    return name
