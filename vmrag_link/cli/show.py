"""`vmrag show`."""

from __future__ import annotations

import sys

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.ops.documents import listing


@vmrag_command("show")
@click.argument("document", metavar="[REF:]COLLECTION/DOC")
@click.option("--raw", is_flag=True, help="The exact bytes, to a terminal and in a CI job, too.")
def command(invocation: Invocation, *, document: str, raw: bool) -> None:
    """Print a document's text: of this work tree, or at REF, a git ref, a revision, or a branch of
    the knowledge base.

    REF ends at the first colon that COLLECTION/ can follow. If a document's own name reads like
    that: WORKING:COLLECTION/DOC names it without doubt.

    A file or a program gets the exact bytes. On a terminal control characters are escaped, and in a
    job of GitHub Actions what its runner would take for a command, unless standard output is a
    file.
    """
    with invocation.workspace() as ws:
        report = listing.show(ws, document)
    if invocation.as_json or invocation.verbosity < 0:
        invocation.emit(report)
    elif not output.print_exactly(report.content, raw=raw) and not sys.stdout.isatty():
        output.complain("The text was escaped for the job's log. Its exact bytes: vmrag show --raw", "warning:")
