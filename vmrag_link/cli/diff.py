"""`vmrag diff`."""

from __future__ import annotations

import click

from vmrag_link.cli.base import Invocation, described
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.ops import history

MARKS = {"added": ("A", "green"), "modified": ("M", "yellow"), "removed": ("D", "red")}


@vmrag_command("diff")
@click.argument("old", required=False)
@click.argument("new", required=False)
def command(invocation: Invocation, *, old: str | None, new: str | None) -> None:
    """Show which documents differ between two places: git refs, revisions, or WORKING.

    Without arguments: the uncommitted documents.
    """
    with invocation.workspace() as ws:
        report = history.diff(ws, old, new)
    lines = []
    for kind, name in report.collections:
        lines.append(f"{click.style(MARKS[kind][0], fg=MARKS[kind][1])}  {name}/ (the collection's settings)")
    for each in report.documents:
        letter, colour = MARKS[each.kind]
        lines.append(f"{click.style(letter, fg=colour)}  {each.collection}/{each.doc_id}")
    invocation.emit(report, [*lines, described(report.changes)])
