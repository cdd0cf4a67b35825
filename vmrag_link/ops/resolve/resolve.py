"""`vmrag resolve`: decide about conflicts, one by one or all at once; decisions are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from vmrag_link import clock, locks
from vmrag_link.engines import migrated
from vmrag_link.errors import DocumentMissing, MergeConflict
from vmrag_link.git import pin_conflict, pin_merge, plumbing
from vmrag_link.merging.choices import Choice
from vmrag_link.merging.conflicts import Conflict, Decision, convert_decision, update_choices
from vmrag_link.merging.revisions import merge_revisions
from vmrag_link.merging.text import Labels
from vmrag_link.merging.threeway import MergeResult
from vmrag_link.models import Record
from vmrag_link.paths import write_atomically
from vmrag_link.workspace import Workspace, twins
from vmrag_link.workspace.follow import follow_pin, lazy_fetch, losses, recovery
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
    """`open`: the fields without a decision; `choices`: what was decided of others and of parts.

    `conflict`: base, ours and theirs, None for a missing row.
    """

    id: str
    open: tuple[str, ...]
    conflict: Conflict
    choices: dict[str, Choice]


class ResolveReport(Record, frozen=True):
    """`conflicts` are those with an open field; `labels` says what their sides are.

    Once there is none: `next` is what to type, and in a merge of git's the pin is written. `staged`
    False: another git command held the index, so `git add .dolt-version` is left to do. `losses`:
    what a person has just given up.
    """

    kind: merge_state.Kind
    source: str
    base: str
    ours: str
    theirs: str
    labels: Labels
    conflicts: tuple[ConflictRow, ...]
    decided: int
    pin: PinBlock | None
    staged: bool
    next: str
    losses: AcceptedLoss | None = None


def list_conflicts(ws: Workspace, ids: Sequence[str] = ()) -> ResolveReport:
    """The open merge and what is left to decide.

    Raises `MergeConflict` when none is open, `DocumentMissing` for ids not in conflict.
    """
    return _resolve(ws, ids, None)


def find_conflict_ids(ws: Workspace, names: Sequence[str]) -> list[str]:
    """The ids of the conflicts that a person means: `COLLECTION/DOC`, or `DOC` alone.

    Raises as `conflicts`, and `DocumentAmbiguous`.
    """
    if not names:
        return []
    fetch_sides(ws)
    merged = merge_state.apply_decisions(ws, merge_state.require_merge(ws))
    names_of = {each.id: DocumentName(each.collection, each.doc_id) for each in (*merged.conflicts, *merged.decided)}
    ids = {name: conflict for conflict, name in names_of.items()}
    meant = {name: None if name in names_of else document_names.find_among(ids, name) for name in names}
    return [ids[document] if document else name for name, document in meant.items()]


def resolve(ws: Workspace, ids: Sequence[str], decision: Decision) -> ResolveReport:
    """Decide about the conflicts named, by default all open ones.

    What was decided before can be decided again. Raises `DocumentMissing` for what is not in
    conflict, `MergeConflict` when no merge is open, `KnowledgeMoved`, `PinRevisionMissing`, and as
    `choices_of`; then nothing is decided.
    """
    return _resolve(ws, ids, lambda conflict, labels: convert_decision(conflict, decision, labels))


def resolve_texts(ws: Workspace, texts: Mapping[str, str]) -> ResolveReport:
    """Decide about several documents at once: their texts, by id. Raises as `resolve`."""
    return _resolve(
        ws, [*texts], lambda conflict, labels: convert_decision(conflict, Decision(text=texts[conflict.id]), labels)
    )


def accept_loss(ws: Workspace, *, offline: bool = False) -> ResolveReport:
    """Go on in git's merge without the revisions of its pins that nobody has: with the other side,
    or with the base where both are lost. Where the base alone is, the merge starts from the
    engine's own.

    Raises `MergeConflict` where git's pin is not in conflict, and as `losses.search`.
    """
    recovery.recover(ws)
    found = pin_conflict.find_undecided(ws.places)
    if found is None:
        raise MergeConflict("git has no pin in conflict here.", hint="vmrag pin --accept-loss REVISION")
    named = (migrated.try_read_pin(ws.places.kb, stage) for stage in found.stages)
    wanted = {pin.dolt_commit: pin for pin in named if pin and not ws.engine.has_revision(pin.dolt_commit)}
    search = losses.search_remotes(ws, wanted, offline=offline, hint="vmrag resolve")
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="resolve", timeout=ws.lock_timeout):
        state = msgspec.structs.replace(merge_state.require_merge(ws), given_up=search.lost, asked=search.asked)
        merge_state.save_merge(ws, state)
    return _resolve(ws, (), None)


def find_last_changes(ws: Workspace, report: ResolveReport, row: ConflictRow) -> LastChanges:
    """Who changed what is in conflict, on each side."""
    return sides.find_last_changes(ws.engine, row.conflict, base=report.base, ours=report.ours, theirs=report.theirs)


def _resolve(
    ws: Workspace, ids: Sequence[str], choose: Callable[[Conflict, Labels], dict[str, Choice]] | None
) -> ResolveReport:
    fetch_sides(ws)
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="resolve", timeout=ws.lock_timeout):
        state = merge_state.require_merge(ws)
        merged = merge_state.apply_decisions(ws, state)
        chosen = _select(merged, ids)
        if choose:
            decisions, labels = dict(state.decisions), merge_state.label_sides(ws, state)
            for conflict in chosen:
                decisions[conflict.id] = update_choices(decisions.get(conflict.id, {}), choose(conflict, labels))
            state = msgspec.structs.replace(
                state, decisions=decisions, decided_by=plumbing.read_identity(ws.places), decided_at=clock.now()
            )
            merge_state.save_merge(ws, state)
            merged = merge_state.apply_decisions(ws, state)
        if merged.conflicts or state.kind != "git":
            return _report(ws, state, merged)
        report = _conclude(ws, state, merged)  # perhaps after a kill, or because the sides agree
    follow_pin.follow(ws, tolerate="git")
    return report


def fetch_sides(ws: Workspace) -> None:
    """Fetch both sides if they are missing: the merge driver may have had no network."""
    recovery.recover(ws)
    found = pin_conflict.find_undecided(ws.places)
    if found:
        state = merge_state.read_merge(ws)
        lazy_fetch.require_sides(ws, *found.stages, given_up=state.given_up if state else ())


def _select(merged: MergeResult, ids: Sequence[str]) -> list[Conflict]:
    if not ids:
        return list(merged.conflicts)
    known = {conflict.id: conflict for conflict in (*merged.conflicts, *merged.decided)}
    for identifier in ids:
        if identifier not in known:
            raise DocumentMissing(
                f"{identifier} is not in conflict.",
                hint="vmrag resolve --list (shows what is)",
                id=identifier,
                conflicts=sorted(known),
            )
    return [known[identifier] for identifier in ids]


def _conclude(ws: Workspace, state: MergeState, merged: MergeResult) -> ResolveReport:
    """Write the merged pin and stage it: for git, the conflict is over.

    Call it with the workspace's lock held.
    """
    found = pin_conflict.find_undecided(ws.places)
    stages = found.stages if found else None
    if stages is None or stages.ours is None or stages.theirs is None:
        raise MergeConflict("git's conflict in .dolt-version is over already.", hint="git status")
    joins = pin_merge.is_merge(ws.places)
    accepted = None
    if stands := find_surviving_side(ws.engine, state.base, state.ours, state.theirs):
        accepted = losses.accept_losses(ws, LossSearch(state.given_up, state.asked), stands)
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
        assert outcome.revision is not None  # noqa: S101  the callers have looked: nothing is in conflict
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
    staged = plumbing.stage_path(ws.places, ws.places.pin)
    if staged:
        merge_state.clear_merge(ws, "git")
    busy = plumbing.find_operation(ws.places)
    then = plumbing.operation_hint(busy).partition(" (")[0] if busy else "git status"
    report = _report(ws, state, merged)
    return msgspec.structs.replace(
        report,
        pin=pinning.form_block(migrated.read_pin(ws.places.kb, data)),
        staged=staged,
        next=then if staged else "git add .dolt-version",
        losses=accepted if state.given_up else None,
    )


def _report(ws: Workspace, state: MergeState, merged: MergeResult) -> ResolveReport:
    decisions = state.decisions
    rows = tuple(
        ConflictRow(
            conflict.id,
            conflict.list_open_fields(decisions.get(conflict.id, {})),
            conflict,
            decisions.get(conflict.id, {}),
        )
        for conflict in merged.conflicts
    )
    then = "vmrag resolve" if rows else "vmrag commit" if state.written else "vmrag merge --continue"
    return ResolveReport(
        kind=state.kind,
        source=state.source,
        base=state.base,
        ours=state.ours,
        theirs=state.theirs,
        labels=merge_state.label_sides(ws, state),
        conflicts=rows,
        decided=len(merged.decided),
        pin=None,
        staged=True,
        next=then,
    )
