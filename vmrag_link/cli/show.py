"""`vmrag show`."""

from __future__ import annotations

import click

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.ops import documents


@vmrag_command("show")
@click.argument("document", metavar="[REF:]COLLECTION/DOC")
def command(invocation: Invocation, *, document: str) -> None:
    """Print a document's text: of this work tree, or at REF, a git ref, a revision, or a branch of the knowledge base.

    REF ends at the first colon that COLLECTION/ can follow. If a document's own name reads like that: WORKING:COLLECTION/DOC
    names it without doubt.
    """
    with invocation.workspace() as ws:
        report = documents.show(ws, document)
    invocation.emit(report, [report.content.removesuffix("\n")])
