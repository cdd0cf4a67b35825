"""`vmrag list`."""

from __future__ import annotations

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.ops.documents import listing
from vmrag_link.ops.documents.sources_report import offered
from vmrag_link.ops.system import stores

MARKS = {None: " ", "added": "+", "modified": "~", "removed": "-"}


@vmrag_command("list")
@click.option("--collection", help="Only this collection.")
def command(invocation: Invocation, *, collection: str | None) -> None:
    """List the documents; + ~ - mark those that are added, modified, removed and not committed."""
    with invocation.workspace() as ws:
        store = stores.holding(ws, collection) if collection else ws
        report = listing.list_documents(store, collection)
        unnamed = not report.documents and store is ws and bool(offered(ws))
    lines = [
        f"{MARKS[each.uncommitted]} {each.collection}/{each.doc_id}  {output.style(each.title, dim=True)}"
        for each in report.documents
    ]
    then = "vmrag init --sources" if unnamed else "vmrag import docs/ --collection handbook"
    invocation.emit(report, lines or [f"No documents yet. Next: {then}"])
