"""`vmrag fingerprint`."""

from __future__ import annotations

import click

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.ops import history


@vmrag_command("fingerprint")
@click.option("--at", "ref", metavar="REF", help="Of what this git ref pins.")
def command(invocation: Invocation, *, ref: str | None) -> None:
    """Print the fingerprint: where it is equal, equal queries get equal answers."""
    with invocation.workspace() as ws:
        report = history.fingerprint(ws, ref=ref)
    invocation.emit(report, [report.fingerprint])
