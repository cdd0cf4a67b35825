"""`vmrag pin`: pin a revision in `.dolt-version`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, UsageInvalid
from vmrag_link.paths import PIN_NAME

if TYPE_CHECKING:
    from vmrag_link.ops.pin import FirstPin, PinCommandReport
    from vmrag_link.workspace.follow.losses import AcceptedLoss


@vmrag_command("pin")
@click.argument("revision", required=False, metavar="[REVISION|KB-BRANCH]")
@click.option("--empty", is_flag=True, help="Pin the first revision, which has no documents.")
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Continue from REVISION without pinned revisions that no remote has.",
)
@click.option("--offline", is_flag=True, help="With --accept-loss: do not contact the remotes.")
def command(invocation: Invocation, *, revision: str | None, empty: bool, accept_loss: bool, offline: bool) -> int:
    """Pin a revision in .dolt-version.

    Without a revision, it pins the newest one of this branch. It stages the pin and switches
    to the revision. If the commit has no pin yet, such as an old tag, the command chooses a
    revision and lists the alternatives.

    --accept-loss creates a revision on top of REVISION that records which revisions are lost.
    Reviewers and 'vmrag verify' see the record.
    """
    if offline and not accept_loss:
        raise UsageInvalid("--offline needs --accept-loss.", hint="run 'vmrag pin --help' to see its options")
    if empty and (revision is not None or accept_loss):
        raise UsageInvalid("--empty cannot be combined with a revision.", hint="leave the revision or --empty out")
    from vmrag_link.ops import pin as operation

    with invocation.workspace() as ws:
        report = (
            operation.accept_loss(ws, revision, offline=offline)
            if accept_loss
            else operation.pin_revision(ws, revision, empty=empty)
        )
    invocation.emit_report(report, _pin_lines(report))
    return 0 if report.staged else FAILED_CHECK


def describe_losses(loss: AcceptedLoss) -> Iterator[str]:
    """Yield lines about lost revisions, and the revision that continues."""
    from vmrag_link.workspace.follow import losses

    for lost in loss.lost:
        yield from losses.describe_loss(lost)
    yield f"Not found at {', '.join(loss.checked_remotes)}." if loss.checked_remotes else "Did not contact any remote."
    yield f"Revision {loss.revision[:7]} continues from {loss.instead[:7]}, and records the loss."


def _pin_lines(report: PinCommandReport) -> Iterator[str]:
    from vmrag_link.workspace.pins.pinning import ATTRIBUTES

    name, first = report.pin.dolt_commit[:7], report.first
    if report.losses:
        yield from describe_losses(report.losses)
    if first:
        yield f"This git commit had no pin. It gets {name}: {first.taken.described}."
        yield from _other_lines(first)
    busy = [] if report.staged else [PIN_NAME]
    if first and first.attributes.written:
        busy += [] if first.attributes.staged or first.attributes.edited else [ATTRIBUTES]
        if first.attributes.edited:
            yield f"Wrote {ATTRIBUTES}, which has your unstaged changes."
            yield f"hint: run 'git add {ATTRIBUTES}' to stage all of them"
    if busy:
        yield "Another git command holds the index."
        yield f"hint: run 'git add {' '.join(busy)}'"
    elif report.changed:
        also = f" with {ATTRIBUTES}" if first and first.attributes.written and first.attributes.staged else ""
        yield f"Pinned {name} in {PIN_NAME}, which is staged{also}."
        yield "hint: run 'git commit -m \"…\"' to commit the pin"
    else:
        yield f"{name} is already pinned."
    if report.pending:
        yield f"warning: {report.pending}"


def _other_lines(first: FirstPin) -> Iterator[str]:
    from vmrag_link.workspace.pins.history_pins import NO_DOCUMENTS

    others = [f"{alternative.command} ({alternative.described})" for alternative in first.instead]
    if first.taken.revision != first.empty:
        others.append(f"vmrag pin --empty ({NO_DOCUMENTS})")
    yield from (f"  instead: {alternative}" for alternative in others)
