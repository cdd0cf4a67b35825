"""Decide whether a merge may ignore a lost revision, because a user accepted its loss.

A lost revision is one that a commit pins and that no remote has. `losses` records that the user
accepts its loss, as a trailer of a later revision. Anyone with push access can write this record.
So it applies only after all remotes answered that they do not have the revision, or if the user
accepted the loss on this machine (`ACCEPTED_KEY`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from vmrag_link import hints
from vmrag_link.engines import migrated
from vmrag_link.errors import PinRevisionMissing, RemoteEmpty, RemoteUnreachable
from vmrag_link.git import configuration
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.lazy_fetch import OR_PIN_WITHOUT_IT, require_revision

OR_RESOLVE_WITHOUT_IT = "run 'vmrag resolve --accept-loss' to continue with the other side if no one has it"
"""The hint if a merged pin names a lost revision."""

ACCEPTED_KEY = "vmrag.acceptedLoss"
"""Key in git's configuration: revisions whose loss the user accepted on this machine."""


def require_sides(
    ws: Workspace, base: bytes | None, ours: bytes | None, theirs: bytes | None, *, given_up: Collection[str] = ()
) -> None:
    """Fetch the missing revisions of the pins that git merges, given by the bytes of each pin.

    A side without a readable pin needs no revision. A lost revision is not needed if another side
    accepts its loss (`is_given_up`), or if it is in `given_up`. Raises `PinRevisionMissing`.
    """
    pins = {
        "our side": migrated.try_read_pin(ws.places.kb, ours),
        "their side": migrated.try_read_pin(ws.places.kb, theirs),
        "the base": migrated.try_read_pin(ws.places.kb, base),
    }
    sides = [(source, pin) for source, pin in pins.items() if pin]
    pinned = [pin.dolt_commit for _, pin in sides]
    problems: list[PinRevisionMissing] = []
    for source, pin in sides:
        if pin.dolt_commit in given_up:
            continue
        try:
            require_revision(ws, pin, source)
        except PinRevisionMissing as error:
            problems.append(error)
    for problem in problems:
        if not is_given_up(ws, problem, pinned):
            raise PinRevisionMissing(
                problem.message,
                hint=problem.hint.replace(
                    OR_PIN_WITHOUT_IT.removeprefix("run "), OR_RESOLVE_WITHOUT_IT.removeprefix("run ")
                ),
                **problem.details,
            )


def is_given_up(ws: Workspace, missing: PinRevisionMissing, others: Iterable[str]) -> bool:
    """Return whether a missing revision is not needed, because another one records its loss.

    `missing`: the error of `require_revision`. `others`: the revisions that may have the record.
    Raises `PinRevisionMissing` if there is a record that does not apply yet.
    """
    from vmrag_link.merging import revisions

    revision = missing.details["revision"]
    if not ws.is_initialized or not any(revisions.accepts_loss(ws.engine, other, revision) for other in others):
        return False
    if _no_remote_has_it(missing.__cause__) or revision in configuration.read_config_values(ws.places, ACCEPTED_KEY):
        return True
    raise PinRevisionMissing(
        f"{missing.message} A record accepts its loss, but it applies only after all remotes answered that they do not have it.",
        hint=hints.join_alternatives(
            missing.hint, f"run 'git config --add {ACCEPTED_KEY} {revision}' if no remote has it"
        ),
        **missing.details,
    )


def _no_remote_has_it(error: BaseException | None) -> bool:
    """Return whether all remotes answered that they do not have it. `error`: why it is missing."""
    if isinstance(error, PinRevisionMissing):
        return "engine" not in error.details  # otherwise this clone lacks a migration, and contacted no remote
    return isinstance(error, RemoteEmpty) or (
        isinstance(error, RemoteUnreachable) and error.cause == PinRevisionMissing.code
    )
