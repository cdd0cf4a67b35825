"""`vmrag commit`."""

from __future__ import annotations

import click

from vmrag_link.cli.base import Invocation, described, headline
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK
from vmrag_link.ops.branches import commit as operation


@vmrag_command("commit")
@click.option("-m", "--message", required=True, help="What changed in the knowledge.")
@click.option(
    "-a",
    "--all",
    "all_files",
    is_flag=True,
    help="First read changed files again, and remove the documents of files that git deleted.",
)
@click.option("--author", help="'Name <email>', or one of both; by default git's.")
def command(invocation: Invocation, *, message: str, all_files: bool, author: str | None) -> int:
    """Commit the documents to the knowledge base, pin the new revision in .dolt-version and stage
    it for 'git commit'.

    With -a, as 'git commit -a' does it with files: what 'vmrag import' would take of changed files
    goes into the same revision, and documents go whose file git deleted or does not track any more,
    unless they were edited. New files are not imported.
    """
    with invocation.workspace() as ws:
        commit = operation.commit_all if all_files else operation.commit
        report = commit(ws, message, author=author)
        invocation.warn_of_hooks(ws)
    lines: list[str] = []
    if report.files:
        from vmrag_link.cli.import_ import known_lines  # with libraries and pages of the web

        lines += known_lines(report.files, invocation)
    lines += [f"[{report.branch} {report.revision[:7]}] {headline(message)}", f" {described(report.changes)}"]
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
