"""`vmrag remote`: show the remotes of the knowledge base."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command

if TYPE_CHECKING:
    from vmrag_link.transport.publish import BranchMove
    from vmrag_link.workspace.remotes.destinations import RemotesReport


@vmrag_command("remote")
@click.option("--trust", metavar="URL", help="Trust this remote, so pins and settings files can name it.")
@click.option("--forget", metavar="URL", help="Stop trusting this remote.")
def command(invocation: Invocation, *, trust: str | None, forget: str | None) -> None:
    """Show the remotes of the knowledge base.

    It uses no network, and shows the branches as of the last contact.
    """
    from vmrag_link.workspace.remotes import destinations as operation

    with invocation.workspace() as ws:
        if trust is not None:
            operation.trust_remote(ws, trust)
        if forget is not None:
            operation.distrust_remote(ws, forget)
        report = operation.report_remotes(ws)
    invocation.emit_report(report, _remote_lines(report))


def _remote_lines(report: RemotesReport) -> Iterator[str]:
    for remote in report.remotes:
        yield f"{output.style_text(remote.name, bold=True)}  {remote.url}" if remote.name != remote.url else remote.name
        yield from (f"  {head[:7]}  {name}" for name, head in remote.branches.items())
    if report.problem:
        yield f"{report.remote}: {report.problem}"
        yield f"hint: {report.hint}"
    yield from (f"trusted: {trusted}" for trusted in report.trusted)


def describe_moves(updates: Iterable[BranchMove]) -> Iterator[str]:
    """Yield a line for each KB branch that a fetch or push moved."""
    for update in updates:
        moved = f"{update.old[:7]}..{update.new[:7]}" if update.old else f"{update.new[:7]} (new)"
        yield f"  {moved}  {update.branch}"
