"""`vmrag pull`: fetch, and merge the revision that the upstream branch pins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.remote import describe_moves
from vmrag_link.errors import FAILED_CHECK

if TYPE_CHECKING:
    from vmrag_link.ops.pull import PullReport


@vmrag_command("pull")
@click.argument("remote", required=False)
@click.option(
    "--branch",
    metavar="KB-BRANCH",
    help="Merge this KB branch of the remote, even if the code reverted or never pinned it.",
)
def command(invocation: Invocation, *, remote: str | None, branch: str | None) -> int:
    """Fetch, and merge the documents of the upstream branch.

    It fetches the revision that the upstream branch pins, as of the last 'git fetch', and merges
    its documents. It does not merge code; 'git pull' merges both. Without an upstream, it uses the
    remote's branch of the same name. Changes that you reverted are not merged again. The exit code
    is 1 if documents are in conflict.
    """
    from vmrag_link.ops import pull as operation

    with invocation.workspace() as ws:
        report = operation.pull(ws, remote, branch=branch)
    invocation.emit_report(report, _pull_lines(report))
    return FAILED_CHECK if report.merge.result == "conflict" or not report.merge.staged else 0


def _pull_lines(report: PullReport) -> Iterator[str]:
    from vmrag_link.cli.merge import describe_merge

    yield from describe_moves(report.updates)
    yield from describe_merge(report.merge)
    if report.code_behind:
        yield f"hint: run 'git pull' to merge the commits of {report.merge.source}"
