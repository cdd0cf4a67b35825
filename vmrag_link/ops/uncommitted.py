"""Handle uncommitted documents before an operation that needs a clean KB branch, such as a merge.

Uncommitted documents are committed, stashed in a commit on a branch `vmrag/wip/…`, or discarded. A
branch `vmrag_keep` still contains the discarded ones. So all of them stay reachable after a kill
between any two steps. `vmrag status` lists the stashes that were not restored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Literal

from vmrag_link.errors import MergeConflict, MergeRefused, Uncommitted, VmragError, plural, quoted
from vmrag_link.merging import replay
from vmrag_link.merging.threeway import merge as three_way
from vmrag_link.models import At, KbBranch, Record, WorkingSet
from vmrag_link.ops.commit import commit as committing
from vmrag_link.ops.commit.commit import CommitReport
from vmrag_link.ops.merge import merge
from vmrag_link.workspace import Workspace, twins
from vmrag_link.workspace.documents.writing import count_local_changes
from vmrag_link.workspace.merge import conflict_rows, merge_state

Handling = Literal["abort", "commit_first", "reset_first", "stash", "carry"]
"""How to handle uncommitted documents.

`abort` refuses the operation. `stash` and `carry` restore them after it, uncommitted; `carry`
refuses the operation if they would conflict.
"""

_MAX_NAMES = 20
"""Maximum number of documents that a message names."""

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
    For `reset_first`, a message and the detail `discarded` of the error name the discarded
    documents.
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
    documents = changes["documents"]
    total = changes["total"]
    names = ""
    if documents:
        names = f": {', '.join(documents[:3])}{' …' if len(documents) > 3 else ''}"  # noqa: PLR2004
    subject = plural(total, "document") if total else "a change of collections"
    return Uncommitted(
        f"{subject} of {branch.name!r} {'are' if total > 1 else 'is'} not committed{names}.",
        hint="run 'vmrag commit' to commit the documents",
        branch=branch.name,
        local_changes=changes,
    )


def _describe_changes(changes: dict[str, Any]) -> str:
    documents = changes["documents"]
    total = changes["total"]
    if not total:
        return "changes of collections"
    return f"{plural(total, 'document')} ({', '.join(documents[:_MAX_NAMES])}{' …' * (total > _MAX_NAMES)})"


def discard_uncommitted(ws: Workspace, branch: KbBranch) -> str:
    """Clean a branch and return the revision that contains its uncommitted documents.

    The revision stays reachable. A message names the discarded documents and the command that
    restores them.
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
    derived = twins.build_derived(ws)
    result = three_way(ws.engine, base=base, ours=ws.locate_documents(), theirs=aside_branch.head, derived=derived)
    conflicts = result.conflicts
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
