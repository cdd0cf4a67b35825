"""`vmrag agenda`."""

from __future__ import annotations

import click

from agenda.events import events
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command


@vmrag_command("agenda")
@click.argument("day")
def command(invocation: Invocation, *, day: str) -> None:
    """Show what calendars hold for a day, YYYYMMDD."""
    with invocation.workspace() as ws:
        result = events(ws, day)
    invocation.emit_report({"events": result}, result or ["Nothing."])
