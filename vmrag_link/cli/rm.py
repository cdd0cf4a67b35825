"""`vmrag rm`: remove documents, folders or collections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import NEXT_COMMIT, Invocation, describe_kept_revision, name_from_top
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.writing import format_json_report
from vmrag_link.errors import FAILED_CHECK, OK, enumerated, plural, quoted

if TYPE_CHECKING:
    from vmrag_link.ops.rm import NamedRemoval
    from vmrag_link.workspace.documents.writing import WriteResult


@vmrag_command("rm")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--collection", help="Collection of the documents. Each NAME is an id in it.")
@click.option("-n", "--dry-run", is_flag=True, help="Only list the documents.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def command(invocation: Invocation, *, names: tuple[str, ...], collection: str | None, dry_run: bool, yes: bool) -> int:
    """Remove documents, folders or collections.

    NAME is a document (COLLECTION/DOC, or DOC if it is unique), a folder (COLLECTION/guide),
    a COLLECTION, or a quoted pattern ('COLLECTION/*.txt', where * also matches slashes). If
    it matches several documents, the command asks for confirmation. Files are not changed.
    'vmrag commit' pins the removal, and 'vmrag restore' brings the documents back.
    """
    from vmrag_link.ops.rm import remove_named
    from vmrag_link.ops.stores import stores

    with invocation.workspace() as ws:
        names = tuple(name_from_top(ws, invocation.directory, name) for name in names)
        store = stores.find_common_store(ws, [collection or name.partition("/")[0] for name in names])
        result = invocation.run_confirmed(
            lambda confirmed: remove_named(store, names, within=collection, confirmed=confirmed, dry_run=dry_run),
            question="Remove them?",
            yes=yes,
        )
    if result is None:
        output.print_warning("Nothing was removed.")
        return FAILED_CHECK
    removed = result.report
    lines = _dry_run_lines(removed) if dry_run else _removal_lines(result, names, collection)
    invocation.emit_report(format_json_report(result), lines)
    return OK


def _dry_run_lines(removal: NamedRemoval) -> Iterator[str]:
    never = set(removal.unsaved)
    for name in removal.documents:
        yield f"rm {name}{'  (not committed)' if name in never else ''}"
    yield from (f"rm {name}/ (the collection)" for name in removal.collections)


def _describe_removal(removed: NamedRemoval) -> str:
    documents = plural(len(removed.documents), "document")
    if removed.collections:
        noun = "collection" if len(removed.collections) == 1 else "collections"
        return f"{noun} {enumerated(removed.collections)} removed, with {documents}"
    homes = sorted({name.collection for name in removed.documents})
    return f"{enumerated(homes)}: {documents} removed"


def _removal_lines(result: WriteResult[NamedRemoval], names: Sequence[str], within: str | None) -> Iterator[str]:
    from vmrag_link.workspace.history.document_names import command_of

    removed = result.report
    yield _describe_removal(removed)
    if result.notes:
        yield from (f"warning: {reason}" for reason in [result.notes.pending] if reason)
        kept = set(result.notes.kept)
        for name in removed.documents:
            undo = "vmrag restore --undo" if name.doc_id in kept else "vmrag restore"
            yield f"hint: run '{undo} {quoted(str(name))}' to restore it"
    if removed.kept:
        yield describe_kept_revision(
            len(removed.unsaved), command_of("restore", names, within, source=removed.kept[:12])
        )
    if result.branch:
        yield NEXT_COMMIT
