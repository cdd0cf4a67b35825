"""Fetch the pinned revision when a command needs it and this clone does not have it.

In a fresh clone, the whole knowledge base is fetched. Only trusted remotes are used. There are two
policies for a fetch that fails:

* `fetch_pinned` follows the pin. The work tree stays at its revision, and `Workspace.fetch_error`
  has the reason, which answers mention. The failure is also recorded in a file, so that the next
  commands do not wait for a dead network again.
* `require_revision` gets a revision that the user or git names, and raises the reason.
"""

from __future__ import annotations

import contextlib
import time
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
from vmrag_link.git import plumbing
from vmrag_link.models import Record
from vmrag_link.paths import PIN_NAME
from vmrag_link.pin import Pin
from vmrag_link.sync.target import Target
from vmrag_link.workspace import Workspace, reasons

OR_PIN_WITHOUT_IT = "run 'vmrag pin --accept-loss REVISION' to continue from that revision if no one has it"

ASK_AUTHOR = (
    "ask its author to run 'vmrag push', and run 'git log -1 -- .dolt-version' to see who that is "
    "(a maintainer can run 'vmrag adopt FORK' if only a fork has it)"
)

RETRY_SECONDS = 60
"""Time before an unreachable remote is tried again, so that queries do not wait for a dead network.
If a remote answered without the revision, each command tries again. A server also waits this long.
"""


class _Failure(Record, frozen=True):
    """The last failed fetch, as recorded in `unreached.json`."""

    remote: str
    revision: str
    at: float
    """Seconds since 1970."""
    message: str
    hint: str
    cause: str = RemoteUnreachable.code

    @property
    def remote_answered(self) -> bool:
        """True if the remote answered that it does not have the revision."""
        return self.cause == PinRevisionMissing.code

    @property
    def error(self) -> RemoteUnreachable:
        return RemoteUnreachable(self.message, hint=self.hint, cause=self.cause)


def fetch_pinned(ws: Workspace, *, insist: bool = False) -> bool:
    """Fetch the pinned revision if it is missing and `auto_fetch` is on.

    Return whether a revision arrived. `insist`: try again even if the fetch failed recently,
    because nothing else can answer. Raises `NotInitialized` with the reason if a fresh clone gets
    no knowledge base. Other failures are recorded in `ws.fetch_error`, not raised.
    """
    if not ws.config.auto_fetch:
        return False
    is_fresh_clone = not ws.is_initialized
    if is_fresh_clone and not _clone_knowledge_base(ws, insist=insist):
        return False
    target = ws.resolve_target_for_reading()
    if target.state != "missing" or target.pin is None or target.problem:  # a refused revision is here already
        return is_fresh_clone
    if not insist and ws.current_revision is not None:
        failure = _read_recent_failure(ws, target.pin)
        # This process has tried before, or the remote was unreachable a moment ago.
        if failure and (ws.fetch_error or not failure.remote_answered):
            ws.fetch_error = failure.error
            return is_fresh_clone
    error = _fetch_revision(ws, target.pin)
    ws.fetch_error = error
    has_contacted_remote = not isinstance(error, LockError | RemoteNotTrusted | RemoteInvalid)
    if error and has_contacted_remote:
        _write_failure(ws, target.pin, error)
    return is_fresh_clone or error is None


def retry_fetch(ws: Workspace) -> None:
    """Fetch the pinned revision if the remote lacked it at the last fetch, because it may have been
    pushed since.
    """
    pin = migrated.try_read_pin(ws.places.kb, plumbing.read_pin_bytes(ws.places)) if ws.is_initialized else None
    failure = _read_failure(ws, pin) if pin else None
    if failure and failure.remote_answered:
        fetch_pinned(ws)


def unusable_pin(ws: Workspace, target: Target) -> VmragError:
    """Return the error for a pin that cannot be followed.

    No remote is contacted. The reason is that of the last failed fetch, however old it is.
    """
    if target.state == "missing" and target.pin and not ws.fetch_error:
        failure = _read_failure(ws, target.pin)
        ws.fetch_error = failure.error if failure else None
    return reasons.explain_unusable(ws, target)


def require_revision(ws: Workspace, pin: Pin, source: str) -> str:
    """Return the revision of a pin, and fetch it if it is missing.

    If the knowledge base was migrated to another engine since, the result is the migrated revision.
    Without the setting `auto_fetch`, nothing is fetched. `source`: the name of the commit with the
    pin, for messages. Raises `PinRevisionMissing`.
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


def pinned_at(ws: Workspace, ref: str) -> str:
    """Return the revision that the commit of a git ref pins, and fetch it if it is missing.

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


def _clone_knowledge_base(ws: Workspace, *, insist: bool) -> bool:
    """Fetch the whole knowledge base into a fresh clone. Return False without a pin.

    A remote that does not answer is not tried again for `RETRY_SECONDS`. Other failures are quick,
    so each command tries again. Raises `NotInitialized` with the reason.
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


def _fetch_revision(ws: Workspace, pin: Pin) -> VmragError | None:
    """Fetch the revision of a pin. Return why it is still missing, or None if it arrived."""
    from vmrag_link.workspace.remotes import destinations, revision_map
    from vmrag_link.workspace.remotes.fetch import fetch_in_turn

    if other_engine := reasons.explain_other_engine(ws, pin.dolt_commit):
        return other_engine
    revision_map.reload_map(ws.engine)  # on a server, other clients may have written
    if ws.engine.has_revision(migrated.translate_revision(ws.places.kb, pin.dolt_commit)):
        return None
    failure: VmragError | None = None
    try:
        addresses = destinations.list_trusted_addresses(ws, pin.dolt_remote)
        has_answered, problems = fetch_in_turn(ws, addresses, pin.dolt_commit)
        unreached = [problem for problem in problems if not isinstance(problem, RemoteEmpty)]
        if unreached or not has_answered:
            failure = (unreached or problems)[0]
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
    """Return the last failure for this pin if it is less than `RETRY_SECONDS` old."""
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
