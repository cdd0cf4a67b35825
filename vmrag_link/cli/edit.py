"""`vmrag edit`: change a note or a stored document in git's editor."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import click

from vmrag_link.cli import editor
from vmrag_link.cli.base import NEXT_COMMIT, Invocation, name_from_top
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import quoted
from vmrag_link.models import Document, Record
from vmrag_link.ops import edit as operation
from vmrag_link.ops.stores import stores

_MAX_STEM_CHARS = 100


class EditReport(Record, frozen=True):
    """A change by an editor."""

    collection: str
    doc_id: str
    changed: bool
    branch: str | None = None
    """The KB branch of the change; None if the text is unchanged."""
    pending: str = ""
    """Why the index did not follow; an empty text if it did."""


@vmrag_command("edit")
@click.argument("name", metavar="[COLLECTION/]DOC")
def command(invocation: Invocation, *, name: str) -> None:
    """Change a note or a stored document in git's editor.

    The id and metadata stay. A title taken from the text follows the text. An unchanged
    text is not stored. If the editor fails, or if another process changed the document,
    nothing is stored, and the edited text stays in a file that the error names. 'git commit'
    commits a changed note, and 'vmrag commit' a stored document.

    Other documents of sources are files: edit the file.
    """
    with invocation.workspace() as ws:
        name = name_from_top(ws, invocation.directory, name)
        store = stores.find_store(ws, name.partition("/")[0])
        document = operation.read_for_edit(store, name)
        shown = f"{document.collection}/{document.doc_id}"
        instead = f"run 'GIT_EDITOR=COMMAND vmrag edit {quoted(shown)}' with a command that changes the file"
        with editor.open_edited_text(ws.places, document.content, name=_file_name(document), instead=instead) as text:
            if text is None or text == f"{document.content}\n":  # editors add a missing line end
                invocation.emit_report(
                    EditReport(*document.key, changed=False), [f"{shown} is unchanged, so nothing was stored."]
                )
                return
            result = operation.store_edited(store, document, text)
    lines = [f"{shown}: {result.report.changes.text}"]
    if result.pending:
        lines.append(f"warning: {result.pending}")
    if result.branch:
        lines.append(NEXT_COMMIT)
    elif result.notes and result.notes.paths:
        lines.append(f"hint: run 'git commit -- {quoted(result.notes.paths[0])}'")
    changed = result.report.changes.total > 0
    invocation.emit_report(EditReport(*document.key, changed, result.branch, result.pending), lines)


def _file_name(document: Document) -> str:
    """Return a name for the draft. It shows the document in the title of the editor."""
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", PurePosixPath(document.doc_id).stem).strip("-")[:_MAX_STEM_CHARS]
    return f"{stem or 'document'}{editor.find_suffix(document.doc_id)}"
