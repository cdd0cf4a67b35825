"""`vmrag pin`: let the code commit that comes next name another revision, and go there."""

from __future__ import annotations

import contextlib

import msgspec
from msgspec.structs import asdict

from vmrag_link import locks
from vmrag_link.engines import migrated
from vmrag_link.engines.base import is_reserved, read_root
from vmrag_link.errors import (
    INDEXING_FAILURES,
    BranchMissing,
    GitBusy,
    KnowledgeMoved,
    LockError,
    MergeConflict,
    UsageInvalid,
)
from vmrag_link.git import pin_conflict, plumbing
from vmrag_link.models import Record
from vmrag_link.paths import PIN_NAME, Places, require_files
from vmrag_link.sync.target import Trigger
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow import losses, recovery
from vmrag_link.workspace.follow.losses import AcceptedLoss
from vmrag_link.workspace.pins import pinning
from vmrag_link.workspace.pins.history_pins import Offer, list_offers, undecided_pin
from vmrag_link.workspace.pins.pinning import Attributes, PinReport


class FirstPin(Record, frozen=True):
    """What a commit got that had pinned nothing, and what else it could take.

    `empty`: the revision without documents. `attributes`: what became of the file that names the
    merge driver.
    """

    taken: Offer
    instead: tuple[Offer, ...]
    empty: str
    attributes: Attributes


class PinCommandReport(PinReport, frozen=True):
    """`first`: None where something was pinned before. `losses`: what a person just gave up."""

    first: FirstPin | None = None
    losses: AcceptedLoss | None = None


def pin_revision(ws: Workspace, reference: str | None, *, empty: bool = False) -> PinCommandReport:
    """Pin a revision (full hash), the head of a KB branch, or (None) the head of HEAD's own KB
    branch; then go there. `empty`: pin the revision without documents instead.

    A commit that pins nothing yet, without a KB branch, takes where the work tree stands. Raises
    `PinMissing` where it stands nowhere: then a person has to say.
    """
    recovery.recover(ws)
    root = read_root(ws.engine)
    revision = root if empty else _own(ws) if reference is None else _revision(ws, reference)
    before = plumbing.read_pin_bytes(ws.places)
    found = () if before is not None else list_offers(ws)
    if before is None:
        require_files(ws.places.top / pinning.ATTRIBUTES)  # what refuses comes before what writes
    _require_records(ws, revision)
    done = go_to(ws, revision)
    first = None
    if before is None:
        taken = next((each for each in found if each.revision == revision), None)
        others = tuple(each for each in found if each != taken)
        taken = taken or Offer(revision, ws.engine.count_documents(revision), "", ())
        first = FirstPin(taken, others, root, pinning.send_to_driver(ws.places))
    staged = done.staged and (first is None or first.attributes.staged or first.attributes.edited)
    return PinCommandReport(done.pin, done.changed, staged, done.pending, first)


def _require_records(ws: Workspace, revision: str) -> None:
    """Raise `RowsInvalid` before the pin names what nobody could read, or fetch: other programs
    commit on a Dolt repository's branches, too.
    """
    target = ws.resolve_target()
    pinned = target.revision if target.state == "pinned" else read_root(ws.engine)
    if revision != pinned:
        ws.engine.require_valid_rows(revision, since=pinned)


def accept_loss(ws: Workspace, reference: str | None, *, offline: bool = False) -> PinCommandReport:
    """Record the loss of each revision that the pin or HEAD's history names and nobody has, in a
    revision on top of what `reference` names as for `pin`; pin that, and go there.

    Raises `UsageInvalid` without a reference, `MergeConflict` while git has the pin in conflict,
    and as `losses.missing` and `losses.search`.
    """
    recovery.recover(ws)
    if pin_conflict.read_stages(ws.places):
        raise MergeConflict(f"{PIN_NAME} is in conflict.", hint="vmrag resolve --accept-loss")
    if reference is None:
        raise UsageInvalid(
            "From which revision should it go on?", hint="vmrag log KB-BRANCH, then: vmrag pin --accept-loss REVISION"
        )
    instead = _revision(ws, reference)
    _require_records(ws, instead)
    wanted = losses.find_missing(ws, plumbing.read_head(ws.places).commit, ws.resolve_target().pin)
    found = losses.search_remotes(ws, wanted, offline=offline, then="vmrag sync")
    accepted = losses.accept_losses(ws, found, instead)
    done = go_to(ws, accepted.revision)
    return PinCommandReport(**asdict(done), losses=accepted)


def _own(ws: Workspace) -> str:
    """Raises as `pin`."""
    branch = ws.find_kb_branch()
    revision = branch.head if branch else ws.current_revision
    if revision and ws.engine.has_revision(revision):
        return revision
    if ws.read_trigger().pin is None and (found := list_offers(ws)):
        raise undecided_pin(found, empty="vmrag pin --empty")
    return ws.require_stored_revision()


def go_to(ws: Workspace, revision: str, *, trigger: Trigger | None = None) -> PinReport:
    """Write and stage the pin, and bring KB branch and index there.

    `trigger`: where HEAD and pin must still be. Raises `KnowledgeMoved` if they are elsewhere,
    `MergeConflict` while git has the pin in conflict; then nothing is pinned.
    """
    branch = ws.find_kb_branch()
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="pin", timeout=ws.lock_timeout):
        if trigger and ws.read_trigger() != trigger:
            raise KnowledgeMoved(
                f"HEAD or the pin moved while this waited; revision {revision[:7]} is kept, but not pinned.",
                hint=f"vmrag pin {revision}",
                revision=revision,
            )
        refuse_if_in_conflict(ws.places)
        report = pinning.write_pin(ws, revision, branch.name if branch else _present_name(ws))
    try:
        with contextlib.suppress(GitBusy):  # the next command goes there; `staged` says what is left to do
            ws.bring_to_pin()
    except (*INDEXING_FAILURES, LockError) as error:
        return msgspec.structs.replace(report, pending=f"The index could not follow yet: {error.sentence}")
    return report


def refuse_if_in_conflict(places: Places) -> None:
    """Raise `MergeConflict` while the pin is in conflict: staging one would end git's conflict and
    drop what theirs holds.
    """
    stages = pin_conflict.read_stages(places)
    if stages:
        removed = stages.ours is None or stages.theirs is None
        raise MergeConflict(
            f"{PIN_NAME} is in conflict, and this would drop one side.",
            hint=f"git add {PIN_NAME} (keeps it), or git rm {PIN_NAME} && git commit" if removed else "vmrag resolve",
        )


def _revision(ws: Workspace, reference: str) -> str:
    if ws.engine.has_revision(reference):
        return reference
    branch = ws.engine.find_branch(reference)
    if branch:
        return branch.head
    raise BranchMissing(
        f"There is no revision or KB branch {reference!r} in this knowledge base.",
        hint="vmrag log (shows the revisions; give the full hash), vmrag branch (shows the branches)",
        reference=reference,
        branches=[each.name for each in ws.engine.list_branches() if not is_reserved(each.name)],
    )


def _present_name(ws: Workspace) -> str:
    """What the pin says about the branch where there is none yet; information only."""
    old = migrated.try_read_pin(ws.places.kb, plumbing.read_pin_bytes(ws.places))
    return old.dolt_branch if old else ws.read_trigger().branch or "main"
