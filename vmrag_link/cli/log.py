"""`vmrag log`."""

from __future__ import annotations

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation, described, headline
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.ops.history import log


@vmrag_command("log")
@click.argument("ref", required=False)
@click.option("-n", "limit", type=click.IntRange(1), default=20, show_default=True, help="How many revisions.")
def command(invocation: Invocation, *, ref: str | None, limit: int) -> None:
    """Show the history of the knowledge base, newest first, with the git commits that pin each
    revision.

    Of this work tree, or of REF: a git ref, a revision, or a branch of the knowledge base.
    """
    with invocation.workspace() as ws:
        found = log.log(ws, log.first_of(ws, ref), limit=limit, with_pins=True).entries
    lines = []
    for each in found:
        lines.append(f"{output.style(each.revision, fg='yellow')}  {each.date}  {each.author}")
        lines.append(f"    {headline(each.message)}  ({described(each.changes)})")
        lines += [f"    pinned by {output.style(one.commit[:10], fg='yellow')} {one.subject}" for one in each.commits]
    invocation.emit({"revisions": found}, lines)
