"""`vmrag merge`: merge another ref, KB branch or revision into the knowledge of HEAD."""

from __future__ import annotations

from typing import Literal

import msgspec

from vmrag_link.engines.base import ASIDE_PREFIX, is_memory_branch, is_reserved
from vmrag_link.errors import GitBusy, MergeConflict, NameInvalid, Uncommitted, quoted
from vmrag_link.git import plumbing
from vmrag_link.git.refs import BRANCHES
from vmrag_link.merging import replay
from vmrag_link.merging.choices import Choice, Decisions
from vmrag_link.merging.revisions import MergeOutcome, Signature, merge_revisions
from vmrag_link.merging.threeway import MergeResult, convert_to_rows
from vmrag_link.merging.threeway import merge as three_way
from vmrag_link.models import At, ChangeCounts, KbBranch, Record, WorkingSet
from vmrag_link.ops.pin import go_to
from vmrag_link.sync.target import Target
from vmrag_link.workspace import Workspace, twins
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.documents.writing import Planned, count_local_changes
from vmrag_link.workspace.follow import recovery
from vmrag_link.workspace.history.revparse import resolve_rev
from vmrag_link.workspace.merge import merge_state, sides
from vmrag_link.workspace.merge.merge_state import MergeState
from vmrag_link.workspace.pins import kb_branches
from vmrag_link.workspace.pins.pinning import PinBlock

Result = Literal["already_up_to_date", "fast_forward", "merge", "uncommitted", "conflict", "aborted"]


class MergeReport(Record, frozen=True):
    """`revision` is what is pinned now; None while there is a conflict.

    `changes` are counted against `ours`. `uncommitted`: the result is in the working set.
    `conflicts`: the undecided ones, as `vmrag resolve` names them. `pending`: why the index did not
    follow; the next command catches up. `code_behind`: `source` names a code commit that HEAD does
    not contain, so a host goes on comparing the pins with where the two branches parted.
    """

    result: Result
    source: str
    base: str
    ours: str
    theirs: str
    revision: str | None
    changes: ChangeCounts = ChangeCounts()
    conflicts: tuple[str, ...] = ()
    pin: PinBlock | None = None
    staged: bool = True
    notes: tuple[str, ...] = ()
    pending: str = ""
    code_behind: bool = False


def merge(ws: Workspace, source: str, *, commit: bool = True) -> MergeReport:
    """Merge what `source` names (`revparse.resolve_rev`); documents set aside come back
    uncommitted, and so do those of a KB branch that no code branch or work tree writes on any more.

    Raises `MergeConflict` while another merge is open, `Uncommitted`, and as `base_of` and
    `writing.writable`.
    """
    target = require_mergeable(ws)
    if aside := find_aside_branch(ws, source) or stash_abandoned(ws, target, source):
        return merge_aside(ws, target, aside)
    left = _abandoned(ws, target, source)
    theirs = resolve_rev(ws, source)
    base = sides.find_source_base(ws, source, ours=target.revision, theirs=theirs)
    report = merge_revision(ws, target, source, base=base, theirs=theirs, commit=commit)
    there = ws.engine.find_branch(source) if ws.engine.is_legal_branch_name(source) else None
    if left:
        ws.progress.note(f"Uncommitted documents of {source!r} come with the next: vmrag merge {quoted(source)}")
    elif there and there.dirty and there != target.kb_branch:
        ws.progress.note(f"Uncommitted documents of {source!r} stay there: they are merged once they are committed.")
    return msgspec.structs.replace(report, code_behind=sides.is_code_behind(ws, source, theirs))


def stash_abandoned(ws: Workspace, target: Target, source: str) -> KbBranch | None:
    """Set the uncommitted documents of an abandoned KB branch aside, so that they can be merged
    here; it stays, clean. None: there are none, or they stand on committed ones that are not here.
    """
    left = _abandoned(ws, target, source)
    if left is None or not ws.engine.is_ancestor(left.head, target.revision):
        return None
    with ws.sync_context.without_copy(left.name, left.head):
        name = replay.put_aside(ws.engine, ws.journal, left, timeout=ws.lock_timeout)
    return find_aside_branch(ws, name)


def _abandoned(ws: Workspace, target: Target, source: str) -> KbBranch | None:
    return next((each for each in kb_branches.list_abandoned(ws, target) if each.name == source), None)


def find_aside_branch(ws: Workspace, source: str) -> KbBranch | None:
    """The branch of that name, if it holds documents that were set aside.

    Raises `NameInvalid` for another reserved one.
    """
    found = ws.engine.find_branch(source) if is_reserved(source) else None
    if found and not source.startswith(ASIDE_PREFIX):
        raise NameInvalid(f"{source!r} holds no documents to merge.", hint="vmrag branch", branch=source)
    return found


def merge_aside(ws: Workspace, target: Target, aside: KbBranch, *, decisions: Decisions | None = None) -> MergeReport:
    """Bring documents back that were set aside, uncommitted, and drop their branch."""
    base, symbolic = find_aside_base(ws, aside), target.trigger.symbolic or ""
    decided = _as_dicts(decisions)
    state = MergeState(
        "aside", aside.name, base, target.revision, aside.head, symbolic, commit=False, decisions=decided
    )
    return _proceed(ws, target, state)


def find_aside_base(ws: Workspace, aside: KbBranch) -> str:
    """The revision that the documents were uncommitted on."""
    return ws.engine.read_revision(aside.head).parents[0]


def _as_dicts(decisions: Decisions | None) -> dict[str, dict[str, Choice]]:
    return {name: dict(choices) for name, choices in (decisions or {}).items()}


def require_mergeable(ws: Workspace) -> Target:
    """What a merge goes to.

    Raises `MergeConflict` while another one is open, and as `writing.writable`.
    """
    target = writing.require_writable(ws)
    merge_state.refuse_if_open(ws)
    return target


def merge_revision(
    ws: Workspace,
    target: Target,
    source: str,
    *,
    base: str,
    theirs: str,
    commit: bool = True,
    decisions: Decisions | None = None,
    signature: Signature | None = None,
) -> MergeReport:
    """Merge a revision from a given base, with `decisions` about the conflicts.

    Raises `Uncommitted`.
    """
    if target.kb_branch and target.kb_branch.dirty:
        raise Uncommitted(
            "There are uncommitted documents; a merge would mix them in.",
            hint="vmrag commit",
            local_changes=count_local_changes(ws.engine, target.kb_branch),
        )
    ours = target.revision
    symbolic = target.trigger.symbolic or ""
    state = MergeState("merge", source, base, ours, theirs, symbolic, commit=commit, decisions=_as_dicts(decisions))
    if theirs in (base, ours):
        # Staged, in case that a kill kept a merge before this one from it.
        staged = plumbing.stage_path(ws.places, ws.places.pin) if ws.places.pin.exists() else True
        return msgspec.structs.replace(_report(state, "already_up_to_date", ours), staged=staged)
    if ours == base and commit:
        return _pin_result(ws, target, state, theirs)
    return _proceed(ws, target, state, signature)


def continue_merge(ws: Workspace, signature: Signature | None = None) -> MergeReport:
    """`--continue`: finish the open merge.

    Raises `MergeConflict` if something is not.
    """
    state = merge_state.require_merge(ws)
    if state.kind == "git":
        busy = plumbing.find_operation(ws.places)
        raise MergeConflict(
            "git's own merge is open, and .dolt-version is in conflict.",
            hint="vmrag resolve" + (f", then {plumbing.operation_hint(busy)}" if busy else ""),
        )
    report = _proceed(ws, writing.require_writable(ws), state, signature)
    if report.result == "conflict":
        raise MergeConflict(
            f"{len(report.conflicts)} of the conflicts are not decided yet: {', '.join(report.conflicts[:3])}",
            hint="vmrag resolve",
            conflicts=list(report.conflicts),
        )
    return report


def abort_merge(ws: Workspace) -> MergeReport:
    """Give the open merge up.

    Its uncommitted documents, and later ones, are set aside.
    """
    recovery.recover(ws)
    state = merge_state.require_merge(ws)
    if state.kind == "git":
        busy = plumbing.find_operation(ws.places)
        raise GitBusy(
            "This merge is git's own.",
            hint=plumbing.operation_hint(busy) if busy else "git checkout HEAD -- .dolt-version",
        )
    report = _report(state, "aborted", state.ours)
    name = plumbing.find_kb_branch(ws.places, state.symbolic.removeprefix(BRANCHES))
    branch = (
        ws.find_kb_branch() if merge_state.is_at_start(ws, state) else ws.engine.find_branch(name) if name else None
    )
    branch = branch if state.written else None
    if branch is None or not branch.dirty:
        merge_state.clear_merge(ws)
        return report
    if not merge_state.is_at_start(ws, state) or branch.head != state.ours:
        merge_state.clear_merge(ws)
        return msgspec.structs.replace(report, notes=(f"The result stays on {branch.name!r}, uncommitted.",))
    copy = ws.sync_context.without_copy(branch.name, branch.head)
    with copy, ws.engine.write_lock("give a merge up", timeout=ws.lock_timeout):
        # First: a merge without its documents would be committed as one that dropped theirs.
        merge_state.clear_merge(ws)
        aside = replay.put_aside(ws.engine, ws.journal, branch, timeout=ws.lock_timeout)
    return msgspec.structs.replace(
        report, notes=(f"The uncommitted result is kept. To bring it back: vmrag merge {quoted(aside)}",)
    )


def _proceed(ws: Workspace, target: Target, state: MergeState, signature: Signature | None = None) -> MergeReport:
    merged = merge_state.apply_decisions(ws, state)
    signature = signature or state.build_signature(ws.engine, joins=True)
    if merged.conflicts:
        merge_state.save_merge(ws, state)
        conflicts = tuple(conflict.id for conflict in merged.conflicts)
        return msgspec.structs.replace(_report(state, "conflict", None), conflicts=conflicts)
    if not state.commit and not state.written:
        return _write_result(ws, state)
    outcome = _result(ws, target, state, signature)
    assert outcome.revision is not None  # noqa: S101  nothing is in conflict
    return _pin_result(ws, target, state, outcome.revision)


def _result(ws: Workspace, target: Target, state: MergeState, signature: Signature | None) -> MergeOutcome:
    dirty = target.kb_branch is not None and target.kb_branch.dirty
    working = WorkingSet(target.kb_branch.name) if target.kb_branch and dirty else None
    if not state.written:
        return merge_revisions(
            ws.engine,
            base=state.base,
            ours=state.ours,
            theirs=state.theirs,
            joins=True,
            decisions=state.decisions,
            working=working,
            signature=signature,
            derived=twins.build_derived(ws),
        )
    # The working set is the result, as a person has left it.
    if working is None and not _nothing_to_write(ws, state):
        raise MergeConflict(
            f"What the merge of {state.source} had written is not in the documents any more.",
            hint="vmrag merge --abort, then merge again (vmrag status shows what was set aside)",
        )
    rows = [convert_to_rows(ws.engine.diff(state.ours, working))] if working else []
    signed = signature or Signature.from_inputs(
        ws.engine, base=state.base, ours=state.ours, theirs=state.theirs, joins=True
    )
    made = ws.engine.commit_onto(
        state.ours, rows, joining=state.theirs, message=signed.message, author=signed.author, date=signed.date
    )
    return MergeOutcome(made)


def _nothing_to_write(ws: Workspace, state: MergeState) -> bool:
    """Whether our side holds the result without any uncommitted document."""
    return _merged_into(ws, state, state.ours).is_empty


def _merged_into(ws: Workspace, state: MergeState, ours: At) -> MergeResult:
    derived = twins.build_derived(ws)
    return three_way(
        ws.engine, base=state.base, ours=ours, theirs=state.theirs, decisions=state.decisions, derived=derived
    )


def _write_result(ws: Workspace, state: MergeState) -> MergeReport:
    """Put the result into the working set.

    After a kill it runs again, with the same result.
    """

    def rows(at: At) -> Planned[None]:
        found = _merged_into(ws, state, at)
        if found.conflicts:
            raise MergeConflict("The documents changed while this waited, and conflict now.", hint="vmrag resolve")
        return Planned(None if found.is_empty else found.rows, None)

    merge_state.save_merge(ws, state)
    landed = writing.write_rows(ws, rows, f"merge {state.source}")
    if state.kind == "aside":
        aside = ws.engine.find_branch(state.source)
        if aside and aside.head == state.theirs and not is_memory_branch(aside.name):  # it is for other revisions
            ws.engine.delete_branch(aside.name, expected=aside.head)
        merge_state.clear_merge(ws)
    else:
        merge_state.save_merge(ws, msgspec.structs.replace(state, written=True))
    branch = ws.find_kb_branch()
    changes = (
        ws.engine.count_changes(state.ours, WorkingSet(branch.name))
        if branch and branch.head == state.ours
        else ChangeCounts()
    )
    return msgspec.structs.replace(_report(state, "uncommitted", state.ours), changes=changes, pending=landed.pending)


def _pin_result(ws: Workspace, target: Target, state: MergeState, revision: str) -> MergeReport:
    pinned = go_to(ws, revision, trigger=target.trigger)
    merge_state.clear_merge(ws)
    return msgspec.structs.replace(
        _report(state, "fast_forward" if revision == state.theirs else "merge", revision),
        changes=ws.engine.count_changes(state.ours, revision),
        pin=pinned.pin,
        staged=pinned.staged,
        pending=pinned.pending,
    )


def _report(state: MergeState, result: Result, revision: str | None) -> MergeReport:
    return MergeReport(result, state.source, state.base, state.ours, state.theirs, revision)
