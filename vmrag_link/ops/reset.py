"""Reset the knowledge base to a revision, and discard uncommitted documents.

The discarded documents stay reachable (`uncommitted.discard_uncommitted`).
"""

from __future__ import annotations

from vmrag_link.errors import ConfirmationMissing
from vmrag_link.models import ChangeCounts, Record, RevisionInfo, WorkingSet
from vmrag_link.ops.pin import go_to
from vmrag_link.ops.uncommitted import build_uncommitted_error, discard_uncommitted
from vmrag_link.sync import lease
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.history import revparse
from vmrag_link.workspace.merge import merge_state


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
    position = writing.require_movable(ws)
    if position.in_use_by and not position.has_own_branch:
        raise lease.build_in_use_error(position.in_use_by, position.trigger.symbolic or "")
    revision = revparse.resolve_tool_rev(ws, target)
    present = ws.require_stored_revision()
    branch = position.kb_branch
    open_merge = merge_state.recover_merge(ws)
    dirty = branch is not None and branch.dirty
    if (dirty or open_merge) and not confirmed:
        raise _confirmation_error(ws, open_merge.source if open_merge else "")
    # This comes first: a merge without its documents would be committed as one that drops theirs.
    if open_merge:
        merge_state.clear_merge(ws, open_merge.kind)
    head = branch.head if branch else present
    discarded = ws.engine.count_changes(head, WorkingSet(branch.name)) if branch and dirty else ChangeCounts()
    held = discard_uncommitted(ws, branch) if branch and dirty else present
    report = None
    if revision != position.revision or (branch and branch.head != revision):
        report = go_to(ws, revision, trigger=position.trigger)
        _move_branch(ws, revision)
    return ResetReport(
        from_commit=present,
        to_commit=revision,
        discarded=discarded,
        changes=ws.engine.count_changes(held, revision),
        orphaned=_list_orphans(ws, head),
        staged=report is None or report.staged,
        pending=report.pending if report else "",
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
