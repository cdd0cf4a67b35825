"""`vmrag links`: show the revisions of git commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import UsageInvalid, plural

if TYPE_CHECKING:
    from vmrag_link.models import Link


@vmrag_command("links")
@click.argument("action", type=click.Choice(["list", "show", "rebuild"]), default="list")
@click.argument("ref", required=False)
@click.option("--revision", help="list: only commits that are linked to this revision.")
def command(invocation: Invocation, *, action: str, ref: str | None, revision: str | None) -> None:
    """Show the revision of each git commit.

    'rebuild' derives the links from git's history again.
    """
    if (action == "show") != (ref is not None) or (revision and action != "list"):
        raise UsageInvalid(
            "'show' needs a REF, and only 'list' accepts a revision.",
            hint="run 'vmrag links --help' to see its options",
        )
    from vmrag_link.ops.links import links as table

    with invocation.workspace() as ws:
        if action == "rebuild":
            rebuilt = table.rebuild_links(ws)
            sentence = f"{plural(rebuilt.derived, 'link')} from git's history ({rebuilt.changed} new or changed), {rebuilt.removed} removed"
            invocation.emit_report(rebuilt, [f"{sentence}, {rebuilt.manual} made by hand."])
        elif ref:
            link = table.show_link(ws, ref)
            invocation.emit_report(link, [_link_line(link)])
        else:
            report = table.list_links(ws, revision=revision)
            invocation.emit_report(report, [_link_line(row) for row in report.links] or ["No links yet."])


def _link_line(link: Link) -> str:
    parts = [output.style_text(link.git_commit[:10], fg="yellow"), link.dolt_commit[:7], link.source]
    if link.git_branch:
        parts.append(link.git_branch)
    if link.superseded_by:
        parts.append(f"superseded by {link.superseded_by[:10]}")
    return "  ".join(parts)
