"""`vmrag gc`."""

from __future__ import annotations

import click

from vmrag_link.cli.base import Invocation, plural
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.ops import gc as operation

MEGABYTE = 1_000_000


@vmrag_command("gc")
@click.option("--apply", is_flag=True, help="Do it; without this, only say what would be done.")
def command(invocation: Invocation, *, apply: bool) -> None:
    """Drop revisions that no pin needs and spare indexes. Every revision that git can still check out is kept."""
    with invocation.workspace() as ws:
        report = operation.gc(ws, apply=apply)
    anchored, removed = ("Anchored", "Removed") if apply else ("Would anchor", "Would remove")
    freed = f"{report.snapshot_bytes / MEGABYTE:.1f} MB"
    lines = [
        f"{anchored} {plural(len(report.anchored), 'pinned revision')} that no branch reaches.",
        f"{removed} {plural(len(report.snapshots), 'spare snapshot')} ({freed}).",
    ]
    if apply:
        lines.append(
            f"Knowledge base: {report.kb_bytes_before / MEGABYTE:.1f} → {report.kb_bytes_after / MEGABYTE:.1f} MB."
        )
    else:
        lines.append("Next: vmrag gc --apply")
    invocation.emit(report, lines)
