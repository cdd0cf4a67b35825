"""Say how much a document of a project counts: in its file's front matter, and in its row."""

from __future__ import annotations

import stat
from pathlib import Path

from vmrag_link.errors import FileFailed, quoted
from vmrag_link.models import Document, Record, metadata_of
from vmrag_link.paths import stale_temporaries, write_atomically
from vmrag_link.toolsets.compounding import documents, mirror
from vmrag_link.toolsets.compounding.doc_types import Level
from vmrag_link.toolsets.compounding.front_matter_edit import NotEditable, with_key
from vmrag_link.toolsets.compounding.mirror import ActiveProject
from vmrag_link.toolsets.compounding.project import DocsProject
from vmrag_link.workspace import Workspace

KEY = "promotion_level"


class Promoted(Record, frozen=True):
    """`pending`: why the index does not follow yet."""

    previous: Level
    changed: bool
    pending: str = ""


def promote(ws: Workspace, active: ActiveProject, project: DocsProject, doc_id: str, level: Level) -> Promoted:
    """Write the level into the file, and mirror that; where the row cannot be stored, the file is
    put back.

    Raises `FileFailed`, and as `mirror.index`: then nothing is changed.
    """
    with active.lock:
        found = documents.source(ws, project.docs_folder, doc_id)
        previous: Level = _level(documents.project_document(project, doc_id, found))
        if previous == level:
            return Promoted(previous, changed=False)
        path = project.docs_folder / doc_id
        try:
            written = with_key(found.data, KEY, level)
        except NotEditable as error:
            raise FileFailed(
                f"{doc_id} {error.reason}.", hint=f"Write into it by hand: {KEY}: {level}", path=doc_id
            ) from None
        _replace(path, found.data, written)
        try:
            done = mirror.index(ws, active, project, doc_id)
        except BaseException:
            _replace(path, written, found.data)
            raise
        return Promoted(previous, changed=True, pending=done.pending)


def _level(document: Document) -> Level:
    found: Level = metadata_of(document)[KEY]
    return found


def _replace(path: Path, before: bytes, after: bytes) -> None:
    """Exchange the contents of a file that nobody has changed meanwhile, in one step."""
    try:
        if path.read_bytes() != before:
            raise FileFailed(f"{path} changed meanwhile; it stays as it is.", hint="Call again.", path=str(path))
        for leftover in stale_temporaries(path.parent, name=path.name):
            leftover.unlink(missing_ok=True)  # of a killed call
        write_atomically(path, after, mode=stat.S_IMODE(path.stat().st_mode))
    except OSError as error:
        raise FileFailed(
            f"{path} cannot be written: {error.strerror}.", hint=f"ls -la {quoted(path)}", path=str(path)
        ) from error
