"""Check out a KB branch or a revision for tools. git's branch stays.

It accepts every name that the knowledge base has, can create the branch, and commits, discards or
carries over uncommitted documents. Then it calls `switch`.
"""

from __future__ import annotations

import re

from vmrag_link.errors import RevisionAmbiguous, RevisionMissing
from vmrag_link.models import At, ChangeCounts, Record, WorkingSet
from vmrag_link.ops import uncommitted
from vmrag_link.ops.branch.switch import require_free_branch, switch
from vmrag_link.ops.uncommitted import Handled, Handling
from vmrag_link.pin_values import REVISION
from vmrag_link.sync import lease
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.history import revparse
from vmrag_link.workspace.merge import merge_state
from vmrag_link.workspace.pins import kb_branches

_NO_BRANCH = re.compile(rf"{REVISION}|.*[~^].*|HEAD", re.DOTALL)
"""Names that are never the name of a branch."""


class CheckoutReport(Record, frozen=True):
    """The result of `checkout`. A branch is `None` while a revision is read by its hash."""

    from_branch: str | None
    from_commit: str
    to_branch: str | None
    to_commit: str
    created: bool
    handling: Handled
    changes: ChangeCounts
    """Changes of the visible documents, including uncommitted ones."""
    staged: bool
    pending: str = ""


class _Goal(Record, frozen=True):
    """The branch and revision of a checkout."""

    branch: str | None
    """None if the revision is read by its hash."""
    revision: str | None
    """None for HEAD's revision after uncommitted documents were committed or discarded."""
    new: bool = False
    """True if the branch is to be created."""

    def find_revision(self, ws: Workspace) -> str:
        return self.revision or ws.require_stored_revision()


def checkout(
    ws: Workspace,
    target: str,
    *,
    create: bool = False,
    start: str | None = None,
    how: Handling = "abort",
    message: str = "",
) -> CheckoutReport:
    """Move to a KB branch, or read a commit that `revparse.resolve_tool_rev` can name.

    If only a remote has the branch, a local one is created. `create` creates the branch first, at
    `start` or at the present revision. `how` and `message` are those of `uncommitted.clean_branch`.

    Raises `BranchMissing`, `RevisionMissing`, `BranchExists`, `NameInvalid`, `BranchInUse`,
    `Uncommitted` and `MergeConflict` before anything is changed, and the errors of
    `writing.require_movable`.
    """
    current = writing.require_movable(ws)
    if current.in_use_by:
        raise lease.build_in_use_error(current.in_use_by, current.trigger.symbolic or "")
    merge_state.refuse_if_open(ws)
    goal = _define_goal(ws, target, start) if create else _find_goal(ws, target)
    branch_before = current.kb_branch
    revision_before = ws.require_stored_revision()
    is_same_branch = branch_before is not None and goal.branch == branch_before.name and not goal.new
    if branch_before and is_same_branch and how in ("abort", "carry"):
        documents_before = ws.locate_documents()
        handling: Handled = "none"  # the branch stays, so uncommitted documents can stay
        switched = switch(ws, branch_before.name)
    else:
        message = message or f"Before going to {target}"
        with uncommitted.clean_branch(ws, how, message=message, onto=_find_arrival(ws, goal)) as cleaned:
            if goal.new and goal.branch:
                ws.engine.create_branch(goal.branch, goal.find_revision(ws))
            switched = switch(ws, goal.branch or goal.find_revision(ws))
        documents_before = cleaned.held
        handling = cleaned.handling
    branch_after = ws.find_kb_branch()
    return CheckoutReport(
        from_branch=branch_before.name if branch_before else None,
        from_commit=revision_before,
        to_branch=branch_after.name if branch_after else None,
        to_commit=switched.pin.dolt_commit,
        created=goal.new,
        handling=handling,
        changes=ws.engine.count_changes(documents_before, ws.locate_documents()),
        staged=switched.staged,
        pending=switched.pending,
    )


def _define_goal(ws: Workspace, name: str, start: str | None) -> _Goal:
    """Return the goal of a checkout that creates a branch."""
    revision = revparse.resolve_tool_rev(ws, start) if start is not None else None
    kb_branches.require_new(ws, name)
    return _Goal(name, revision, new=True)


def _find_goal(ws: Workspace, target: str) -> _Goal:
    """Return the goal of a checkout of an existing branch or revision."""
    branch_here = ws.find_kb_branch()
    if target == revparse.HEAD:
        return _Goal(branch_here.name if branch_here else None, ws.require_stored_revision())
    branch = revparse.find_tool_branch(ws, target)
    if branch:
        require_free_branch(ws, branch.name, ws.read_trigger().branch or "")
        return _Goal(branch.name, branch.head)
    remote_head = revparse.find_remote_only(ws, target)
    if remote_head:
        kb_branches.require_new(ws, target)
        return _Goal(target, remote_head, new=True)
    try:
        return _Goal(None, revparse.resolve_tool_rev(ws, target))
    except RevisionAmbiguous:
        raise
    except RevisionMissing as error:
        if _NO_BRANCH.fullmatch(target):
            raise
        raise revparse.no_branch(ws, target) from error


def _find_arrival(ws: Workspace, goal: _Goal) -> At:
    """Return what uncommitted documents would be merged with: the documents of the branch, if it
    has uncommitted ones.
    """
    branch = ws.engine.find_branch(goal.branch) if goal.branch and not goal.new else None
    if branch and branch.dirty:
        return WorkingSet(branch.name)
    return goal.find_revision(ws)
