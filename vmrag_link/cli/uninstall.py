"""`vmrag uninstall`."""

from __future__ import annotations

from vmrag_hooks import installer

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command


@vmrag_command("uninstall")
def command(invocation: Invocation) -> None:
    """Remove the git hooks and put back what was there before. The knowledge base stays."""
    with invocation.workspace() as ws:
        report = installer.uninstall(ws.places)
    lines = [f"Removed from {report.folder}: {', '.join(report.removed)}" if report.removed else "Nothing to remove."]
    lines += [f"The {name} hook that was there before is back." for name in report.restored]
    invocation.emit(report, lines)
