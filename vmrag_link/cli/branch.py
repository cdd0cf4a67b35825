"""`vmrag branch`."""

from __future__ import annotations

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.ops import branches


@vmrag_command("branch")
def command(invocation: Invocation) -> None:
    """List the branches of the knowledge base and the code branches whose documents are written on them."""
    with invocation.workspace() as ws:
        report = branches.branches(ws)
    lines = []
    for each in report.branches:
        mark = "*" if each.current else " "
        belongs = f"for {each.code_branch}" if each.code_branch else "of no code branch"
        lines.append(f"{mark} {each.name}  {each.revision[:7]}  {belongs}{', uncommitted changes' * each.dirty}")
    invocation.emit(report, lines or ["No KB branches yet: the first document that is stored makes one."])
