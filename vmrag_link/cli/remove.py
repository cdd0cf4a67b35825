"""`vmrag rm`."""

from __future__ import annotations

import click

from vmrag_link.cli.base import NEXT_COMMIT, Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import plural
from vmrag_link.models import Record
from vmrag_link.ops.documents.document_selection import Selection
from vmrag_link.ops.documents.remove import remove


class RemoveReport(Record, frozen=True):
    """The command's JSON; `removed` as they were named."""

    removed: tuple[str, ...]
    branch: str | None
    pending: str


@vmrag_command("rm")
@click.argument("doc_ids", nargs=-1, required=True)
@click.option("--collection", required=True, help="The collection that they are in.")
def command(invocation: Invocation, *, doc_ids: tuple[str, ...], collection: str) -> None:
    """Remove documents; 'vmrag commit' pins the removal. Files are not touched."""
    with invocation.workspace() as ws:
        done = remove(ws, collection, Selection(doc_ids), exact=True)
    lines = [f"{collection}: {plural(len(doc_ids), 'document')} removed", NEXT_COMMIT]
    invocation.emit(RemoveReport(doc_ids, done.branch, done.pending), lines)
