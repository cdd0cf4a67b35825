"""Fetch the pinned revision if it is missing. In a fresh clone, fetch the whole knowledge base.

Only trusted remotes are used. A failed fetch is not an error. The work tree uses the available
state, and `Workspace.fetch_error` has the reason.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from vmrag_link import hints, pin_values
from vmrag_link.engines import migrated, opening
from vmrag_link.errors import (
    FileSystemError,
    LockError,
    PinMissing,
    PinRevisionMissing,
    RemoteEmpty,
    RemoteError,
    RemoteInvalid,
    RemoteNotTrusted,
    RemoteUnreachable,
    ServerUnreachable,
    VmragError,
    quoted,
)
from vmrag_link.file_access import write_atomically
from vmrag_link.git import configuration, plumbing
from vmrag_link.models import Record
from vmrag_link.paths import PIN_NAME
from vmrag_link.pin import Pin
from vmrag_link.sync.target import Target
from vmrag_link.workspace import Workspace, reasons

OR_RESOLVE_WITHOUT_IT = "run 'vmrag resolve --accept-loss' to continue with the other side if no one has it"
"""The hint if a merged pin names a lost revision."""

OR_PIN_WITHOUT_IT = "run 'vmrag pin --accept-loss REVISION' to continue from that revision if no one has it"

ASK_AUTHOR = (
    "ask its author to run 'vmrag push', and run 'git log -1 -- .dolt-version' to see who that is "
    "(a maintainer can run 'vmrag adopt FORK' if only a fork has it)"
)

ACCEPTED_KEY = "vmrag.acceptedLoss"
"""Key in git's configuration: revisions whose loss the user accepted on this machine."""

RETRY_SECONDS = 60
"""Time before an unreachable remote is tried again, so that queries do not wait for a dead network.
If a remote answered without the revision, each command tries again. A server also waits this long.
"""


class _Failure(Record, frozen=True):
    """The last failed fetch."""

    remote: str
    revision: str
    at: float
    """Seconds since 1970."""
    message: str
    hint: str
    cause: str = RemoteUnreachable.code

    @property
    def answered(self) -> bool:
        """True if the remote answered that it does not have the revision."""
        return self.cause == PinRevisionMissing.code

    @property
    def error(self) -> RemoteUnreachable:
        return RemoteUnreachable(self.message, hint=self.hint, cause=self.cause)


def fetch_pinned(ws: Workspace, *, insist: bool = False) -> bool:
    """Fetch the pinned revision if it is missing and `auto_fetch` is on. Return whether it came.

    `insist`: try again even if it failed recently, because nothing else can answer. Raises
    `NotInitialized` with the reason if a fresh clone gets no knowledge base. Other failures are
    recorded, not raised.
    """
    if not ws.config.auto_fetch:
        return False
    cloned = not ws.is_initialized
    if cloned and not _clone_knowledge_base(ws, insist=insist):
        return False
    target = ws.resolve_target_for_reading()
    if target.state != "missing" or target.pin is None or target.problem:  # a refused revision is here already
        return cloned
    earlier = None if insist or ws.current_revision is None else _read_recent_failure(ws, target.pin)
    if earlier and (ws.fetch_error or not earlier.answered):
        ws.fetch_error = earlier.error
        return cloned
    ws.fetch_error = _fetch_revision(ws, target.pin)
    raised_before_request = isinstance(ws.fetch_error, LockError | RemoteNotTrusted | RemoteInvalid)
    if ws.fetch_error and not raised_before_request:
        _write_failure(ws, target.pin, ws.fetch_error)
    return cloned or ws.fetch_error is None


def retry_fetch(ws: Workspace) -> None:
    """Fetch the pinned revision if it is missing because the remote did not have it."""
    pin = migrated.try_read_pin(ws.places.kb, plumbing.read_pin_bytes(ws.places)) if ws.is_initialized else None
    failure = _read_failure(ws, pin) if pin else None
    if failure and failure.answered:
        fetch_pinned(ws)


def unusable_pin(ws: Workspace, target: Target) -> VmragError:
    """Return the error for an unusable pin, with the last answer of the remote, however old.

    No remote is contacted.
    """
    if not ws.fetch_error and target.state == "missing" and target.pin and (failure := _read_failure(ws, target.pin)):
        ws.fetch_error = failure.error
    return reasons.explain_unusable(ws, target)


def _clone_knowledge_base(ws: Workspace, *, insist: bool) -> bool:
    """Clone the knowledge base of a fresh clone. Return whether it came.

    A refusal is immediate, so it is tried each time. A remote that does not answer is not tried
    again for `RETRY_SECONDS`.
    """
    if opening.is_lost(ws.places.kb):
        raise reasons.explain_uninitialized(ws)
    pin = migrated.try_read_pin(ws.places.kb, plumbing.read_pin_bytes(ws.places))
    if pin is None:
        return False
    if not insist and ws.clone_error:
        raise ws.clone_error
    if not insist and (earlier := _read_recent_failure(ws, pin)):
        raise reasons.explain_uninitialized(ws, earlier.error)
    from vmrag_link.workspace.remotes.clone import clone  # rarely needed, and a checkout waits for imports

    try:
        clone(ws, automatic=True)
    except (RemoteError, FileSystemError) as error:
        if isinstance(error, RemoteUnreachable):
            _write_failure(ws, pin, error)
        ws.clone_error = reasons.explain_uninitialized(ws, error)
        raise ws.clone_error from error
    return True


def require_revision(ws: Workspace, pin: Pin, source: str) -> str:
    """Return the revision of a pin that the user or git asks for.

    Fetch it if it is missing and `auto_fetch` is on. Raises `PinRevisionMissing` with the `source`
    of the pin.
    """
    if not ws.is_initialized:
        fetch_pinned(ws)
    revision = migrated.translate_revision(ws.places.kb, pin.dolt_commit)
    try:
        if ws.engine.has_revision(revision):
            return revision
    except ServerUnreachable:
        if ws.views.find_problem(revision):
            raise
        return revision  # its index is here, and never changes
    error = _fetch_revision(ws, pin) if ws.config.auto_fetch else reasons.explain_other_engine(ws, revision)
    revision = migrated.translate_revision(ws.places.kb, pin.dolt_commit)
    if error is None and ws.engine.has_revision(revision):
        return revision
    missing = f"{source} pins revision {revision}, which is not in this knowledge base."
    raise reasons.explain_missing_revision(missing, revision, error) from error


def require_sides(
    ws: Workspace, base: bytes | None, ours: bytes | None, theirs: bytes | None, *, given_up: Collection[str] = ()
) -> None:
    """Require the revisions of the pins that git merges.

    A side without a readable pin needs none. A lost revision is not needed if another side accepts
    its loss (`is_given_up`), or if it is in `given_up`. Raises `PinRevisionMissing`.
    """
    named = (("our side", ours), ("their side", theirs), ("the base", base))
    sides = [(source, pin) for source, data in named if (pin := migrated.try_read_pin(ws.places.kb, data))]
    others = [pin.dolt_commit for _, pin in sides]
    problems: list[PinRevisionMissing] = []
    for source, pin in sides:
        if pin.dolt_commit in given_up:
            continue
        try:
            require_revision(ws, pin, source)
        except PinRevisionMissing as error:
            problems.append(error)
    for problem in problems:
        if not is_given_up(ws, problem, others):
            raise PinRevisionMissing(
                problem.message,
                hint=problem.hint.replace(
                    OR_PIN_WITHOUT_IT.removeprefix("run "), OR_RESOLVE_WITHOUT_IT.removeprefix("run ")
                ),
                **problem.details,
            )


def is_given_up(ws: Workspace, missing: PinRevisionMissing, others: Iterable[str]) -> bool:
    """Return whether one of the others accepts the loss of a missing revision, and no remote has
    it.

    Anyone with push access can record a loss, and a remote that cannot be reached may have the
    revision. So if a remote was not reached, the record applies only if the user accepted the loss
    on this machine. Otherwise raises `PinRevisionMissing` with a hint.
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
    """Return whether all remotes answered that they do not have the revision."""
    if isinstance(error, PinRevisionMissing):
        return "engine" not in error.details  # otherwise this clone lacks a migration, and contacted no remote
    return isinstance(error, RemoteEmpty) or (
        isinstance(error, RemoteUnreachable) and error.cause == PinRevisionMissing.code
    )


def pinned_at(ws: Workspace, ref: str) -> str:
    """Return the revision that a git ref pins.

    Raises the errors of `pin_at` and `require_revision`.
    """
    return require_revision(ws, pin_at(ws, ref), ref)


def pin_at(ws: Workspace, ref: str, *, shown: str = "", limit: int | None = None) -> Pin:
    """Return the pin in the commit of a git ref.

    `shown`: what the user typed, if it is not `ref`. Raises `GitReferenceMissing`, `PinMissing`,
    `PinMalformed`, and `GitFailed` if the pin is larger than `limit` bytes.
    """
    name = shown or ref
    data = plumbing.read_blob(ws.places, f"{plumbing.resolve_commit(ws.places, ref)}:{PIN_NAME}", limit=limit)
    if data is None:
        raise PinMissing(
            f"{name} has no pin.",
            hint=f"run 'git log {quoted(name)} -- {PIN_NAME}' to list the commits that changed the pin",
            ref=name,
        )
    return migrated.read_pin(ws.places.kb, data, source=f"{name}:{PIN_NAME}")


def _fetch_revision(ws: Workspace, pin: Pin) -> VmragError | None:
    """Fetch the revision. Return why it is still missing, or None."""
    from vmrag_link.workspace.remotes import destinations, revision_map
    from vmrag_link.workspace.remotes.fetch import fetch_in_turn

    if other_engine := reasons.explain_other_engine(ws, pin.dolt_commit):
        return other_engine
    revision_map.reload_map(ws.engine)  # on a server, other clients may have written
    if ws.engine.has_revision(migrated.translate_revision(ws.places.kb, pin.dolt_commit)):
        return None
    failure: VmragError | None = None
    try:
        has_answered, problems = fetch_in_turn(
            ws, destinations.list_trusted_addresses(ws, pin.dolt_remote), pin.dolt_commit
        )
        unasked = [problem for problem in problems if not isinstance(problem, RemoteEmpty)]
        failure = next(iter(unasked), None) or (None if has_answered else problems[0])
    except (RemoteError, LockError, FileSystemError) as error:
        failure = error
    current = migrated.translate_revision(ws.places.kb, pin.dolt_commit)  # the fetch may have the migrated revision
    if ws.engine.has_revision(current):
        return None
    if failure is None and pin_values.engine_of_revision(current) != ws.engine.name:
        return PinRevisionMissing(
            "it was created before the knowledge base was migrated, and was not migrated with it.",
            hint=f"run 'vmrag migrate --to {ws.engine.name} && vmrag push' in a clone that still has it",
        )
    return failure or RemoteUnreachable(
        "the remote does not have it either.",
        hint=hints.join_alternatives(ASK_AUTHOR, OR_PIN_WITHOUT_IT),
        cause=PinRevisionMissing.code,
    )


def _read_recent_failure(ws: Workspace, pin: Pin) -> _Failure | None:
    failure = _read_failure(ws, pin)
    return failure if failure and 0 <= time.time() - failure.at < RETRY_SECONDS else None


def _read_failure(ws: Workspace, pin: Pin) -> _Failure | None:
    try:
        failure = msgspec.json.decode(_failure_path(ws).read_bytes(), type=_Failure)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return None
    same = (failure.remote, failure.revision) == (pin.dolt_remote, pin.dolt_commit)
    return failure if same else None


def _write_failure(ws: Workspace, pin: Pin, error: VmragError) -> None:
    failure = _Failure(
        remote=pin.dolt_remote,
        revision=pin.dolt_commit,
        at=time.time(),
        message=error.message,
        hint=error.hint,
        cause=error.cause,
    )
    with contextlib.suppress(OSError):  # the file only saves time for the next query
        write_atomically(_failure_path(ws), msgspec.json.encode(failure), durable=False)


def _failure_path(ws: Workspace) -> Path:
    return ws.places.remotes / "unreached.json"
