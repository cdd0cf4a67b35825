"""`vmrag link` and `vmrag links`."""

from __future__ import annotations

from pathlib import Path

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, UsageInvalid, plural
from vmrag_link.models import Link
from vmrag_link.ops.links import link as link_operation
from vmrag_link.ops.links import links as table
from vmrag_link.paths import PIN_NAME


@vmrag_command("link")
@click.option(
    "--repo", type=click.Path(path_type=Path), default=Path(), help="The repository of the commit; may be bare."
)
@click.option("--git-commit", default="HEAD", show_default=True, help="The commit to link.")
@click.option("--bidirectional", is_flag=True, help="Let the link file name the revision, too, and stage it.")
@click.option(
    "--link-file",
    default=PIN_NAME,
    show_default=True,
    help="The link file, relative to the top of the work tree; the name of a new one ends so, too.",
)
def command(invocation: Invocation, *, repo: Path, git_commit: str, bidirectional: bool, link_file: str) -> int:
    """Link a code commit to the revision of the knowledge that this work tree stands at."""
    with invocation.workspace() as ws:
        report = link_operation.link(
            ws,
            git_repo_path=invocation.directory / repo,
            git_commit=git_commit,
            bidirectional=bidirectional,
            link_file=link_file,
        )
    for warning in report.warnings:
        output.complain(warning.message, "warning:")
    lines = [f"Linked {report.link.git_commit[:10]} to revision {report.link.dolt_commit[:7]}."]
    written = report.bidirectional
    if written.staged:
        lines.append(f'{written.link_file} names it and is staged. Next: git commit -m "…"')
    invocation.emit(report, lines)
    return FAILED_CHECK if written.enabled and link_file and not written.staged and not report.warnings else 0


@vmrag_command("links")
@click.argument("action", type=click.Choice(["list", "show", "rebuild"]), default="list")
@click.argument("ref", required=False)
@click.option("--revision", help="list: only the commits that are linked to this revision.")
def links(invocation: Invocation, *, action: str, ref: str | None, revision: str | None) -> None:
    """Show which revision of the knowledge belongs to which code commit, or derive that from git's
    history again.
    """
    if (action == "show") != (ref is not None) or (revision and action != "list"):
        raise UsageInvalid(
            "These arguments do not go together.", hint="vmrag links list, vmrag links show REF, vmrag links rebuild"
        )
    with invocation.workspace() as ws:
        if action == "rebuild":
            rebuilt = table.rebuild(ws)
            said = f"{plural(rebuilt.derived, 'link')} from git's history ({rebuilt.changed} new or changed), {rebuilt.removed} removed"
            invocation.emit(rebuilt, [f"{said}, {rebuilt.manual} made by hand."])
        elif ref:
            link = table.show(ws, ref)
            invocation.emit(link, [_link_line(link)])
        else:
            report = table.links(ws, revision=revision)
            invocation.emit(report, [_link_line(each) for each in report.links] or ["No links yet."])


def _link_line(link: Link) -> str:
    parts = [output.style(link.git_commit[:10], fg="yellow"), link.dolt_commit[:7], link.source]
    if link.git_branch:
        parts.append(link.git_branch)
    if link.superseded_by:
        parts.append(f"superseded by {link.superseded_by[:10]}")
    return "  ".join(parts)
