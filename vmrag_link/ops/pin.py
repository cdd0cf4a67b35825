"""Pin another revision for the next code commit, and go to it: `vmrag pin`."""

from __future__ import annotations

import contextlib

import msgspec
from msgspec.structs import asdict

from vmrag_link import locks
from vmrag_link.engines import migrated
from vmrag_link.engines.own_branches import is_reserved, read_root
from vmrag_link.errors import (
    INDEXING_FAILURES,
    BranchMissing,
    GitBusy,
    KnowledgeMoved,
    LockError,
    MergeConflict,
    UsageInvalid,
)
from vmrag_link.file_access import require_files
from vmrag_link.git import pin_conflict, plumbing
from vmrag_link.models import Record
from vmrag_link.paths import PIN_NAME, Places
from vmrag_link.sync.target import Trigger
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow import losses, recovery
from vmrag_link.workspace.follow.losses import AcceptedLoss
from vmrag_link.workspace.pins import pinning
from vmrag_link.workspace.pins.history_pins import Offer, list_offers, undecided_pin
from vmrag_link.workspace.pins.pinning import Attributes, PinReport


class FirstPin(Record, frozen=True):
    """The first pin of a code commit without a pin."""

    taken: Offer
    instead: tuple[Offer, ...]
    """Other revisions that it could pin."""
    empty: str
    """The revision without documents."""
    attributes: Attributes
    """The change of the file that names the merge driver."""


class PinCommandReport(PinReport, frozen=True):
    """The result of `vmrag pin`."""

    first: FirstPin | None = None
    """None if a revision was pinned before."""
    losses: AcceptedLoss | None = None
    """Losses that the user accepted with this command."""


def pin_revision(ws: Workspace, reference: str | None, *, empty: bool = False) -> PinCommandReport:
    """Pin a revision (full hash) or the head of a KB branch, and go to it.

    Without a reference, pin the head of HEAD's KB branch. `empty`: pin the revision without
    documents instead. A commit without a pin and without a KB branch pins the current revision.
    Raises `PinMissing` if there is no current revision, because the user must choose.
    """
    recovery.recover(ws)
    revision = read_root(ws.engine) if empty else _resolve_reference(ws, reference)
    if plumbing.read_pin_bytes(ws.places) is None:
        return _pin_first(ws, revision)
    _require_records(ws, revision)
    return PinCommandReport(**asdict(go_to(ws, revision)))


def _pin_first(ws: Workspace, revision: str) -> PinCommandReport:
    """Pin a revision for code without a pin, and let git merge pins with vmrag's driver."""
    offers = list_offers(ws)
    require_files(ws.places.top / pinning.ATTRIBUTES)  # refuse before anything is written
    _require_records(ws, revision)
    report = go_to(ws, revision)
    taken = next((offer for offer in offers if offer.revision == revision), None)
    first = FirstPin(
        taken=taken or Offer(revision, ws.engine.count_documents(revision), "", ()),
        instead=tuple(offer for offer in offers if offer != taken),
        empty=read_root(ws.engine),
        attributes=pinning.send_to_driver(ws.places),
    )
    staged = report.staged and (first.attributes.staged or first.attributes.edited)
    return PinCommandReport(report.pin, report.changed, staged, report.pending, first)


def _require_records(ws: Workspace, revision: str) -> None:
    """Raise `RowsInvalid` for a revision that no one could read or fetch.

    Other programs also commit to the branches of a Dolt repository.
    """
    target = ws.resolve_target()
    pinned = target.revision if target.state == "pinned" else read_root(ws.engine)
    if revision != pinned:
        ws.engine.require_valid_rows(revision, since=pinned)


def accept_loss(ws: Workspace, reference: str | None, *, offline: bool = False) -> PinCommandReport:
    """Record the loss of each missing revision that the pin or HEAD's history names.

    The new revision is on top of `reference`, a reference as for `pin_revision`. It is pinned, and
    the workspace goes to it. Raises `UsageInvalid` without a reference, `MergeConflict` while the
    pin is in conflict, and the errors of `losses.find_missing` and `losses.search_remotes`.
    """
    recovery.recover(ws)
    if pin_conflict.read_stages(ws.places):
        raise MergeConflict(f"{PIN_NAME} is in conflict.", hint="run 'vmrag resolve --accept-loss'")
    if reference is None:
        raise UsageInvalid(
            "missing revision to continue from.",
            hint="run 'vmrag log KB-BRANCH' to choose a revision, then 'vmrag pin --accept-loss REVISION'",
        )
    instead = _resolve_reference(ws, reference)
    _require_records(ws, instead)
    missing = losses.find_missing(ws, plumbing.read_head(ws.places).commit, ws.resolve_target().pin)
    search = losses.search_remotes(ws, missing, offline=offline, hint="run 'vmrag sync' to sync to the pin")
    accepted = losses.accept_losses(ws, search, instead)
    report = go_to(ws, accepted.revision)
    return PinCommandReport(**asdict(report), losses=accepted)


def _resolve_reference(ws: Workspace, reference: str | None) -> str:
    """Return the revision with this hash, or the head of this KB branch; without a reference, the
    current revision.

    Raises `BranchMissing`, and `PinMissing` without a current revision.
    """
    if reference is None:
        return _find_current(ws)
    if ws.engine.has_revision(reference):
        return reference
    branch = ws.engine.find_branch(reference)
    if branch:
        return branch.head
    raise BranchMissing(
        f"no such revision or KB branch: {reference!r}.",
        hint="run 'vmrag log' to list the revisions, or 'vmrag branch' to list the KB branches",
        reference=reference,
        branches=[branch.name for branch in ws.engine.list_branches() if not is_reserved(branch.name)],
    )


def _find_current(ws: Workspace) -> str:
    branch = ws.find_kb_branch()
    revision = branch.head if branch else ws.current_revision
    if revision and ws.engine.has_revision(revision):
        return revision
    offers = list_offers(ws) if ws.read_trigger().pin is None else ()
    if offers:
        raise undecided_pin(offers, empty="vmrag pin --empty")
    return ws.require_stored_revision()


def go_to(ws: Workspace, revision: str, *, trigger: Trigger | None = None) -> PinReport:
    """Write and stage the pin, and bring KB branch and index to it.

    `trigger`: the HEAD and pin that the caller has read. Raises `KnowledgeMoved` if they differ,
    and `MergeConflict` while the pin is in conflict. Nothing is pinned then.
    """
    branch = ws.find_kb_branch()
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="pin", timeout=ws.lock_timeout):
        if trigger and ws.read_trigger() != trigger:
            raise KnowledgeMoved(
                f"HEAD or the pin moved, so revision {revision[:7]} is not pinned.",
                hint=f"run 'vmrag pin {revision}' to pin it",
                revision=revision,
            )
        refuse_if_in_conflict(ws.places)
        report = pinning.write_pin(ws, revision, branch.name if branch else _find_branch_name(ws))
    try:
        with contextlib.suppress(GitBusy):  # the next command goes there, and `staged` is false
            ws.bring_to_pin()
    except (*INDEXING_FAILURES, LockError) as error:
        return msgspec.structs.replace(report, pending=f"the index could not be updated: {error.sentence}")
    return report


def refuse_if_in_conflict(places: Places) -> None:
    """Raise `MergeConflict` while the pin is in conflict.

    Staging a pin would end the conflict in git and lose the documents of one side.
    """
    stages = pin_conflict.read_stages(places)
    if stages:
        hint = "run 'vmrag resolve' to resolve the conflicts"
        if stages.ours is None or stages.theirs is None:  # one side has removed it
            hint = f"run 'git add {PIN_NAME}' to keep it, or 'git rm {PIN_NAME} && git commit' to remove it"
        raise MergeConflict(f"{PIN_NAME} is in conflict, and this command would lose one side.", hint=hint)


def _find_branch_name(ws: Workspace) -> str:
    """Return the branch name for a pin if there is no KB branch. It is information only."""
    old = migrated.try_read_pin(ws.places.kb, plumbing.read_pin_bytes(ws.places))
    return old.dolt_branch if old else ws.read_trigger().branch or "main"
