"""`vmrag restore`: discard uncommitted changes, or bring documents back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import NEXT_COMMIT, Invocation, describe_kept_revision, name_from_top
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.writing import format_json_report
from vmrag_link.errors import FAILED_CHECK, OK, GitReferenceMissing, UsageInvalid, plural, quoted

if TYPE_CHECKING:
    from vmrag_link.ops.restore.note_restore import RestoredNotes
    from vmrag_link.ops.restore.restore import Restoration
    from vmrag_link.workspace import Workspace


@vmrag_command("restore")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "-s",
    "--source",
    "ref",
    metavar="REF",
    help="Restore from this git ref, revision or KB branch (default: the last commit).",
)
@click.option("--undo", is_flag=True, help="Restore the text of a note that a command replaced or deleted.")
@click.option("--collection", help="Collection of the documents. Each NAME is an id in it.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def command(
    invocation: Invocation, *, names: tuple[str, ...], ref: str | None, undo: bool, collection: str | None, yes: bool
) -> int:
    """Discard uncommitted changes, or bring documents back.

    NAME is a document, a folder, a COLLECTION or a pattern, as in 'vmrag rm'. Without NAME,
    it restores all but notes. Texts that were never committed are kept in a revision, and the
    output names the command that restores them. With --source, the result is uncommitted; run
    'vmrag commit'.

    A note is restored from HEAD or --source. --undo restores a text that a command replaced
    or deleted before git had it, for example 'vmrag restore --undo decisions/search'.
    """
    from vmrag_link.ops.restore import restore as operation
    from vmrag_link.workspace.history.document_names import EVERYTHING, command_of

    with invocation.workspace() as ws:
        names = tuple(name_from_top(ws, invocation.directory, name) for name in names)
        notes = _restore_notes(ws, names, ref, undo=undo, within=collection)
        if notes:
            invocation.emit_report(notes, _restored_note_lines(notes))
            return OK
        result = invocation.run_confirmed(
            lambda confirmed: operation.restore(ws, names, source=ref, within=collection, confirmed=confirmed),
            question="Discard them?",
            yes=yes,
        )
    if result is None:
        output.print_warning("Nothing was changed.")
        return FAILED_CHECK
    report = result.report
    lines = [*_restored_lines(report)]
    if report.kept:
        back = command_of("restore", names or (EVERYTHING,), collection, source=report.kept[:12])
        lines.append(describe_kept_revision(len(report.unsaved), back))
    if ref is not None and result.branch:
        lines.append(NEXT_COMMIT)
    invocation.emit_report(format_json_report(result), lines)
    return OK


def _restore_notes(
    ws: Workspace, names: tuple[str, ...], ref: str | None, *, undo: bool, within: str | None
) -> RestoredNotes | None:
    """Restore notes. Return None if the names are those of stored documents."""
    if undo and (ref is not None or len(names) > 1):
        raise UsageInvalid(
            "--undo takes at most one name, and cannot be combined with --source.", hint="run 'vmrag restore --undo'"
        )
    if not (undo or (names and ws.sources.find_writable())):
        return None
    from vmrag_link.ops.restore import note_restore

    if undo:
        return note_restore.undo_note(ws, f"{within}/{names[0]}" if within and names else next(iter(names), None))
    try:
        selection = note_restore.find_notes_at(ws, names, ref=ref, within=within)
    except GitReferenceMissing:
        if not ws.is_initialized:
            raise
        return None  # the ref may be a revision of the knowledge base
    return note_restore.restore_notes(ws, selection.documents, ref=ref) if selection else None


def _restored_note_lines(report: RestoredNotes) -> Iterator[str]:
    origin = f" from {report.commit[:7]}" if report.commit else ""
    for note in report.notes:
        yield f"{note.name}: {'deleted' if note.kind == 'removed' else 'restored'}{origin}"
    if not report.notes:
        yield f"Nothing differs from {report.commit[:7]}."
    if report.written.pending:
        yield f"warning: {report.written.pending}"
    for name in report.written.kept:
        yield f"hint: run 'vmrag restore --undo {quoted(name)}'"


def _restored_lines(report: Restoration) -> Iterator[str]:
    at = report.source[:7]
    if not report.documents and not report.collections:
        yield f"Nothing differs from {at}."
        return
    removed = sum(row.kind == "removed" for row in report.documents)
    restored = len(report.documents) - removed
    if restored:
        yield f"{plural(restored, 'document')} restored from {at}"
    if removed:
        yield f"{plural(removed, 'document')} removed, which {at} does not have"
    for row in report.collections:
        yield f"collection {row.name}: {'removed' if row.kind == 'removed' else 'restored'}"
