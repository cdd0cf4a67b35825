"""Notes that `vmrag add FILE` makes of files."""

from __future__ import annotations

from pathlib import Path

from vmrag_link.documents import importing
from vmrag_link.models import parse_metadata
from vmrag_link.ops.import_.import_files import create_converter
from vmrag_link.sources.notes import make_slug
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents.note_writes import NoteDraft
from vmrag_link.workspace.documents.tracked_files import TrackedFiles


def read_note_draft(ws: Workspace, file: Path) -> NoteDraft:
    """Return the note that a file gives, converted to text if necessary. Nothing is stored.

    Raises `SourceReadOnly` for a file that git tracks here and that a source can read, and the
    errors of `import_files`.
    """
    with create_converter(ws) as converter:
        content = importing.read_named_file(file, converter)
    path = importing.require_existing(file)
    TrackedFiles(ws, [path], None, texts=True).require_other([path])
    return NoteDraft(content.content, make_slug(content.title or file.stem), "", parse_metadata(content))
