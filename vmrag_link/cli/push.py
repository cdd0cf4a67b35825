"""`vmrag push`: push the revisions that the code pins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from vmrag_link.cli.base import NEXT_COMMIT, Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.remote import describe_moves
from vmrag_link.errors import UsageInvalid, plural

if TYPE_CHECKING:
    from vmrag_link.ops.push import PushReport


@vmrag_command("push")
@click.argument("remote", required=False)
@click.option("--branch", "branches", multiple=True, metavar="KB-BRANCH", help="Push this KB branch. Can be repeated.")
@click.option("--all", "every", is_flag=True, help="Push all KB branches, and the pins of every git ref.")
@click.option(
    "--force",
    is_flag=True,
    help="Overwrite KB branches of the remote that have newer revisions. The revisions stay reachable.",
)
@click.option(
    "--delete",
    multiple=True,
    metavar="KB-BRANCH",
    help="Delete this KB branch on the remote. Its revisions stay reachable there.",
)
def command(
    invocation: Invocation,
    *,
    remote: str | None,
    branches: tuple[str, ...],
    every: bool,
    force: bool,
    delete: tuple[str, ...],
) -> None:
    """Push the revisions that the code pins.

    It pushes the revisions that the history of HEAD pins, and the KB branch of HEAD. If the
    hooks are installed, 'git push' runs this command. REMOTE is a git remote or a URL
    (default: the code's own remote).
    """
    from vmrag_link.ops import push as operation

    if delete and (branches or every or force):
        raise UsageInvalid(
            "--delete cannot be combined with --branch, --all or --force.",
            hint="run 'vmrag push --delete KB-BRANCH' and 'vmrag push' separately",
        )
    with invocation.workspace() as ws:
        report = (
            operation.delete_branches(ws, delete, remote)
            if delete
            else operation.push(ws, remote, branches=branches, every=every, force=force)
        )
    invocation.emit_report(report, _push_lines(report))


def _push_lines(report: PushReport) -> Iterator[str]:
    if report.branches or report.kept or report.deleted or report.links:
        yield f"To {report.remote}:"
        yield from describe_moves(report.branches)
        yield from (f"  (deleted)  {row}" for row in report.deleted)
        if report.kept:
            yield f"  {plural(len(report.kept), 'revision')} that no branch there reaches"
        if report.links:
            yield f"  {plural(report.links, 'link')} between commits and revisions"
    else:
        yield f"{report.remote} has everything already."
    if report.uncommitted:
        yield "Uncommitted documents were not pushed."
        yield NEXT_COMMIT
