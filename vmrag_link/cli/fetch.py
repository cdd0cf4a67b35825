"""`vmrag fetch`: fetch the knowledge base of a remote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from vmrag_link import hints
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.remote import describe_moves
from vmrag_link.errors import FAILED_CHECK

if TYPE_CHECKING:
    from vmrag_link.workspace.remotes.fetch import FetchReport


@vmrag_command("fetch")
@click.argument("remote", required=False)
def command(invocation: Invocation, *, remote: str | None) -> int:
    """Fetch the knowledge base of a remote.

    REMOTE is a git remote or a URL (default: the code's own git remote). The exit code is 1
    if the remote lacks the pinned revision.
    """
    from vmrag_link.workspace.remotes import fetch as operation

    with invocation.workspace() as ws:
        report = operation.fetch(ws, remote)
    invocation.emit_report(report, _fetch_lines(report))
    return FAILED_CHECK if report.revision and not report.has_revision else 0


def _fetch_lines(report: FetchReport) -> Iterator[str]:
    from vmrag_link.workspace.follow.lazy_fetch import ASK_AUTHOR, OR_PIN_WITHOUT_IT

    yield from describe_moves(report.updates)
    if not report.updates:
        yield f"Nothing new at {report.remote}."
    if report.revision and not report.has_revision:
        yield f"It does not have the pinned revision {report.revision[:7]}."
        yield f"hint: {hints.join_alternatives(ASK_AUTHOR, OR_PIN_WITHOUT_IT)}"
    elif report.arrived:
        yield "hint: run 'vmrag sync' to sync to the pin"
    elif report.updates:
        yield "The revision that HEAD pins was already in this clone."
        yield "hint: run 'git pull' to get newer pins"
