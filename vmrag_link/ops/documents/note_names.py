"""Which notes names on the command line mean."""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.errors import CollectionMissing, DocumentAmbiguous, DocumentMissing, UsageInvalid
from vmrag_link.ops.history import document_names
from vmrag_link.ops.history.document_names import NamedSelection
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.source_tree import FileNames, SourceTree


def select_notes(
    ws: Workspace, names: Sequence[str], trees: Sequence[SourceTree | None], *, within: str | None
) -> NamedSelection | None:
    """Return the notes in some trees that these names mean; None if a stored document is meant.

    Raises `DocumentAmbiguous`, and `DocumentMissing` if no stored document can be meant.
    """
    writable = [source.collection for source in ws.sources.configured if source.write]
    if not writable or not names or within not in (None, *writable):
        return None
    rows = FileNames(*trees).only(writable)
    try:
        return document_names.select(rows, [""], names, within=within)
    except DocumentAmbiguous:
        raise
    except (DocumentMissing, CollectionMissing, UsageInvalid):
        if within or not ws.initialized or any(name.partition("/")[0] in writable for name in names):
            raise
        return None
