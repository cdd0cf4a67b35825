"""`vmrag uninstall`."""

from __future__ import annotations

import click

from vmrag_hooks import installer
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import UsageInvalid


@vmrag_command("uninstall")
@click.option("--worktree", is_flag=True, help="Only for this work tree, after `vmrag install --worktree`.")
@click.option("--hooks", metavar="NAME,…", help="Remove only these.")
@click.option("--force", is_flag=True, help="Also from a hooks directory outside of the repository.")
def command(invocation: Invocation, *, worktree: bool, hooks: str | None, force: bool) -> None:
    """Remove the git hooks and put back what was there before. The knowledge base stays."""
    if worktree and hooks is not None:
        raise UsageInvalid("--worktree takes all hooks.", hint="vmrag uninstall --worktree")
    names = installer.parse_hooks(hooks)
    with invocation.workspace() as ws:
        report = installer.uninstall(ws.places, hooks=names, force=force, worktree=worktree)
    if report.elsewhere:
        lines = ["The hooks do nothing in this work tree any more; others use them."]
    else:
        lines = [
            f"Removed from {report.folder}: {', '.join(report.removed)}" if report.removed else "Nothing to remove."
        ]
    lines += [f"The {name} hook that was there before is back." for name in report.restored]
    invocation.emit(report, lines)
