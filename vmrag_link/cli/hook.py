"""`vmrag hook`: what the shims run when something has moved."""

from __future__ import annotations

import click
from vmrag_hooks import run

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command


@vmrag_command("hook", hidden=True)
@click.argument("name")
@click.argument("arguments", nargs=-1)
def command(invocation: Invocation, *, name: str, arguments: tuple[str, ...]) -> int:
    """Run by git's hooks; a post-* hook never fails."""
    return run.run(name, arguments, invocation.directory)
