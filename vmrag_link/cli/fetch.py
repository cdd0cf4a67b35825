"""`vmrag fetch`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK
from vmrag_link.ops.follow.lazy_fetch import OR_PIN_WITHOUT_IT
from vmrag_link.ops.remotes import fetch as operation
from vmrag_link.transport.publish import Moved


@vmrag_command("fetch")
@click.argument("remote", required=False)
def command(invocation: Invocation, *, remote: str | None) -> int:
    """Bring what a remote's knowledge base holds: that of the code's own git remote, or of REMOTE
    (a git remote or a URL).

    Exit code 1 when the remote does not have what the checked-out code pins.
    """
    with invocation.workspace() as ws:
        report = operation.fetch(ws, remote)
    invocation.emit(report, _lines(report))
    return FAILED_CHECK if report.revision and not report.here else 0


def _lines(report: operation.FetchReport) -> Iterator[str]:
    yield from moves(report.updates)
    if not report.updates:
        yield f"Nothing new at {report.remote}."
    if report.revision and not report.here:
        yield (
            f"It does not have the pinned revision {report.revision[:7]}: ask who pinned it to push it with `vmrag push` "
            f"(git log -1 -- .dolt-version shows who); {OR_PIN_WITHOUT_IT}."
        )
    elif report.arrived:
        yield "Next: vmrag sync"
    elif report.updates:
        yield "What the checked-out code pins was here already; git pull brings the pins of others."


def moves(updates: Iterable[Moved]) -> Iterator[str]:
    """A line for each branch that moved."""
    for each in updates:
        yield (
            f"  {each.old[:7]}..{each.new[:7]}  {each.branch}" if each.old else f"  {each.new[:7]} (new)  {each.branch}"
        )
