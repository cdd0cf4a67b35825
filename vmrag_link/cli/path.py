"""`vmrag path`."""

from __future__ import annotations

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.ops.index import paths


@vmrag_command("path")
@click.argument("what", type=click.Choice(["kb", "index", "chroma"]), default="kb")
@click.option("--working", is_flag=True, help="A Chroma store that holds the uncommitted documents, too.")
def command(invocation: Invocation, *, what: str, working: bool) -> None:
    """Print where the knowledge base, the index, or the Chroma store for other clients lies.

    Chroma's store follows the index; `vmrag path chroma` waits for it. It holds the pinned
    documents, is never changed, and stays for an hour at least after it was asked for. Collections
    have their own names there; Chroma takes none of two characters, so those have a hash behind it.
    """
    with invocation.workspace() as ws:
        report = paths.paths(ws, with_chroma=what == "chroma" or working, working=working)
    if what == "chroma":
        lines = [f"path      {report.chroma}", f"tenant    {report.tenant}", f"database  {report.database}"]
    else:
        lines = [report.kb if what == "kb" else report.index or ""]
    if what == "chroma" or invocation.as_json or invocation.verbosity < 0:
        invocation.emit(report, lines)
    else:
        output.print_exactly(f"{lines[0]}\n")  # a script takes it as it is
