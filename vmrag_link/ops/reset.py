"""Handle uncommitted documents before an operation that needs a clean KB branch, and reset to a
commit.

Uncommitted documents are committed, stashed in a commit on a branch `vmrag/wip/…`, or discarded.
Discarded documents are anchored. So all of them stay reachable after a kill between any two steps.
`vmrag status` lists the stashes that were not restored.
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
"""How to handle uncommitted documents.

`abort` refuses the operation. `stash` and `carry` restore them after it, uncommitted; `carry`
refuses the operation if they would conflict.
"""

MAX_NAMED = 20
"""Maximum number of documents that a note names."""

Handled = Literal["none", "commit_first", "reset_first", "stash", "carry"]


class CleanedBranch(Record, frozen=True):
    """The result of `clean_branch`."""

    handling: Handled
    held: str
    """The revision that contains the former state, including uncommitted documents."""
    commit: CommitReport | None = None
    """The commit of `commit_first`."""
    aside: str = ""
    """The KB branch that keeps the documents until they are restored."""


@contextlib.contextmanager
def clean_branch(ws: Workspace, how: Handling, *, message: str, onto: At | None = None) -> Iterator[CleanedBranch]:
    """Clean HEAD's KB branch for the block, then restore what `stash` and `carry` stashed.

    Call `writing.require_writable` and `merge_state.refuse_if_open` first. `message` is that of the
    commit of `commit_first`. `onto` is where the documents of `carry` will go.

    Raises `Uncommitted` for `abort` and `MergeConflict` for `carry` before anything is changed, and
    the errors of `commit`. If the block fails, the documents are restored as well. If the block
    leaves a merge open, they stay stashed, and the detail `aside` of the error names their branch.
    For `reset_first`, a note and the detail `discarded` of the error name the discarded documents.
    """
    cleaned = _handle_changes(ws, how, message, onto)
    try:
        yield cleaned
    except VmragError as error:
        if cleaned.handling == "reset_first":
            error.details["discarded"] = cleaned.held
        if cleaned.aside and merge_state.recover_merge(ws):
            error.details["aside"] = cleaned.aside
            ws.progress.note(_explain_restore(cleaned.aside))
        elif cleaned.aside:
            restore_aside(ws, cleaned.aside)
        raise
    if cleaned.aside:
        restore_aside(ws, cleaned.aside)


def build_uncommitted_error(ws: Workspace, branch: KbBranch) -> Uncommitted:
    """Return the error of an operation that needs a clean branch.

    Its detail `local_changes` counts and names the documents.
    """
    changes = count_local_changes(ws.engine, branch)
    documents, total = changes["documents"], changes["total"]
    named = f": {', '.join(documents[:3])}{' …' if len(documents) > 3 else ''}" if documents else ""  # noqa: PLR2004
    subject = plural(total, "document") if total else "a change of collections"
    return Uncommitted(
        f"{subject} of {branch.name!r} {'are' if total > 1 else 'is'} not committed{named}.",
        hint="run 'vmrag commit' to commit the documents",
        branch=branch.name,
        local_changes=changes,
    )


def _describe_changes(changes: dict[str, Any]) -> str:
    documents, total = changes["documents"], changes["total"]
    if not total:
        return "changes of collections"
    return f"{plural(total, 'document')} ({', '.join(documents[:MAX_NAMED])}{' …' * (total > MAX_NAMED)})"


def discard_uncommitted(ws: Workspace, branch: KbBranch) -> str:
    """Clean a branch and return the revision that contains its uncommitted documents.

    The revision stays reachable. A note names the discarded documents and the command that restores
    them.
    """
    changes = _describe_changes(count_local_changes(ws.engine, branch))
    aside = _stash_documents(ws, branch)
    held = _read_aside_branch(ws, aside).head
    ws.engine.delete_branch(aside, expected=held)
    replay.forget_changes(ws.engine, branch.name)
    ws.progress.note(
        f"Discarded uncommitted changes on {branch.name!r}: {changes}. Revision {held} keeps them; "
        f"call merge_branch with source={held} to restore them, or run 'vmrag merge {held}' in a terminal"
    )
    return held


def restore_aside(ws: Workspace, aside: str) -> None:
    """Make the stashed documents of a branch uncommitted at the present revision.

    Raises `MergeConflict` with the detail `stage` = `stash_restore` before anything is written. The
    documents stay on their branch then.
    """
    aside_branch = _read_aside_branch(ws, aside)
    base = merge.find_aside_base(ws, aside_branch)
    conflicts = three_way(
        ws.engine, base=base, ours=ws.locate_documents(), theirs=aside_branch.head, derived=twins.build_derived(ws)
    ).conflicts
    if conflicts:
        raise MergeConflict(
            f"{plural(len(conflicts), 'uncommitted document')} cannot be restored because of conflicts. {_explain_restore(aside)}",
            hint=f"run 'vmrag merge {quoted(aside)}' to merge it",
            stage="stash_restore",
            branch=aside,
            conflicts=conflict_rows.encode_rows(conflict_rows.list_conflict_rows(conflicts)),
        )
    for note in merge.merge(ws, aside).notes:
        ws.progress.note(note)
    branch = ws.find_kb_branch()
    if branch and branch.head != base:
        replay.remember_changes(ws.engine, branch, base=base, state=aside_branch.head, derived=twins.build_derived(ws))


def _handle_changes(ws: Workspace, how: Handling, message: str, onto: At | None) -> CleanedBranch:
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
    aside = _stash_documents(ws, branch)
    return CleanedBranch(how, _read_aside_branch(ws, aside).head, aside=aside)


def _require_no_conflict(ws: Workspace, branch: KbBranch, onto: At) -> None:
    theirs = WorkingSet(branch.name)
    conflicts = three_way(
        ws.engine, base=branch.head, ours=onto, theirs=theirs, derived=twins.build_derived(ws)
    ).conflicts
    if conflicts:
        raise MergeRefused(
            f"{plural(len(conflicts), 'uncommitted document')} of {branch.name!r} would conflict at the target; nothing was changed.",
            hint="run 'vmrag commit' to commit the documents",
            conflicts=conflict_rows.encode_rows(conflict_rows.list_conflict_rows(conflicts)),
            merge_in_progress=False,
        )


def _stash_documents(ws: Workspace, branch: KbBranch) -> str:
    with ws.sync_context.without_copy(branch.name, branch.head):
        return replay.put_aside(ws.engine, ws.journal, branch, timeout=ws.lock_timeout)


def _read_aside_branch(ws: Workspace, name: str) -> KbBranch:
    branch = ws.engine.find_branch(name)
    assert branch is not None  # noqa: S101  it was just created, and no other process has its name
    return branch


def _explain_restore(aside: str) -> str:
    return f"the branch {aside!r} keeps the uncommitted documents; run 'vmrag merge {quoted(aside)}' to restore them"


class ResetReport(Record, frozen=True):
    """The result of `reset`."""

    from_commit: str
    to_commit: str
    discarded: ChangeCounts
    """Changes of the discarded uncommitted documents."""
    changes: ChangeCounts
    """Changes of the visible documents."""
    orphaned: tuple[RevisionInfo, ...]
    """Commits, newest first, that no branch and no remote contains any longer. Only `vmrag_keep`
    does.
    """
    staged: bool = True
    pending: str = ""


def reset(ws: Workspace, target: str, *, confirmed: bool) -> ResetReport:
    """Move to the revision that `target` names (see `revparse.resolve_tool_rev`) and discard
    uncommitted documents.

    Raises `RevisionMissing` and `RevisionAmbiguous` before anything is changed,
    `ConfirmationMissing` with uncommitted documents or an open merge unless `confirmed`, and the
    errors of `writing.require_movable`.
    """
    state = writing.require_movable(ws)
    if state.in_use_by and not state.has_own_branch:
        raise lease.build_in_use_error(state.in_use_by, state.trigger.symbolic or "")
    revision, present = revparse.resolve_tool_rev(ws, target), ws.require_stored_revision()
    branch, open_merge = state.kb_branch, merge_state.recover_merge(ws)
    dirty = branch is not None and branch.dirty
    if (dirty or open_merge) and not confirmed:
        raise _confirmation_error(ws, open_merge.source if open_merge else "")
    # This comes first: a merge without its documents would be committed as one that drops theirs.
    if open_merge:
        merge_state.clear_merge(ws, open_merge.kind)
    head = branch.head if branch else present
    discarded = ws.engine.count_changes(head, WorkingSet(branch.name)) if branch and dirty else ChangeCounts()
    held = discard_uncommitted(ws, branch) if branch and dirty else present
    staged, pending = True, ""
    if revision != state.revision or (branch and branch.head != revision):
        report = go_to(ws, revision, trigger=state.trigger)
        staged, pending = report.staged, report.pending
        _move_branch(ws, revision)
    changes = ws.engine.count_changes(held, revision)
    return ResetReport(
        from_commit=present,
        to_commit=revision,
        discarded=discarded,
        changes=changes,
        orphaned=_list_orphans(ws, head),
        staged=staged,
        pending=pending,
    )


def _confirmation_error(ws: Workspace, merging: str) -> ConfirmationMissing:
    branch = ws.find_kb_branch()
    error = build_uncommitted_error(ws, branch) if branch and branch.dirty else None
    statements = [error.message] if error else []
    if merging:
        statements.append(f"The merge of {merging} is open.")
    return ConfirmationMissing(
        f"{' '.join(statements)} A reset discards this.",
        hint="run 'vmrag commit' to commit the documents",
        merge_in_progress=bool(merging),
        **(error.details if error else {}),
    )


def _move_branch(ws: Workspace, revision: str) -> None:
    """Move the branch if the pin already named the revision, because the sync did not
    move it then.
    """
    branch = ws.find_kb_branch()
    if branch and branch.head != revision:
        ws.engine.move_branch(branch.name, revision, expected=branch.head)


def _list_orphans(ws: Workspace, head: str) -> tuple[RevisionInfo, ...]:
    """Return the commits at and before `head` that no visible head contains, newest first."""
    lost = {*ws.engine.find_unreachable(ws.engine.map_parents([head]), heads=revparse.list_visible_heads(ws))}
    orphans = []
    for info in ws.engine.log(head) if lost else ():
        if info.revision in lost:
            orphans.append(info)
            lost.remove(info.revision)
        if not lost:
            break
    return tuple(orphans)
