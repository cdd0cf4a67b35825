"""`vmrag install`."""

from __future__ import annotations

import click
from vmrag_hooks import installer

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command


@vmrag_command("install")
@click.option("--force", is_flag=True, help="Also into a hooks directory outside of the repository.")
def command(invocation: Invocation, *, force: bool) -> None:
    """Install the git hooks and the merge driver of .dolt-version; hooks that are there already are kept and run first."""
    with invocation.workspace() as ws:
        report = installer.install(ws.places, force=force)
    lines = [f"Installed in {report.folder}: {', '.join(report.written)}" if report.written else "Installed already."]
    lines += [f"The {name} hook that was there runs first." for name in report.chained]
    if report.driver:
        lines.append("Registered the merge driver of .dolt-version.")
    if not report.attributed:
        lines.append("git does not use it yet: .gitattributes does not name it. Next: vmrag init")
    invocation.emit(report, lines)
