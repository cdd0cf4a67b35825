"""`vmrag path`: print the path of the knowledge base, the index or the Chroma store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command

if TYPE_CHECKING:
    from vmrag_link.ops.path import PathsReport, Place


@vmrag_command("path")
@click.argument("what", type=click.Choice(["kb", "index", "chroma"]), default="kb")
@click.option("--working", is_flag=True, help="Print a Chroma store that also has the uncommitted documents.")
def command(invocation: Invocation, *, what: Place, working: bool) -> None:
    """Print the path of the knowledge base or the index.

    'vmrag path chroma' waits for Chroma's store and prints its path, tenant and database. The
    store contains committed text only: the pinned documents, and the files of HEAD that
    'chroma.sources' selects. It never changes, and stays for at least an hour. A collection
    whose name is shorter than three characters gets a hash at its end.
    """
    from vmrag_link.ops import path

    with invocation.workspace() as ws:
        report = path.find_paths(ws, what=what, working=working)
    if what == "chroma":
        lines = [f"path      {report.chroma}", f"tenant    {report.tenant}", f"database  {report.database}"]
        lines.append(f"contents  {_describe_contents(report, working=working)}")
    else:
        lines = [(report.kb if what == "kb" else report.index) or ""]
    if what == "chroma" or invocation.as_json or invocation.is_quiet:
        invocation.emit_report(report, lines)
    else:
        output.print_exactly(f"{lines[0]}\n")  # a script takes it as it is


def _describe_contents(report: PathsReport, *, working: bool) -> str:
    """Describe what is in Chroma's store."""
    documents = f"documents of revision {report.revision[:7]}" if report.revision else ""
    files = f"files of commit {report.commit[:7]}" if report.commit else ""
    text = " and ".join(filter(None, (documents, files)))
    return f"{text}, with uncommitted changes" if working else f"{text} (committed text only)"
