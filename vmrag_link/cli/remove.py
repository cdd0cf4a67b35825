"""`vmrag rm`."""

from __future__ import annotations

import click

from vmrag_link.cli.base import NEXT_COMMIT, Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import plural
from vmrag_link.ops.documents import documents


@vmrag_command("rm")
@click.argument("doc_ids", nargs=-1, required=True)
@click.option("--collection", required=True, help="The collection that they are in.")
def command(invocation: Invocation, *, doc_ids: tuple[str, ...], collection: str) -> None:
    """Remove documents; 'vmrag commit' pins the removal. Files are not touched."""
    with invocation.workspace() as ws:
        report = documents.remove(ws, collection, doc_ids)
    lines = [f"{collection}: {plural(len(report.removed), 'document')} removed"]
    lines.append(NEXT_COMMIT)
    invocation.emit(report, lines)
