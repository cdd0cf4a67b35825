"""`vmrag commit`."""

from __future__ import annotations

import click

from vmrag_link.cli.base import Invocation, described, headline
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK
from vmrag_link.ops.branches import commit as operation


@vmrag_command("commit")
@click.option("-m", "--message", required=True, help="What changed in the knowledge.")
@click.option("--author", help="'Name <email>', or one of both; by default git's.")
def command(invocation: Invocation, *, message: str, author: str | None) -> int:
    """Commit the documents to the knowledge base, pin the new revision in .dolt-version and stage
    it for 'git commit'.
    """
    with invocation.workspace() as ws:
        report = operation.commit(ws, message, author=author)
        invocation.warn_of_push(ws)
    lines = [f"[{report.branch} {report.revision[:7]}] {headline(message)}", f" {described(report.changes)}"]
    if report.pin is None:
        lines.append("Not pinned (auto_pin is off). Next: vmrag pin")
    elif report.staged:
        lines.append('Pinned in .dolt-version, which is staged. Next: git commit -m "…"')
    else:
        lines.append("Pinned in .dolt-version, but another git command holds the index. Next: git add .dolt-version")
    if report.pending:
        lines.append(f"warning: {report.pending}")
    invocation.emit(report, lines)
    return FAILED_CHECK if report.pin and not report.staged else 0
