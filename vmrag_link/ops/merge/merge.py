"""`vmrag merge`: merge another ref, KB branch or revision into HEAD's knowledge base.

A merge with conflicts stays open: its `MergeState` is a file in the git directory, until
`continue_merge` or `abort_merge` ends it. After a kill, each function here continues with the same
result. The `Target` is the revision that HEAD pins, with HEAD's KB branch.

*Aside* are stashed documents: the commit of a branch `vmrag/wip/…`. When all conflicts are decided,
two fields of the state decide what `_advance_merge` does:

    commit  written
    yes     no       commit and pin the result
    no      no       write the result as uncommitted documents, and set `written`
    any     yes      commit these documents, which the user may have edited, and pin them
"""

from __future__ import annotations

from typing import Literal

import msgspec

from vmrag_link import hints
from vmrag_link.engines.own_branches import ASIDE_PREFIX, is_memory_branch, is_reserved
from vmrag_link.errors import GitBusy, MergeConflict, NameInvalid, Uncommitted, plural, quoted
from vmrag_link.git import git_operation, own_keys, staging
from vmrag_link.git.refs import BRANCHES
from vmrag_link.merging import replay
from vmrag_link.merging.choices import Choice, Decisions
from vmrag_link.merging.revisions import Signature, merge_revisions
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
    """The result of a merge."""

    result: Result
    """`uncommitted` means that the merged documents are uncommitted."""
    source: str
    base: str
    ours: str
    theirs: str
    revision: str | None
    """The pinned revision; None while there is a conflict."""
    changes: ChangeCounts = ChangeCounts()
    """Changes relative to `ours`."""
    conflicts: tuple[str, ...] = ()
    """The undecided conflicts, as `vmrag resolve` names them."""
    pin: PinBlock | None = None
    staged: bool = True
    notes: tuple[str, ...] = ()
    pending: str = ""
    """Why the index did not follow; the next command updates it."""
    code_behind: bool = False
    """True if `source` names a code commit that HEAD does not contain.

    A host then still compares the pins with those at the common ancestor.
    """


def merge(ws: Workspace, source: str, *, commit: bool = True) -> MergeReport:
    """Merge the revision that `source` names (see `revparse.resolve_rev`).

    Stashed documents become uncommitted, and so do the uncommitted documents of an abandoned KB
    branch, which no code branch or work tree uses any longer.

    Raises `MergeConflict` while another merge is open, `Uncommitted`, `RevisionMissing`,
    `EngineFailed` for unrelated histories, and the errors of `writing.require_writable`.
    """
    target = require_mergeable(ws)
    aside = find_aside_branch(ws, source) or stash_abandoned(ws, target, source)
    if aside:
        return merge_aside(ws, target, aside)
    abandoned = _find_abandoned(ws, target, source)
    theirs = resolve_rev(ws, source)
    base = sides.find_source_base(ws, source, ours=target.revision, theirs=theirs)
    report = merge_revision(ws, target, source, base=base, theirs=theirs, commit=commit)
    branch = ws.engine.find_branch(source) if ws.engine.is_legal_branch_name(source) else None
    if abandoned:
        ws.progress.note(
            f"hint: run 'vmrag merge {quoted(source)}' again to merge the uncommitted documents of {source!r}"
        )
    elif branch and branch.dirty and branch != target.kb_branch:
        ws.progress.note(f"Uncommitted documents of {source!r} were not merged. Commit them first.")
    return msgspec.structs.replace(report, code_behind=sides.is_code_behind(ws, source, theirs))


def continue_merge(ws: Workspace, signature: Signature | None = None) -> MergeReport:
    """Finish the open merge, for `--continue`.

    Raises `MergeConflict` if a conflict has no decision.
    """
    state = merge_state.require_merge(ws)
    if state.kind == "git":
        busy = git_operation.find_operation(ws.places)
        raise MergeConflict(
            "git's own merge is open, and .dolt-version has a conflict.",
            hint=hints.join_steps(
                "run 'vmrag resolve' to resolve the conflicts", git_operation.suggest_finish(busy) if busy else ""
            ),
        )
    report = _advance_merge(ws, writing.require_writable(ws), state, signature)
    if report.result == "conflict":
        raise MergeConflict(
            f"{plural(len(report.conflicts), 'conflict')} without a decision: {', '.join(report.conflicts[:3])}",
            hint="run 'vmrag resolve' to resolve the conflicts",
            conflicts=list(report.conflicts),
        )
    return report


def abort_merge(ws: Workspace) -> MergeReport:
    """Abort the open merge.

    Its uncommitted documents, and later ones, are stashed.
    """
    recovery.recover(ws)
    state = merge_state.require_merge(ws)
    if state.kind == "git":
        busy = git_operation.find_operation(ws.places)
        raise GitBusy(
            "git has started this merge, so git must abort it.",
            hint=git_operation.suggest_finish(busy) if busy else "run 'git checkout HEAD -- .dolt-version' to abort it",
        )
    report = _build_report(state, "aborted", state.ours)
    is_at_start = merge_state.is_at_start(ws, state)
    branch = None
    if state.written and is_at_start:
        branch = ws.find_kb_branch()
    elif state.written:
        name = own_keys.find_kb_branch(ws.places, state.symbolic.removeprefix(BRANCHES))
        branch = ws.engine.find_branch(name) if name else None
    if branch is None or not branch.dirty:
        merge_state.clear_merge(ws)
        return report
    if not is_at_start or branch.head != state.ours:
        merge_state.clear_merge(ws)
        return msgspec.structs.replace(report, notes=(f"The result stays on {branch.name!r}, uncommitted.",))
    copy = ws.sync_context.without_copy(branch.name, branch.head)
    with copy, ws.engine.write_lock("abort a merge", timeout=ws.lock_timeout):
        # First: without its documents, the merge would be committed as one that drops theirs.
        merge_state.clear_merge(ws)
        aside = replay.put_aside(ws.engine, ws.journal, branch, timeout=ws.lock_timeout)
    return msgspec.structs.replace(
        report, notes=(f"hint: run 'vmrag merge {quoted(aside)}' to restore the uncommitted result, which was stashed",)
    )


def stash_abandoned(ws: Workspace, target: Target, source: str) -> KbBranch | None:
    """Stash the uncommitted documents of an abandoned KB branch, so that they can be merged here.

    The branch stays, without them. Return None if there are none, or if they are based on committed
    documents that the target does not contain.
    """
    abandoned = _find_abandoned(ws, target, source)
    if abandoned is None or not ws.engine.is_ancestor(abandoned.head, target.revision):
        return None
    with ws.sync_context.without_copy(abandoned.name, abandoned.head):
        name = replay.put_aside(ws.engine, ws.journal, abandoned, timeout=ws.lock_timeout)
    return find_aside_branch(ws, name)


def find_aside_branch(ws: Workspace, source: str) -> KbBranch | None:
    """Return the branch with this name if it contains stashed documents.

    Raises `NameInvalid` for another reserved name.
    """
    branch = ws.engine.find_branch(source) if is_reserved(source) else None
    if branch and not source.startswith(ASIDE_PREFIX):
        raise NameInvalid(
            f"{source!r} is a reserved branch without documents to merge.",
            hint="run 'vmrag branch' to list the KB branches",
            branch=source,
        )
    return branch


def merge_aside(ws: Workspace, target: Target, aside: KbBranch, *, decisions: Decisions | None = None) -> MergeReport:
    """Restore stashed documents, uncommitted, and delete their branch."""
    state = MergeState(
        kind="aside",
        source=aside.name,
        base=find_aside_base(ws, aside),
        ours=target.revision,
        theirs=aside.head,
        symbolic=target.trigger.symbolic or "",
        commit=False,
        decisions=_copy_decisions(decisions),
    )
    return _advance_merge(ws, target, state)


def find_aside_base(ws: Workspace, aside: KbBranch) -> str:
    """Return the revision that the documents were uncommitted on."""
    return ws.engine.read_revision(aside.head).parents[0]


def require_mergeable(ws: Workspace) -> Target:
    """Return the target that others are merged into.

    Raises `MergeConflict` while another merge is open, and the errors of
    `writing.require_writable`.
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
    """Merge the revision `theirs` from a given base, with `decisions` about the conflicts.

    `source` is its name in messages. Without `commit`, the result becomes uncommitted documents. A
    default `signature` depends only on the revisions and decisions. Raises `Uncommitted`.
    """
    if target.kb_branch and target.kb_branch.dirty:
        raise Uncommitted(
            "cannot merge: uncommitted documents would mix with the result.",
            hint="run 'vmrag commit' to commit the documents",
            local_changes=count_local_changes(ws.engine, target.kb_branch),
        )
    ours = target.revision
    state = MergeState(
        kind="merge",
        source=source,
        base=base,
        ours=ours,
        theirs=theirs,
        symbolic=target.trigger.symbolic or "",
        commit=commit,
        decisions=_copy_decisions(decisions),
    )
    if theirs in (base, ours):
        # Stage the pin, because an earlier merge may have been killed before it did so.
        staged = staging.stage_path(ws.places, ws.places.pin) if ws.places.pin.exists() else True
        return msgspec.structs.replace(_build_report(state, "already_up_to_date", ours), staged=staged)
    if ours == base and commit:
        return _pin_result(ws, target, state, theirs)
    return _advance_merge(ws, target, state, signature)


def _find_abandoned(ws: Workspace, target: Target, source: str) -> KbBranch | None:
    """Return the abandoned KB branch with this name, if it has uncommitted documents."""
    return next((branch for branch in kb_branches.list_abandoned(ws, target) if branch.name == source), None)


def _copy_decisions(decisions: Decisions | None) -> dict[str, dict[str, Choice]]:
    return {name: dict(choices) for name, choices in (decisions or {}).items()}


def _advance_merge(ws: Workspace, target: Target, state: MergeState, signature: Signature | None = None) -> MergeReport:
    """Continue as far as the decisions allow, and report a conflict, or the uncommitted or pinned
    result.
    """
    merged = merge_state.apply_decisions(ws, state)
    if merged.conflicts:
        merge_state.save_merge(ws, state)
        conflicts = tuple(conflict.id for conflict in merged.conflicts)
        return msgspec.structs.replace(_build_report(state, "conflict", None), conflicts=conflicts)
    if not state.commit and not state.written:
        return _write_result(ws, state)
    signature = signature or state.build_signature(ws.engine, joins=True)
    branch = target.kb_branch
    working = WorkingSet(branch.name) if branch and branch.dirty else None
    commit_result = _commit_written if state.written else _commit_merged
    return _pin_result(ws, target, state, commit_result(ws, state, working, signature))


def _commit_merged(ws: Workspace, state: MergeState, working: WorkingSet | None, signature: Signature | None) -> str:
    """Merge, and return the revision of the result, which includes the documents of `working`."""
    outcome = merge_revisions(
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
    assert outcome.revision is not None  # noqa: S101  the caller found no conflict
    return outcome.revision


def _commit_written(ws: Workspace, state: MergeState, working: WorkingSet | None, signature: Signature | None) -> str:
    """Commit the result that an earlier call wrote, and that the user may have edited.

    Raises `MergeConflict` if the uncommitted documents are missing by now.
    """
    # Without uncommitted documents, our side must already contain the result.
    if working is None and not _merge_into(ws, state, state.ours).is_empty:
        raise MergeConflict(
            f"the uncommitted result of the merge of {state.source} no longer exists.",
            hint="run 'vmrag merge --abort', then merge again",
        )
    if signature is None:
        signature = Signature.from_inputs(ws.engine, base=state.base, ours=state.ours, theirs=state.theirs, joins=True)
    return ws.engine.commit_onto(
        state.ours,
        [convert_to_rows(ws.engine.diff(state.ours, working))] if working else [],
        joining=state.theirs,
        message=signature.message,
        author=signature.author,
        date=signature.date,
    )


def _merge_into(ws: Workspace, state: MergeState, ours: At) -> MergeResult:
    """Return what the merge changes in the documents at `ours`."""
    derived = twins.build_derived(ws)
    return three_way(
        ws.engine, base=state.base, ours=ours, theirs=state.theirs, decisions=state.decisions, derived=derived
    )


def _write_result(ws: Workspace, state: MergeState) -> MergeReport:
    """Make the result of the merge uncommitted.

    After a kill, it runs again with the same result.
    """

    def plan_rows(at: At) -> Planned[None]:
        merged = _merge_into(ws, state, at)
        if merged.conflicts:
            raise MergeConflict(
                "the documents changed while the merge waited for a lock, and conflict now.",
                hint="run 'vmrag resolve' to resolve the conflicts",
            )
        return Planned(None if merged.is_empty else merged.rows, None)

    merge_state.save_merge(ws, state)
    written = writing.write_rows(ws, plan_rows, f"merge {state.source}")
    if state.kind == "aside":
        aside = ws.engine.find_branch(state.source)
        # A checkout to other revisions needs a memory branch again.
        if aside and aside.head == state.theirs and not is_memory_branch(aside.name):
            ws.engine.delete_branch(aside.name, expected=aside.head)
        merge_state.clear_merge(ws)
    else:
        merge_state.save_merge(ws, msgspec.structs.replace(state, written=True))
    branch = ws.find_kb_branch()
    changes = ChangeCounts()
    if branch and branch.head == state.ours:
        changes = ws.engine.count_changes(state.ours, WorkingSet(branch.name))
    return msgspec.structs.replace(
        _build_report(state, "uncommitted", state.ours), changes=changes, pending=written.pending
    )


def _pin_result(ws: Workspace, target: Target, state: MergeState, revision: str) -> MergeReport:
    """Pin the result, unless HEAD or the pin moved since `target` was read, and close the merge."""
    pin_report = go_to(ws, revision, trigger=target.trigger)
    merge_state.clear_merge(ws)
    return msgspec.structs.replace(
        _build_report(state, "fast_forward" if revision == state.theirs else "merge", revision),
        changes=ws.engine.count_changes(state.ours, revision),
        pin=pin_report.pin,
        staged=pin_report.staged,
        pending=pin_report.pending,
    )


def _build_report(state: MergeState, result: Result, revision: str | None) -> MergeReport:
    return MergeReport(
        result=result, source=state.source, base=state.base, ours=state.ours, theirs=state.theirs, revision=revision
    )
