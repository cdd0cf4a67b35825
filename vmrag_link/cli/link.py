"""`vmrag link`: link a code commit to a revision."""

from __future__ import annotations

from pathlib import Path

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK
from vmrag_link.paths import PIN_NAME


@vmrag_command("link")
@click.option(
    "--repo", type=click.Path(path_type=Path), default=Path(), help="Repository of the commit, which can be bare."
)
@click.option("--git-commit", default="HEAD", show_default=True, help="Commit to link.")
@click.option("--bidirectional", is_flag=True, help="Also write the revision to the link file, and stage it.")
@click.option(
    "--link-file",
    default=PIN_NAME,
    show_default=True,
    help="Link file, relative to the top of the working tree.",
)
def command(invocation: Invocation, *, repo: Path, git_commit: str, bidirectional: bool, link_file: str) -> int:
    """Link a git commit to a revision.

    It records that the commit belongs to the revision of this working tree.
    """
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
        output.print_warning(warning.message, "warning:")
    lines = [f"Linked {report.link.git_commit[:10]} to revision {report.link.dolt_commit[:7]}."]
    written = report.bidirectional
    if written.staged:
        lines += [f"{written.link_file} names it and is staged.", "hint: run 'git commit -m \"…\"'"]
    invocation.emit_report(report, lines)
    return FAILED_CHECK if written.enabled and link_file and not written.staged and not report.warnings else 0
