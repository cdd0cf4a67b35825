"""`vmrag pin`."""

from __future__ import annotations

import click

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK
from vmrag_link.ops.follow import pin as operation


@vmrag_command("pin")
@click.argument("revision", required=False, metavar="[REVISION|KB-BRANCH]")
def command(invocation: Invocation, *, revision: str | None) -> int:
    """Let .dolt-version name a revision (by default the newest of this branch), stage it and go
    there.
    """
    with invocation.workspace() as ws:
        report = operation.pin(ws, revision)
    name = report.pin.dolt_commit[:7]
    lines = [f"Pinned {name} in .dolt-version." if report.changed else f"{name} is pinned already."]
    if report.changed and report.staged:
        lines = [f'Pinned {name} in .dolt-version, which is staged. Next: git commit -m "…"']
    if not report.staged:
        lines.append("Another git command holds the index. Next: git add .dolt-version")
    if report.pending:
        lines.append(f"warning: {report.pending}")
    invocation.emit(report, lines)
    return 0 if report.staged else FAILED_CHECK
