"""`vmrag link`: link a code commit to a revision."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK
from vmrag_link.paths import PIN_NAME

if TYPE_CHECKING:
    pass


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
    from vmrag_link.ops.links import link as operation

    with invocation.workspace() as ws:
        report = operation.link(
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
