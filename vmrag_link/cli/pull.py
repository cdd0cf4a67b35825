"""`vmrag pull`."""

from __future__ import annotations

import click

from vmrag_link.cli import merge
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.common import FAILED_CHECK
from vmrag_link.cli.fetch import moves
from vmrag_link.ops import pull as operation


@vmrag_command("pull")
@click.argument("remote", required=False)
@click.option("--branch", metavar="KB-BRANCH", help="The remote's KB branch; by default that of the checked-out code.")
def command(invocation: Invocation, *, remote: str | None, branch: str | None) -> int:
    """Fetch, and merge what others wrote on this branch into the knowledge of the checked-out code.

    `git pull` brings what they pinned; this brings what their KB branch holds besides. Exit code 1 when documents are in conflict.
    """
    with invocation.workspace() as ws:
        report = operation.pull(ws, remote, branch=branch)
    invocation.emit(report, [*moves(report.updates), *merge.lines(report.merge)])
    return FAILED_CHECK if report.merge.result == "conflict" or not report.merge.staged else 0
