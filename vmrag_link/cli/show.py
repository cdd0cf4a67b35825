"""`vmrag show`."""

from __future__ import annotations

import click

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.ops import documents


@vmrag_command("show")
@click.argument("document", metavar="[REF:]COLLECTION/DOC")
def command(invocation: Invocation, *, document: str) -> None:
    """Print a document's text, of this work tree or of what the git ref REF pins."""
    with invocation.workspace() as ws:
        report = documents.show(ws, document)
    invocation.emit(report, [report.content.removesuffix("\n")])
