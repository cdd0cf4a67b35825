"""`vmrag list`, `add`, `rm`, `restore` and `export`: the documents as they are stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from vmrag_link.cli import answering, output
from vmrag_link.cli.base import NEXT_COMMIT, Invocation, kept_line, name_from_top
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, OK, GitReferenceMissing, UsageInvalid, enumerated, plural, quoted

if TYPE_CHECKING:
    from vmrag_link.ops.branches.restore import Restoration
    from vmrag_link.ops.documents.export import ExportReport
    from vmrag_link.ops.documents.note_restore import RestoredNotes
    from vmrag_link.ops.documents.remove import NamedRemoval
    from vmrag_link.ops.documents.writing import WriteResult
    from vmrag_link.workspace import DocumentStore, Workspace


UNCOMMITTED = {None: " ", "added": "+", "modified": "~", "removed": "-"}


@vmrag_command("list")
@click.option("--collection", help="Only this collection.")
@click.option("--outdated", is_flag=True, help="Only notes whose cited files or lines changed later.")
def list_(invocation: Invocation, *, collection: str | None, outdated: bool) -> None:
    """List the documents; + ~ - mark those that are added, modified, removed and not committed."""
    from vmrag_link.ops.documents import listing

    with invocation.workspace() as ws:
        if outdated:
            _list_outdated(invocation, ws, collection)
            return
        store = _find_store(ws, collection) if collection else ws
        report = listing.list_documents(store, collection)
        unnamed = not report.documents and store is ws and _has_proposals(ws)
    lines = [
        f"{UNCOMMITTED[document.uncommitted]} {document.name}  {output.style(document.title, dim=True)}"
        for document in sorted(report.documents, key=lambda row: row.name)
    ]
    then = "vmrag init" if unnamed else "vmrag import PATH --collection NAME"
    invocation.emit(report, lines or [f"No documents yet. Next: {then}"])


def _find_store(ws: Workspace, collection: str) -> DocumentStore:
    from vmrag_link.ops.system import stores

    return stores.store_of(ws, collection)


def _has_proposals(ws: Workspace) -> bool:
    from vmrag_link.ops.documents.sources_report import offered

    return bool(offered(ws))


def _list_outdated(invocation: Invocation, ws: Workspace, collection: str | None) -> None:
    from vmrag_link.ops.documents.outdated_marks import list_outdated

    report = list_outdated(ws, collection)
    lines = [f"{row.name}: cites {citation}" for row in report.notes for citation in row.citations]
    if report.unknown:
        lines.append(f"{plural(len(report.unknown), 'note')} could not be compared with git's history.")
    invocation.emit(report, lines or ["No note cites a place that changed since."])


@vmrag_command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--collection", help="The collection that they are in; names are ids then.")
@click.option("-n", "--dry-run", is_flag=True, help="Only list what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask before folders, collections and what a pattern finds.")
def remove(invocation: Invocation, *, names: tuple[str, ...], collection: str | None, dry_run: bool, yes: bool) -> int:
    """Remove documents; 'vmrag commit' pins the removal. Files are not touched.

    NAME is a document (COLLECTION/DOC, or DOC alone where one collection has it), a folder of
    documents (COLLECTION/guide), a whole COLLECTION, or a pattern in quotes ('COLLECTION/*.txt'; *
    matches slashes, too). Where it stands for more than one document, you are asked first. 'vmrag
    restore' brings back what was removed.
    """
    from vmrag_link.ops.documents.remove import remove_named
    from vmrag_link.ops.system import stores

    with invocation.workspace() as ws:
        names = tuple(name_from_top(ws, invocation.directory, name) for name in names)
        store = stores.store_of_all(ws, [collection or each.partition("/")[0] for each in names])
        done = invocation.ask(
            lambda confirmed: remove_named(store, names, within=collection, confirmed=confirmed, dry_run=dry_run),
            question="Remove them?",
            yes=yes,
        )
    if done is None:
        output.complain("Nothing was removed.")
        return FAILED_CHECK
    removed = done.report
    lines = _dry_run_lines(removed) if dry_run else _removal_lines(done, names, collection)
    invocation.emit(_with_branch(done), lines)
    return OK


def _dry_run_lines(found: NamedRemoval) -> Iterator[str]:
    never = set(found.unsaved)
    for each in found.documents:
        yield f"rm {each}{'  (not committed)' if each in never else ''}"
    yield from (f"rm {each}/ (the collection)" for each in found.collections)


def _headline(removed: NamedRemoval) -> str:
    documents = plural(len(removed.documents), "document")
    if removed.collections:
        noun = "collection" if len(removed.collections) == 1 else "collections"
        return f"{noun} {enumerated(removed.collections)} removed, with {documents}"
    homes = sorted({each.collection for each in removed.documents})
    return f"{enumerated(homes)}: {documents} removed"


def _removal_lines(done: WriteResult[NamedRemoval], names: Sequence[str], within: str | None) -> Iterator[str]:
    from vmrag_link.ops.history.document_names import command_of

    removed = done.report
    yield _headline(removed)
    if done.notes:
        yield from (f"warning: {why}" for why in [done.notes.pending] if why)
        kept = set(done.notes.kept)
        for name in removed.documents:
            undo = "vmrag restore --undo" if name.doc_id in kept else "vmrag restore"
            yield f"hint: {undo} {quoted(str(name))}"
    if removed.kept:
        yield kept_line(len(removed.unsaved), command_of("restore", names, within, source=removed.kept[:12]))
    if done.branch:
        yield NEXT_COMMIT


@vmrag_command("restore")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "-s", "--source", "ref", metavar="REF", help="Take them as they are there, instead of as they were committed."
)
@click.option("--undo", is_flag=True, help="Restore the text of a note that a command replaced or deleted.")
@click.option("--collection", help="The collection that they are in; names are ids then.")
@click.option("--yes", is_flag=True, help="Do not ask, also where everything is given up that is not committed.")
def restore(
    invocation: Invocation, *, names: tuple[str, ...], ref: str | None, undo: bool, collection: str | None, yes: bool
) -> int:
    """Take documents as they were committed, or as they are in another place: a git ref, a
    revision, a branch of the knowledge base.

    NAME is a document, a folder, a COLLECTION or a pattern, as in 'vmrag rm'; without any, all are
    meant. What was added or changed since is given up; texts that were never committed are kept in
    a revision, which is printed with the command that brings them back. With --source the result is
    uncommitted; 'vmrag commit' pins it.

    A note is restored as HEAD has it, or --source. --undo restores the text that a command replaced
    or deleted before git had it, for example 'vmrag restore --undo decisions/search'.
    """
    from vmrag_link.ops.branches import restore as operation
    from vmrag_link.ops.history.document_names import EVERYTHING, command_of

    with invocation.workspace() as ws:
        names = tuple(name_from_top(ws, invocation.directory, name) for name in names)
        notes = _restore_notes(ws, names, ref, undo=undo, within=collection)
        if notes:
            invocation.emit(notes, _restored_note_lines(notes))
            return OK
        done = invocation.ask(
            lambda confirmed: operation.restore(ws, names, source=ref, within=collection, confirmed=confirmed),
            question="Give them up?",
            yes=yes,
        )
    if done is None:
        output.complain("Nothing was changed.")
        return FAILED_CHECK
    found = done.report
    lines = [*_restored_lines(found)]
    if found.kept:
        back = command_of("restore", names or (EVERYTHING,), collection, source=found.kept[:12])
        lines.append(kept_line(len(found.unsaved), back))
    if ref is not None and done.branch:
        lines.append(NEXT_COMMIT)
    invocation.emit(_with_branch(done), lines)
    return OK


def _restore_notes(
    ws: Workspace, names: tuple[str, ...], ref: str | None, *, undo: bool, within: str | None
) -> RestoredNotes | None:
    """Restore notes; None if the names mean stored documents."""
    if undo and (ref is not None or len(names) > 1):
        raise UsageInvalid("--undo takes one name at most, and no --source.", hint="vmrag restore --undo")
    if not (undo or (names and ws.sources.writable())):
        return None
    from vmrag_link.ops.documents import note_restore

    if undo:
        return note_restore.undo_note(ws, f"{within}/{names[0]}" if within and names else next(iter(names), None))
    try:
        selection = note_restore.find_notes_at(ws, names, ref=ref, within=within)
    except GitReferenceMissing:
        if not ws.initialized:
            raise
        return None  # it may be a revision of the knowledge base
    return note_restore.restore_notes(ws, selection.documents, ref=ref) if selection else None


def _restored_note_lines(report: RestoredNotes) -> Iterator[str]:
    origin = f" as {report.commit[:7]} has it" if report.commit else ""
    for note in report.notes:
        yield f"{note.name}: {'deleted' if note.kind == 'removed' else 'restored'}{origin}"
    if not report.notes:
        yield f"Nothing differs from {report.commit[:7]}."
    if report.written.pending:
        yield f"warning: {report.written.pending}"
    for name in report.written.kept:
        yield f"hint: vmrag restore --undo {quoted(name)}"


def _with_branch(done: WriteResult[Any]) -> dict[str, Any]:
    """The JSON of `rm` and `restore`. `branch` None: nothing was changed."""
    return {**to_builtins(done.report), "branch": done.branch, "pending": done.pending}


def _restored_lines(found: Restoration) -> Iterator[str]:
    at = found.source[:7]
    if not found.documents and not found.collections:
        yield f"Nothing differs from {at}."
        return
    removed = sum(each.kind == "removed" for each in found.documents)
    taken = len(found.documents) - removed
    if taken:
        yield f"{plural(taken, 'document')} restored from {at}"
    if removed:
        yield f"{plural(removed, 'document')} removed, which {at} does not have"
    for each in found.collections:
        yield f"collection {each.name}: {'removed' if each.kind == 'removed' else 'restored'}"


@vmrag_command("export")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--collection",
    multiple=True,
    help="Only this collection; may be given several times. By default all but those of `learning` and thoughts.",
)
@click.option("--at", "ref", metavar="REF", help="As of a git ref, a revision, or a branch of the knowledge base.")
@click.option("--force", is_flag=True, help="Overwrite files that have another text.")
@answering.strict_option
def export(
    invocation: Invocation, *, folder: Path, collection: tuple[str, ...], ref: str | None, force: bool, strict: bool
) -> int:
    """Write the documents back as files: DIR/COLLECTION/DOC.

    A file holds the text as it is stored, without front matter; metadata is in vmrag list --json.
    Documents of sources are files of the repository already, of which nothing is written. Files
    that have another text stop the command before anything is written. Nothing outside of DIR is
    touched, no link below it followed, and no file removed. Exit code 1 if a document's name can be
    no file.
    """
    from vmrag_link.ops.documents import export as operation

    with invocation.workspace() as ws:
        report = operation.export(
            ws, invocation.directory / folder, wanted=collection, ref=ref, force=force, strict=strict
        )
    answering.emit(invocation, report, _export_lines(report, folder), report.notes)
    return FAILED_CHECK if report.left_out else OK


def _export_lines(report: ExportReport, folder: Path) -> Iterator[str]:
    for each in report.left_out:
        yield f"Left out: {each.collection}/{each.doc_id} {each.reason}."
    yield f"{folder}: {plural(report.written, 'file')} written, {report.unchanged} unchanged"
    if report.sources:
        yield f"Not written, because they are files of the repository already: {enumerated(report.sources)}."
    yield answering.standing_line(report.kb)
