"""`vmrag resolve`: decide conflicts, one by one or all at once. Decisions are stored.

A merge is open if `vmrag merge` or git's merge driver found a conflict. `merge_state` stores it
with the decisions. When the last conflict of a merge by git is decided, this writes and stages the
pin. A merge by `vmrag merge` waits for `vmrag merge --continue` or `vmrag commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from vmrag_link import clock, locks
from vmrag_link.engines import migrated
from vmrag_link.errors import DocumentMissing, MergeConflict
from vmrag_link.file_access import write_atomically
from vmrag_link.git import git_operation, identity, pin_conflict, pin_merge, staging
from vmrag_link.merging.choices import Choice
from vmrag_link.merging.conflicts import Conflict, Decision, convert_decision, update_choices
from vmrag_link.merging.revisions import merge_revisions
from vmrag_link.merging.text import Labels
from vmrag_link.merging.threeway import MergeResult
from vmrag_link.models import Record
from vmrag_link.workspace import Workspace, twins
from vmrag_link.workspace.follow import accepted_losses, follow_pin, losses, recovery
from vmrag_link.workspace.follow.losses import AcceptedLoss, LossSearch
from vmrag_link.workspace.history import document_names
from vmrag_link.workspace.history.document_names import DocumentName
from vmrag_link.workspace.merge import merge_state, sides
from vmrag_link.workspace.merge.merge_pins import find_surviving_side, merge_pins
from vmrag_link.workspace.merge.merge_state import MergeState
from vmrag_link.workspace.merge.sides import LastChanges
from vmrag_link.workspace.pins import pinning
from vmrag_link.workspace.pins.pinning import PinBlock


class ConflictRow(Record, frozen=True):
    """A conflict and its decisions."""

    id: str
    open: tuple[str, ...]
    """The fields without a decision."""
    conflict: Conflict
    """Base, ours and theirs. None means a missing row."""
    choices: dict[str, Choice]
    """The decisions about other fields, and about parts of a field."""


class ResolveReport(Record, frozen=True):
    """The state of the open merge."""

    kind: merge_state.Kind
    source: str
    base: str
    ours: str
    theirs: str
    labels: Labels
    """The names of the sides."""
    conflicts: tuple[ConflictRow, ...]
    """The conflicts with an open field."""
    decided: int
    pin: PinBlock | None
    """The written pin, when a merge by git has no open conflict."""
    staged: bool
    """False if another git command held the index, so that `git add .dolt-version` is left to do.
    """
    next: str
    """The next command without quotes, when there is no open conflict."""
    losses: AcceptedLoss | None = None
    """The losses that this call accepted."""


def list_conflicts(ws: Workspace, ids: Sequence[str] = ()) -> ResolveReport:
    """Return the open merge and its open conflicts.

    Raises `MergeConflict` if no merge is open, and `DocumentMissing` for ids without a conflict.
    """
    return _resolve_conflicts(ws, ids, None)


def find_conflict_ids(ws: Workspace, names: Sequence[str]) -> list[str]:
    """Return the ids of the conflicts that the user named by id, `COLLECTION/DOC` or `DOC` alone.

    Raises `MergeConflict` if no merge is open, `DocumentMissing` and `DocumentAmbiguous`.
    """
    if not names:
        return []
    fetch_sides(ws)
    merged = merge_state.apply_decisions(ws, merge_state.require_merge(ws))
    conflicts = (*merged.conflicts, *merged.decided)
    ids_by_document = {DocumentName(conflict.collection, conflict.doc_id): conflict.id for conflict in conflicts}
    known_ids = {*ids_by_document.values()}
    ids: dict[str, str] = {}
    for name in names:
        document = None if name in known_ids else document_names.find_among(ids_by_document, name)
        ids[name] = ids_by_document[document] if document else name
    return list(ids.values())


def resolve(ws: Workspace, ids: Sequence[str], decision: Decision) -> ResolveReport:
    """Decide the conflicts with these ids, by default all open ones.

    Earlier decisions can be changed. Raises `DocumentMissing` for an id without a conflict,
    `MergeConflict` if no merge is open, `KnowledgeMoved`, `PinRevisionMissing`, and the errors of
    `convert_decision`. Nothing is decided then.
    """
    return _resolve_conflicts(ws, ids, lambda conflict, labels: convert_decision(conflict, decision, labels))


def resolve_texts(ws: Workspace, texts: Mapping[str, str]) -> ResolveReport:
    """Decide several documents at once by their texts, by id. Raises the errors of `resolve`."""

    def choose_text(conflict: Conflict, labels: Labels) -> dict[str, Choice]:
        return convert_decision(conflict, Decision(text=texts[conflict.id]), labels)

    return _resolve_conflicts(ws, [*texts], choose_text)


def accept_loss(ws: Workspace, *, offline: bool = False) -> ResolveReport:
    """Continue git's merge without the lost revisions of its pins.

    It continues with the other side, or with the base if both sides are lost. If only the base is
    lost, the merge starts from the engine's merge base. Raises `MergeConflict` if git's pin has no
    conflict, and the errors of `losses.search_remotes`.
    """
    recovery.recover(ws)
    undecided = pin_conflict.find_undecided(ws.places)
    if undecided is None:
        raise MergeConflict("git's pin has no conflict.", hint="run 'vmrag pin --accept-loss REVISION'")
    pins = (migrated.try_read_pin(ws.places.kb, stage) for stage in undecided.stages)
    missing = {pin.dolt_commit: pin for pin in pins if pin and not ws.engine.has_revision(pin.dolt_commit)}
    search = losses.search_remotes(ws, missing, offline=offline, hint="run 'vmrag resolve' to resolve the conflicts")
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="resolve", timeout=ws.lock_timeout):
        state = msgspec.structs.replace(
            merge_state.require_merge(ws), given_up=search.lost, checked_remotes=search.checked_remotes
        )
        merge_state.save_merge(ws, state)
    return _resolve_conflicts(ws, (), None)


def find_last_changes(ws: Workspace, report: ResolveReport, row: ConflictRow) -> LastChanges:
    """Return who last changed the conflicting row on each side."""
    return sides.find_last_changes(ws.engine, row.conflict, base=report.base, ours=report.ours, theirs=report.theirs)


def _resolve_conflicts(
    ws: Workspace, ids: Sequence[str], choose: Callable[[Conflict, Labels], dict[str, Choice]] | None
) -> ResolveReport:
    """Store the choices for these conflicts, and conclude git's merge if no conflict is open.

    `choose`: returns the choices by field for a conflict; None to decide nothing.
    """
    fetch_sides(ws)
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="resolve", timeout=ws.lock_timeout):
        state = merge_state.require_merge(ws)
        merged = merge_state.apply_decisions(ws, state)
        selected = _select_conflicts(merged, ids)
        if choose:
            decisions = dict(state.decisions)
            labels = merge_state.label_sides(ws, state)
            for conflict in selected:
                decisions[conflict.id] = update_choices(decisions.get(conflict.id, {}), choose(conflict, labels))
            state = msgspec.structs.replace(
                state, decisions=decisions, decided_by=identity.read_identity(ws.places), decided_at=clock.now()
            )
            merge_state.save_merge(ws, state)
            merged = merge_state.apply_decisions(ws, state)
        if merged.conflicts or state.kind != "git":
            return _build_report(ws, state, merged)
        report = _conclude_git_merge(ws, state, merged)  # after a kill, or because the sides agree
    follow_pin.follow(ws, tolerate="git")
    return report


def fetch_sides(ws: Workspace) -> None:
    """Fetch both sides if they are missing, because the merge driver may have had no network."""
    recovery.recover(ws)
    undecided = pin_conflict.find_undecided(ws.places)
    if undecided:
        state = merge_state.read_merge(ws)
        accepted_losses.require_sides(ws, *undecided.stages, given_up=state.given_up if state else ())


def _select_conflicts(merged: MergeResult, ids: Sequence[str]) -> list[Conflict]:
    if not ids:
        return list(merged.conflicts)
    conflicts_by_id = {conflict.id: conflict for conflict in (*merged.conflicts, *merged.decided)}
    for identifier in ids:
        if identifier not in conflicts_by_id:
            raise DocumentMissing(
                f"{identifier} has no conflict.",
                hint="run 'vmrag resolve --list' to list the conflicts",
                id=identifier,
                conflicts=sorted(conflicts_by_id),
            )
    return [conflicts_by_id[identifier] for identifier in ids]


def _conclude_git_merge(ws: Workspace, state: MergeState, merged: MergeResult) -> ResolveReport:
    """Write the merged pin and stage it, which ends git's conflict.

    The caller holds the workspace lock.
    """
    undecided = pin_conflict.find_undecided(ws.places)
    stages = undecided.stages if undecided else None
    if stages is None or stages.ours is None or stages.theirs is None:
        raise MergeConflict(
            "git's conflict in .dolt-version is already resolved.", hint="run 'git status' to see the state"
        )
    joins = pin_merge.is_merge(ws.places)
    accepted = None
    survivor = find_surviving_side(ws.engine, state.base, state.ours, state.theirs)
    if survivor:
        accepted = losses.accept_losses(ws, LossSearch(state.given_up, state.checked_remotes), survivor)
        revision = accepted.revision
    else:
        outcome = merge_revisions(
            ws.engine,
            base=state.base,
            ours=state.ours,
            theirs=state.theirs,
            joins=joins,
            decisions=state.decisions,
            signature=state.build_signature(ws.engine, joins=joins),
            derived=twins.build_derived(ws),
        )
        assert outcome.revision is not None  # noqa: S101  the callers checked that there is no conflict
        revision = outcome.revision
    data = merge_pins(
        ws.engine,
        stages.base or b"",
        stages.ours,
        stages.theirs,
        joins=joins,
        revision=revision,
        remote=ws.config.remote,
    )
    write_atomically(ws.places.pin, data)
    staged = staging.stage_path(ws.places, ws.places.pin)
    if staged:
        merge_state.clear_merge(ws, "git")
    busy = git_operation.find_operation(ws.places)
    next_command = git_operation.get_finish_command(busy) if busy else "git status"
    report = _build_report(ws, state, merged)
    return msgspec.structs.replace(
        report,
        pin=pinning.form_block(migrated.read_pin(ws.places.kb, data)),
        staged=staged,
        next=next_command if staged else "git add .dolt-version",
        losses=accepted if state.given_up else None,
    )


def _build_report(ws: Workspace, state: MergeState, merged: MergeResult) -> ResolveReport:
    rows = []
    for conflict in merged.conflicts:
        choices = state.decisions.get(conflict.id, {})
        rows.append(ConflictRow(conflict.id, conflict.list_open_fields(choices), conflict, choices))
    finish_command = "vmrag commit" if state.written else "vmrag merge --continue"
    return ResolveReport(
        kind=state.kind,
        source=state.source,
        base=state.base,
        ours=state.ours,
        theirs=state.theirs,
        labels=merge_state.label_sides(ws, state),
        conflicts=tuple(rows),
        decided=len(merged.decided),
        pin=None,
        staged=True,
        next="vmrag resolve" if rows else finish_command,
    )
