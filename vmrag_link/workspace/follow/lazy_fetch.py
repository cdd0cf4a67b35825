"""Fetch the pinned revision if it is missing; in a fresh clone, the whole knowledge base.

Only trusted remotes are asked. A fetch that fails is no error: the work tree goes on with what is
here, and `Workspace.unreached` says why.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from vmrag_link import pin_values
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
from vmrag_link.git import configuration, plumbing
from vmrag_link.models import Record
from vmrag_link.paths import PIN_NAME, write_atomically
from vmrag_link.pin import Pin
from vmrag_link.sync.target import Target
from vmrag_link.workspace import Workspace, reasons

OR_RESOLVE_WITHOUT_IT = "if nobody has it any more: vmrag resolve --accept-loss (goes on with the other side)"
"""What helps where the pin that git merges names a revision that is lost."""

OR_PIN_WITHOUT_IT = (
    "if nobody has it any more: vmrag pin --accept-loss REVISION "
    "(goes on from that one, without what only the lost one held)"
)

ACCEPTED_KEY = "vmrag.acceptedLoss"
"""In git's configuration, the revisions whose loss a person accepted on this machine."""

RETRY_SECONDS = 60
"""A remote that could not be reached is not asked again for this long: a query should not wait for
a dead network each time. Each command asks a remote again that did not have the revision; a server
waits this long.
"""


class _Failure(Record, frozen=True):
    """`at`: seconds since 1970."""

    remote: str
    revision: str
    at: float
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
    """Fetch what the pin names, if it is not here and `auto_fetch` is on; whether something came.

    `insist`: ask even if it could not be had a moment ago, as where nothing else could answer.
    Raises `NotInitialized`, why a fresh clone gets no knowledge base; everything else can wait.
    """
    if not ws.config.auto_fetch:
        return False
    cloned = not ws.is_initialized
    if cloned and not _clone(ws, insist=insist):
        return False
    target = ws.resolve_target_for_reading()
    if target.state != "missing" or target.pin is None or target.problem:  # what was refused came already
        return cloned
    earlier = None if insist or ws.current_revision is None else _recent_failure(ws, target.pin)
    if earlier and (ws.unreached or not earlier.answered):
        ws.unreached = earlier.error
        return cloned
    ws.unreached = _fetch(ws, target.pin)
    if ws.unreached and not isinstance(
        ws.unreached, LockError | RemoteNotTrusted | RemoteInvalid
    ):  # those asked nobody
        _remember(ws, target.pin, ws.unreached)
    return cloned or ws.unreached is None


def retry_fetch(ws: Workspace) -> None:
    """Fetch the pinned revision if it is missing because the remote did not have it."""
    pin = migrated.try_read_pin(ws.places.kb, plumbing.read_pin_bytes(ws.places)) if ws.is_initialized else None
    failure = _failure(ws, pin) if pin else None
    if failure and failure.answered:
        fetch_pinned(ws)


def unusable_pin(ws: Workspace, target: Target) -> VmragError:
    """As `reasons.unusable`, with what the remote said when it was last asked, however long ago.

    Nobody is asked now.
    """
    if ws.unreached is None and target.state == "missing" and target.pin and (known := _failure(ws, target.pin)):
        ws.unreached = known.error
    return reasons.explain_unusable(ws, target)


def _clone(ws: Workspace, *, insist: bool) -> bool:
    """Clone the knowledge base of a fresh clone; whether it came.

    A remote that refuses answers at once. Only one that is silent is not asked again.
    """
    if opening.is_lost(ws.places.kb):
        raise reasons.explain_uninitialized(ws)
    pin = migrated.try_read_pin(ws.places.kb, plumbing.read_pin_bytes(ws.places))
    if pin is None:
        return False
    if not insist and ws.elsewhere:
        raise ws.elsewhere
    if not insist and (earlier := _recent_failure(ws, pin)):
        raise reasons.explain_uninitialized(ws, earlier.error)
    from vmrag_link.workspace.remotes.clone import clone  # rarely needed, and a checkout waits for imports

    try:
        clone(ws, automatic=True)
    except (RemoteError, FileSystemError) as why:
        if isinstance(why, RemoteUnreachable):
            _remember(ws, pin, why)
        ws.elsewhere = reasons.explain_uninitialized(ws, why)
        raise ws.elsewhere from why
    return True


def require_revision(ws: Workspace, pin: Pin, source: str) -> str:
    """The revision of a pin that a person or git asks for; it is fetched if it is not here and
    `auto_fetch` is on.

    Raises `PinRevisionMissing`, which names the `source` of the pin.
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
    why = _fetch(ws, pin) if ws.config.auto_fetch else reasons.explain_other_engine(ws, revision)
    revision = migrated.translate_revision(ws.places.kb, pin.dolt_commit)
    if why is None and ws.engine.has_revision(revision):
        return revision
    missing = f"{source} pins revision {revision}, which is not in this knowledge base."
    raise reasons.explain_missing_revision(missing, revision, why) from why


def require_sides(
    ws: Workspace, base: bytes | None, ours: bytes | None, theirs: bytes | None, *, given_up: Collection[str] = ()
) -> None:
    """As `require`, for the pins that git merges; a side without a readable one needs nothing.

    Neither does one whose loss is accepted, by what another side holds (see `is_given_up`) or,
    `given_up`, right now.
    """
    named = (("Our side", ours), ("Their side", theirs), ("The base", base))
    sides = [(source, pin) for source, data in named if (pin := migrated.try_read_pin(ws.places.kb, data))]
    others = [pin.dolt_commit for _, pin in sides]
    problems: list[PinRevisionMissing] = []
    for source, pin in sides:
        if pin.dolt_commit in given_up:
            continue
        try:
            require_revision(ws, pin, source)
        except PinRevisionMissing as why:
            problems.append(why)
    for problem in problems:
        if not is_given_up(ws, problem, others):
            raise PinRevisionMissing(
                problem.message, hint=problem.hint.replace(OR_PIN_WITHOUT_IT, OR_RESOLVE_WITHOUT_IT), **problem.details
            )


def is_given_up(ws: Workspace, missing: PinRevisionMissing, others: Iterable[str]) -> bool:
    """Whether one of the others accepts the loss of a missing revision, and no remote has it.

    The record may be a stranger's, and a remote that cannot be asked may have the revision. In this
    case the record counts only if a person accepted the loss on this machine. Otherwise raise
    `PinRevisionMissing` with a hint that says how.
    """
    from vmrag_link.merging import revisions

    revision = missing.details["revision"]
    if not ws.is_initialized or not any(revisions.accepts_loss(ws.engine, each, revision) for each in others):
        return False
    if _no_remote_has_it(missing.__cause__) or revision in configuration.read_config_values(ws.places, ACCEPTED_KEY):
        return True
    raise PinRevisionMissing(
        f"{missing.message} A record accepts its loss, but it does not apply before all remotes were asked.",
        hint=f"{missing.hint.rstrip('.')}; if no remote has it: git config --add {ACCEPTED_KEY} {revision}",
        **missing.details,
    )


def _no_remote_has_it(why: BaseException | None) -> bool:
    """Whether the reason why a revision did not come is that all remotes answered without it."""
    if isinstance(why, PinRevisionMissing):
        return "engine" not in why.details  # else this clone stayed behind a migration, and asked nobody
    return isinstance(why, RemoteEmpty) or (isinstance(why, RemoteUnreachable) and why.cause == PinRevisionMissing.code)


def pinned_at(ws: Workspace, ref: str) -> str:
    """The revision that a git ref pins. Raises as `pin_at` and `require`."""
    return require_revision(ws, pin_at(ws, ref), ref)


def pin_at(ws: Workspace, ref: str, *, shown: str = "", limit: int | None = None) -> Pin:
    """The pin in the commit that a git ref names. Raises `GitReferenceMissing`, `PinMissing`,
    `PinMalformed`.

    `shown`: what the user typed, if that is not `ref`. Raises `GitFailed` above `limit` bytes.
    """
    name = shown or ref
    data = plumbing.read_blob(ws.places, f"{plumbing.resolve_commit(ws.places, ref)}:{PIN_NAME}", limit=limit)
    if data is None:
        raise PinMissing(f"{name} pins no knowledge.", hint=f"git log {quoted(name)} -- {PIN_NAME}", ref=name)
    return migrated.read_pin(ws.places.kb, data, source=f"{name}:{PIN_NAME}")


def _fetch(ws: Workspace, pin: Pin) -> VmragError | None:
    """Fetch the revision; why it is still missing, None if it came."""
    from vmrag_link.workspace.remotes import destinations, revision_map
    from vmrag_link.workspace.remotes.fetch import SYNCED_FORK_HINT, fetch_in_turn

    if behind := reasons.explain_other_engine(ws, pin.dolt_commit):
        return behind
    revision_map.reload_map(ws.engine)  # where a server has the knowledge base, others write it
    if ws.engine.has_revision(migrated.translate_revision(ws.places.kb, pin.dolt_commit)):
        return None
    why: VmragError | None = None
    try:
        answered, problems = fetch_in_turn(
            ws, destinations.list_trusted_addresses(ws, pin.dolt_remote), pin.dolt_commit
        )
        unasked = [problem for problem in problems if not isinstance(problem, RemoteEmpty)]
        why = next(iter(unasked), None) or (None if answered else problems[0])
    except (RemoteError, LockError, FileSystemError) as error:
        why = error
    here = migrated.translate_revision(ws.places.kb, pin.dolt_commit)  # a fetch may bring what it became
    if ws.engine.has_revision(here):
        return None
    if why is None and pin_values.engine_of_revision(here) != ws.engine.name:
        return PinRevisionMissing(
            "It was made before the knowledge base was moved, and was not moved with it.",
            hint=f"Who still has it takes it along: vmrag migrate --to {ws.engine.name} && vmrag push",
        )
    return why or RemoteUnreachable(
        "The remote does not have it either.",
        hint="Ask who pinned it to push it with `vmrag push`, then: vmrag sync (git log -1 -- .dolt-version shows who); "
        f"{SYNCED_FORK_HINT}; what somebody's fork has, a maintainer takes from there: vmrag adopt FORK; {OR_PIN_WITHOUT_IT}",
        cause=PinRevisionMissing.code,
    )


def _recent_failure(ws: Workspace, pin: Pin) -> _Failure | None:
    found = _failure(ws, pin)
    return found if found and 0 <= time.time() - found.at < RETRY_SECONDS else None


def _failure(ws: Workspace, pin: Pin) -> _Failure | None:
    try:
        found = msgspec.json.decode(_note(ws).read_bytes(), type=_Failure)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError):
        return None
    same = (found.remote, found.revision) == (pin.dolt_remote, pin.dolt_commit)
    return found if same else None


def _remember(ws: Workspace, pin: Pin, why: VmragError) -> None:
    failure = _Failure(pin.dolt_remote, pin.dolt_commit, time.time(), why.message, why.hint, why.cause)
    with contextlib.suppress(OSError):  # a courtesy to the next query
        write_atomically(_note(ws), msgspec.json.encode(failure), durable=False)


def _note(ws: Workspace) -> Path:
    return ws.places.remotes / "unreached.json"
