"""`vmrag log`."""

from __future__ import annotations

import click

from vmrag_link.cli.base import Invocation, described, headline
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.ops import history


@vmrag_command("log")
@click.argument("ref", required=False)
@click.option("-n", "limit", type=click.IntRange(1), default=20, show_default=True, help="How many revisions.")
def command(invocation: Invocation, *, ref: str | None, limit: int) -> None:
    """Show the history of the knowledge base, newest first; of this work tree, or of what the git ref REF pins."""
    with invocation.workspace() as ws:
        report = history.log(ws, ref=ref, limit=limit)
    lines = []
    for each in report.revisions:
        lines.append(f"{click.style(each.revision, fg='yellow')}  {each.date}  {each.author}")
        lines.append(f"    {headline(each.message)}  ({described(each.changes)})")
    invocation.emit(report, lines)
