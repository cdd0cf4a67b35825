"""Go to another KB branch or commit, and take along, commit or give up what is not committed: like moving a submodule.

`switch` does it; this resolves the target before anything is touched, and sees to the uncommitted documents.
"""

from __future__ import annotations

import re

from vmrag_link.errors import RevisionMissing
from vmrag_link.git import remotes
from vmrag_link.models import At, ChangeCounts, Record, Working
from vmrag_link.ops.branches import uncommitted
from vmrag_link.ops.branches.switch import require_free, switch
from vmrag_link.ops.branches.uncommitted import Handled, Handling
from vmrag_link.ops.documents import branches, writing
from vmrag_link.ops.follow.recover import reconciled_for_reading
from vmrag_link.ops.history import revparse
from vmrag_link.ops.merge import merge_state
from vmrag_link.workspace import Workspace

_NO_BRANCH = re.compile(r"[0-9a-v]{32}|[0-9a-f]{40}|.*[~^].*|HEAD", re.DOTALL)
"""What nobody means as the name of a branch."""


class CheckoutReport(Record, frozen=True):
    """A branch is None where a revision is read by its hash. `changes`: of the documents that are visible, uncommitted ones included."""

    from_branch: str | None
    from_commit: str
    to_branch: str | None
    to_commit: str
    created: bool
    handling: Handled
    changes: ChangeCounts
    staged: bool
    pending: str = ""


class _Goal(Record, frozen=True):
    """`branch` is None for a revision that is read by its hash; `revision` None for where HEAD is when the branch is made."""

    branch: str | None
    revision: str | None
    new: bool = False


def checkout(
    ws: Workspace,
    target: str,
    *,
    create: bool = False,
    start: str | None = None,
    how: Handling = "abort",
    message: str = "",
) -> CheckoutReport:
    """Go to a KB branch (one that only a remote has gets a local one), or read a commit, as `revparse.tool_rev` names it.

    `create`: make the branch first, at `start` or where the workspace stands. `how`, `message`: see `uncommitted.cleared`. Raises
    `BranchMissing`, `RevisionMissing`, `BranchExists`, `NameInvalid`, `BranchInUse`, `Uncommitted`, `MergeConflict` before anything is
    changed, and as `writing.movable` and `switch`.
    """
    here = writing.movable(ws)
    merge_state.refuse_if_open(ws)
    goal = _made(ws, target, start) if create else _goal(ws, target)
    before, stood, left = here.kb_branch, ws.revision_here(), ws.at()
    handling: Handled = "none"
    if before and goal.branch == before.name and not goal.new and how in ("abort", "carry"):
        switched = switch(ws, before.name)  # it is not left: what is uncommitted can stay
    else:
        with uncommitted.cleared(ws, how, message=message or f"Before going to {target}", onto=_onto(ws, goal)) as done:
            if goal.new and goal.branch:
                ws.engine.create_branch(goal.branch, goal.revision or ws.revision_here())
            switched = switch(ws, goal.branch or goal.revision or ws.revision_here())
        left, handling = done.held, done.handling
    after = ws.kb_branch()
    return CheckoutReport(
        before.name if before else None,
        stood,
        after.name if after else None,
        switched.pin.dolt_commit,
        goal.new,
        handling,
        ws.engine.count_changes(left, ws.at()),
        switched.staged,
        switched.pending,
    )


def create_branch(ws: Workspace, name: str, start: str) -> str:
    """Make a KB branch and stay where the workspace is; returns the revision that it is at. Raises as `checkout`."""
    reconciled_for_reading(ws)
    revision = revparse.tool_rev(ws, start)
    branches.require_new(ws, name)
    ws.engine.create_branch(name, revision)
    return revision


def _made(ws: Workspace, name: str, start: str | None) -> _Goal:
    revision = revparse.tool_rev(ws, start) if start is not None else None
    branches.require_new(ws, name)
    return _Goal(name, revision, new=True)


def _goal(ws: Workspace, target: str) -> _Goal:
    here = ws.kb_branch()
    if target == revparse.HEAD:
        return _Goal(here.name if here else None, ws.revision_here())
    branch = ws.engine.branch(target) if ws.engine.legal_branch_name(target) else None
    if branch:
        require_free(ws, branch.name, ws.trigger().branch or "")
        return _Goal(branch.name, branch.head)
    if head := _there(ws, target):
        branches.require_new(ws, target)
        return _Goal(target, head, new=True)
    try:
        return _Goal(None, revparse.tool_rev(ws, target))
    except RevisionMissing as error:
        if "candidates" in error.details or _NO_BRANCH.fullmatch(target):
            raise
        raise revparse.no_branch(ws, target) from error


def _there(ws: Workspace, branch: str) -> str | None:
    """Where a remote has a branch of that name, as of the last fetch."""
    names = dict.fromkeys(("origin", *remotes.names(ws.places)))
    return next((head for each in names if (head := revparse.remote_head(ws, f"{each}/{branch}"))), None)


def _onto(ws: Workspace, goal: _Goal) -> At:
    """Where uncommitted documents would arrive: among those that were left on that branch, if there are some."""
    there = ws.engine.branch(goal.branch) if goal.branch and not goal.new else None
    if there and there.dirty:
        return Working(there.name)
    return goal.revision or ws.revision_here()
