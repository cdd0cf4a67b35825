"""`vmrag clone`: fetch the knowledge base of a repository that was just cloned."""

from __future__ import annotations

import click

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, IndexExtraMissing


@vmrag_command("clone")
@click.argument("remote", required=False)
def command(invocation: Invocation, *, remote: str | None) -> int:
    """Fetch the knowledge base of a cloned repository.

    It fetches from the code's own git remote, or from REMOTE. If the settings name a Dolt
    server, it connects to that server. The exit code is 1 if the pinned revision is missing
    there.
    """
    from vmrag_link.workspace.follow.follow_pin import follow
    from vmrag_link.workspace.remotes import clone as operation

    with invocation.workspace() as ws:
        report = operation.clone(ws, remote)
        summary = "Uses the knowledge base on the server" if ws.engine.shared else "Fetched the knowledge base from"
        lines = [f"{summary} {report.remote}: {', '.join(report.branches) or 'no branches yet'}."]
        if report.revision and not report.has_revision:
            lines += [
                f"It does not have the pinned revision {report.revision[:7]}.",
                "hint: run 'vmrag status' to see the state",
            ]
        elif report.has_revision:
            try:
                follow(ws)
            except IndexExtraMissing as missing:  # a base installation: searching can wait
                lines.append(f"Made no index: {missing.sentence}")
            lines.append("hint: run 'vmrag install' to let git update and push it with the code")
    invocation.emit_report(report, lines)
    return FAILED_CHECK if report.revision and not report.has_revision else 0
