"""`vmrag remote`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.ops.remotes import destinations as operation


@vmrag_command("remote")
@click.option("--trust", metavar="URL", help="Let pins and settings files name this remote from now on.")
@click.option("--forget", metavar="URL", help="Do not trust it any more.")
def command(invocation: Invocation, *, trust: str | None, forget: str | None) -> None:
    """Show where the knowledge base travels, as of when that was last asked; asks no network."""
    with invocation.workspace() as ws:
        if trust is not None:
            operation.agree(ws, trust)
        if forget is not None:
            operation.withdraw(ws, forget)
        report = operation.report_remotes(ws)
    invocation.emit(report, _lines(report))


def _lines(report: operation.RemotesReport) -> Iterator[str]:
    for each in report.remotes:
        yield f"{output.style(each.name, bold=True)}  {each.url}" if each.name != each.url else each.name
        yield from (f"  {head[:7]}  {name}" for name, head in each.branches.items())
    if report.problem:
        yield f"{report.remote}: {report.problem}"
        yield f"Next: {report.hint}"
    yield from (f"trusted: {each}" for each in report.trusted)
