"""Deal with uncommitted documents before an operation that needs a clean KB branch, or give them up
to go back to a commit.

They are committed, kept in a commit on a branch `vmrag/wip/…` until they can come back, or given
up, which anchors them. So a kill between any two steps loses nothing, and all of it stays
reachable. `vmrag status` names what was not brought back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Literal

from vmrag_link.errors import ConfirmationMissing, MergeConflict, MergeRefused, Uncommitted, VmragError, plural, quoted
from vmrag_link.merging import replay
from vmrag_link.merging.threeway import merge as three_way
from vmrag_link.models import At, ChangeCounts, KbBranch, Record, RevisionInfo, WorkingSet
from vmrag_link.ops.commit import commit as committing
from vmrag_link.ops.commit.commit import CommitReport
from vmrag_link.ops.merge import merge
from vmrag_link.ops.pin import go_to
from vmrag_link.sync import lease
from vmrag_link.workspace import Workspace, twins
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.documents.writing import count_local_changes
from vmrag_link.workspace.history import revparse
from vmrag_link.workspace.merge import conflict_rows, merge_state

Handling = Literal["abort", "commit_first", "reset_first", "stash", "carry"]
"""`abort` refuses to go on.

`stash` and `carry` bring them back afterwards, uncommitted; `carry` refuses if they would conflict
there.
"""

MAX_NAMED = 20
"""Documents that a note names."""

Handled = Literal["none", "commit_first", "reset_first", "stash", "carry"]


class CleanedBranch(Record, frozen=True):
    """`held`: the revision that holds all that was there before, uncommitted or not.

    `commit` is that of `commit_first`; `aside` the KB branch that keeps the documents until they
    come back.
    """

    handling: Handled
    held: str
    commit: CommitReport | None = None
    aside: str = ""


@contextlib.contextmanager
def clean_branch(ws: Workspace, how: Handling, *, message: str, onto: At | None = None) -> Iterator[CleanedBranch]:
    """Clean HEAD's KB branch for the block; then bring back what `stash` and `carry` put aside.

    Call `writing.writable` and `merge_state.refuse_if_open` first. `message`: of the commit of
    `commit_first`; `onto`: where the documents of `carry` will go. Raises `Uncommitted` (`abort`),
    `MergeConflict` (`carry`) before anything is changed, and as `ops.branches.commit`. When the
    block fails the documents come back, too; while it leaves a merge open they stay aside, which
    the error's `aside` names. What `reset_first` gave up is named by a note, and by the error's
    `discarded`.
    """
    done = _clear(ws, how, message, onto)
    try:
        yield done
    except VmragError as error:
        if done.handling == "reset_first":
            error.details["discarded"] = done.held
        if done.aside and merge_state.recover_merge(ws):
            error.details["aside"] = done.aside
            ws.progress.note(_way_back(done.aside))
        elif done.aside:
            restore_aside(ws, done.aside)
        raise
    if done.aside:
        restore_aside(ws, done.aside)


def build_uncommitted_error(ws: Workspace, branch: KbBranch) -> Uncommitted:
    """The error for what needs a clean branch; its `local_changes` count and name the documents."""
    found = count_local_changes(ws.engine, branch)
    documents, total = found["documents"], found["total"]
    named = f": {', '.join(documents[:3])}{' …' if len(documents) > 3 else ''}" if documents else ""  # noqa: PLR2004
    what = plural(total, "document") if total else "What was changed about collections"
    return Uncommitted(
        f"{what} of {branch.name!r} {'are' if total > 1 else 'is'} not committed{named}.",
        hint="vmrag commit",
        branch=branch.name,
        local_changes=found,
    )


def _describe_changes(found: dict[str, Any]) -> str:
    documents, total = found["documents"], found["total"]
    if not total:
        return "what was changed about collections"
    return f"{plural(total, 'document')} ({', '.join(documents[:MAX_NAMED])}{' …' * (total > MAX_NAMED)})"


def discard_uncommitted(ws: Workspace, branch: KbBranch) -> str:
    """Clean a branch; returns the revision that holds its uncommitted documents.

    It stays reachable. A note names what was discarded, and how it comes back.
    """
    what = _describe_changes(count_local_changes(ws.engine, branch))
    aside = _put_aside(ws, branch)
    held = _aside_branch(ws, aside).head
    ws.engine.delete_branch(aside, expected=held)
    replay.forget_changes(ws.engine, branch.name)
    ws.progress.note(
        f"Discarded on {branch.name!r}, uncommitted: {what}. Revision {held} keeps that; to bring it back: "
        f"merge_branch with source={held}, or in a terminal: vmrag merge {held}"
    )
    return held


def restore_aside(ws: Workspace, aside: str) -> None:
    """Make the documents of an aside branch uncommitted where the workspace stands.

    Raises `MergeConflict` with `stage` `stash_restore`, before anything is written; they stay on
    their branch then.
    """
    kept = _aside_branch(ws, aside)
    base = merge.find_aside_base(ws, kept)
    conflicts = three_way(
        ws.engine, base=base, ours=ws.locate_documents(), theirs=kept.head, derived=twins.build_derived(ws)
    ).conflicts
    if conflicts:
        raise MergeConflict(
            f"{len(conflicts)} of the uncommitted documents conflict with what is here now. {_way_back(aside)}",
            hint=f"vmrag merge {quoted(aside)}",
            stage="stash_restore",
            branch=aside,
            conflicts=conflict_rows.encode_rows(conflict_rows.list_conflict_rows(conflicts)),
        )
    for note in merge.merge(ws, aside).notes:
        ws.progress.note(note)
    branch = ws.find_kb_branch()
    if branch and branch.head != base:
        replay.remember_changes(ws.engine, branch, base=base, state=kept.head, derived=twins.build_derived(ws))


def _clear(ws: Workspace, how: Handling, message: str, onto: At | None) -> CleanedBranch:
    branch = ws.find_kb_branch()
    if branch is None or not branch.dirty:
        return CleanedBranch("none", ws.require_stored_revision())
    match how:
        case "abort":
            raise build_uncommitted_error(ws, branch)
        case "commit_first":
            report = committing.commit(ws, message)
            return CleanedBranch(how, report.revision, commit=report)
        case "reset_first":
            return CleanedBranch(how, discard_uncommitted(ws, branch))
        case "carry":
            _require_no_conflict(ws, branch, branch.head if onto is None else onto)
    aside = _put_aside(ws, branch)
    return CleanedBranch(how, _aside_branch(ws, aside).head, aside=aside)


def _require_no_conflict(ws: Workspace, branch: KbBranch, onto: At) -> None:
    theirs = WorkingSet(branch.name)
    conflicts = three_way(
        ws.engine, base=branch.head, ours=onto, theirs=theirs, derived=twins.build_derived(ws)
    ).conflicts
    if conflicts:
        raise MergeRefused(
            f"{len(conflicts)} of the uncommitted documents of {branch.name!r} conflict with what is there; nothing was changed.",
            hint="vmrag commit",
            conflicts=conflict_rows.encode_rows(conflict_rows.list_conflict_rows(conflicts)),
            merge_in_progress=False,
        )


def _put_aside(ws: Workspace, branch: KbBranch) -> str:
    with ws.sync_context.without_copy(branch.name, branch.head):
        return replay.put_aside(ws.engine, ws.journal, branch, timeout=ws.lock_timeout)


def _aside_branch(ws: Workspace, name: str) -> KbBranch:
    found = ws.engine.find_branch(name)
    assert found is not None  # noqa: S101  it was made a moment ago, and nobody else knows its name
    return found


def _way_back(aside: str) -> str:
    return f"The uncommitted documents are kept on {aside!r}. To bring them back: vmrag merge {quoted(aside)}"


class ResetReport(Record, frozen=True):
    """`discarded`: the uncommitted documents; `changes` of the visible documents.

    `orphaned` are the commits, newest first, that no branch and no remote holds any more: only
    `vmrag_keep` does.
    """

    from_commit: str
    to_commit: str
    discarded: ChangeCounts
    changes: ChangeCounts
    orphaned: tuple[RevisionInfo, ...]
    staged: bool = True
    pending: str = ""


def reset(ws: Workspace, target: str, *, confirmed: bool) -> ResetReport:
    """Go back to the revision that `target` names (see `revparse.tool_rev`).

    Raises `RevisionMissing` before anything is changed, `ConfirmationMissing` with uncommitted
    documents or an open merge unless `confirmed`, and as `writing.movable`.
    """
    here = writing.require_movable(ws)
    if here.in_use_by and not here.has_own_branch:
        raise lease.build_in_use_error(here.in_use_by, here.trigger.symbolic or "")
    revision, stood = revparse.resolve_tool_rev(ws, target), ws.require_stored_revision()
    branch, merge = here.kb_branch, merge_state.recover_merge(ws)
    dirty = branch is not None and branch.dirty
    if (dirty or merge) and not confirmed:
        raise _confirmation_missing(ws, merge.source if merge else "")
    # First: a merge without its documents would be committed as one that dropped theirs.
    if merge:
        merge_state.clear_merge(ws, merge.kind)
    head = branch.head if branch else stood
    discarded = ws.engine.count_changes(head, WorkingSet(branch.name)) if branch and dirty else ChangeCounts()
    held = discard_uncommitted(ws, branch) if branch and dirty else stood
    staged, pending = True, ""
    if revision != here.revision or (branch and branch.head != revision):
        report = go_to(ws, revision, trigger=here.trigger)
        staged, pending = report.staged, report.pending
        _follow(ws, revision)
    changes = ws.engine.count_changes(held, revision)
    return ResetReport(stood, revision, discarded, changes, _orphans(ws, head), staged, pending)


def _confirmation_missing(ws: Workspace, merging: str) -> ConfirmationMissing:
    branch = ws.find_kb_branch()
    refused = build_uncommitted_error(ws, branch) if branch and branch.dirty else None
    what = [refused.message] if refused else []
    if merging:
        what.append(f"The merge of {merging} is open.")
    return ConfirmationMissing(
        f"{' '.join(what)} A reset gives that up.",
        hint="vmrag commit",
        merge_in_progress=bool(merging),
        **(refused.details if refused else {}),
    )


def _follow(ws: Workspace, revision: str) -> None:
    """Move the branch where the pin named the revision already: then reconciling did not."""
    branch = ws.find_kb_branch()
    if branch and branch.head != revision:
        ws.engine.move_branch(branch.name, revision, expected=branch.head)


def _orphans(ws: Workspace, head: str) -> tuple[RevisionInfo, ...]:
    lost = {*ws.engine.find_unreachable(ws.engine.map_parents([head]), heads=revparse.list_visible_heads(ws))}
    found = []
    for each in ws.engine.log(head) if lost else ():
        if each.revision in lost:
            found.append(each)
            lost.remove(each.revision)
        if not lost:
            break
    return tuple(found)
