"""Move to another KB branch or revision, and create or delete KB branches. git's branch stays.

A move changes the pin. `switch` leaves uncommitted documents on their branch. `checkout` accepts
every name that the knowledge base has, can create the branch, and commits, discards or carries over
uncommitted documents.
"""

from __future__ import annotations

import re

from vmrag_link import locks
from vmrag_link.engines.base import ASIDE_PREFIX, is_reserved
from vmrag_link.errors import (
    BranchInUse,
    BranchMissing,
    BranchUnmerged,
    NameInvalid,
    RevisionAmbiguous,
    RevisionMissing,
    quoted,
)
from vmrag_link.git import plumbing, refs
from vmrag_link.models import At, ChangeCounts, KbBranch, Record, WorkingSet
from vmrag_link.ops import reset
from vmrag_link.ops.pin import go_to
from vmrag_link.ops.reset import Handled, Handling
from vmrag_link.pin_values import REVISION
from vmrag_link.sync import lease
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.follow.follow_pin import follow
from vmrag_link.workspace.follow.recovery import recover
from vmrag_link.workspace.history import revparse
from vmrag_link.workspace.merge import merge_state
from vmrag_link.workspace.pins import kb_branches
from vmrag_link.workspace.pins.pinning import PinBlock

_NO_BRANCH = re.compile(rf"{REVISION}|.*[~^].*|HEAD", re.DOTALL)
"""Names that are never the name of a branch."""


class SwitchReport(Record, frozen=True):
    """The result of `switch`."""

    code_branch: str
    branch: str | None
    """None if a revision is read by its hash; the first write creates a KB branch."""
    pin: PinBlock
    staged: bool
    notes: tuple[str, ...]
    pending: str = ""
    """Why the index did not follow; the next command updates it."""


def switch(ws: Workspace, name: str) -> SwitchReport:
    """Connect the checked-out code branch to another KB branch, or move it to a revision.

    Uncommitted documents stay on their KB branch. Raises `BranchInUse` if another code branch uses
    the KB branch or another work tree writes on the checked-out branch, `BranchMissing` if the name
    is neither a KB branch nor a revision, `NameInvalid` for a reserved name, `GitBusy` during an
    operation of git, and `MergeConflict` while a merge is open.
    """
    writing.refuse_if_busy(ws)
    recover(ws)
    merge_state.refuse_if_open(ws)
    trigger = ws.read_trigger()
    code = trigger.branch or ""
    branch = ws.engine.find_branch(name)
    if branch is None and not ws.engine.has_revision(name):
        raise BranchMissing(
            f"no such KB branch or revision: {name!r}.", hint="run 'vmrag branch' to list the KB branches", branch=name
        )
    # All work trees on the code branch share its mapping.
    lease.take_lease(ws.places, trigger.symbolic or "", timeout=ws.lock_timeout)
    branch_before = ws.find_kb_branch()
    with locks.hold_exclusive(ws.places.mapping_lock, purpose="switch a KB branch", timeout=ws.lock_timeout):
        if branch:
            require_free_branch(ws, branch.name, code)
            plumbing.set_kb_branch(ws.places, code, branch.name)
        else:
            plumbing.forget_kb_branch(ws.places, code)
    pinned = go_to(ws, branch.head if branch else name, trigger=trigger)
    notes: tuple[str, ...] = ()
    if branch_before and branch_before.dirty and not (branch and branch.name == branch_before.name):
        command = f"vmrag branch --switch {quoted(branch_before.name)}"
        notes = (f"uncommitted documents stay on {branch_before.name!r}; run '{command}' to return to them",)
    return SwitchReport(
        code_branch=code,
        branch=branch.name if branch else None,
        pin=pinned.pin,
        staged=pinned.staged,
        notes=notes,
        pending=pinned.pending,
    )


def require_free_branch(ws: Workspace, kb_branch: str, code: str) -> None:
    """Check that a code branch can use a KB branch.

    Raises `BranchInUse` if another code branch uses it, and `NameInvalid` for a reserved name.
    """
    if is_reserved(kb_branch):
        hint = (
            f"run 'vmrag merge {quoted(kb_branch)}' to merge it"
            if kb_branch.startswith(ASIDE_PREFIX)
            else "run 'vmrag branch' to list the KB branches"
        )
        raise NameInvalid(f"{kb_branch!r} is a reserved branch that you cannot write to.", hint=hint, branch=kb_branch)
    owner = _find_owner(ws, kb_branch) or code
    if owner != code:
        raise BranchInUse(
            f"the code branch {owner!r} uses the KB branch {kb_branch!r}.",
            hint=f"run 'git switch {quoted(owner)}', or 'vmrag pin {quoted(kb_branch)}' to only pin its revision",
            branch=kb_branch,
            holder=owner,
        )


def _find_owner(ws: Workspace, kb_branch: str) -> str | None:
    """Return the code branch that uses a KB branch.

    It also deletes the entry of a deleted code branch, which `git update-ref -d` leaves.
    """
    existing = refs.list_code_branches(ws.places)
    for kb_mapping in plumbing.list_kb_mappings(ws.places):
        if kb_mapping.kb_branch == kb_branch and kb_mapping.code not in existing:
            plumbing.forget_kb_branch(ws.places, kb_mapping.code, kb_mapping.tree)
    return plumbing.read_kb_owners(ws.places).get(kb_branch)


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
    """The target of a checkout."""

    branch: str | None
    """None if the revision is read by its hash."""
    revision: str | None
    """None for HEAD's revision after HEAD's branch was cleaned."""
    new: bool = False
    """True if the branch is to be created."""


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
    `start` or at the present revision. `how` and `message` are those of `reset.clean_branch`.

    Raises `BranchMissing`, `RevisionMissing`, `BranchExists`, `NameInvalid`, `BranchInUse`,
    `Uncommitted` and `MergeConflict` before anything is changed, and the errors of
    `writing.require_movable`.
    """
    state = writing.require_movable(ws)
    if state.in_use_by:
        raise lease.build_in_use_error(state.in_use_by, state.trigger.symbolic or "")
    merge_state.refuse_if_open(ws)
    goal = _define_goal(ws, target, start) if create else _find_goal(ws, target)
    branch_before, revision_before, place_before = state.kb_branch, ws.require_stored_revision(), ws.locate_documents()
    handling: Handled = "none"
    if branch_before and goal.branch == branch_before.name and not goal.new and how in ("abort", "carry"):
        switched = switch(ws, branch_before.name)  # the branch stays, so uncommitted documents can stay
    else:
        with reset.clean_branch(
            ws, how, message=message or f"Before going to {target}", onto=_find_arrival(ws, goal)
        ) as cleaned:
            if goal.new and goal.branch:
                ws.engine.create_branch(goal.branch, goal.revision or ws.require_stored_revision())
            switched = switch(ws, goal.branch or goal.revision or ws.require_stored_revision())
        place_before, handling = cleaned.held, cleaned.handling
    branch_after = ws.find_kb_branch()
    return CheckoutReport(
        from_branch=branch_before.name if branch_before else None,
        from_commit=revision_before,
        to_branch=branch_after.name if branch_after else None,
        to_commit=switched.pin.dolt_commit,
        created=goal.new,
        handling=handling,
        changes=ws.engine.count_changes(place_before, ws.locate_documents()),
        staged=switched.staged,
        pending=switched.pending,
    )


class BranchPosition(Record, frozen=True):
    """A KB branch and its head."""

    branch: str
    commit: str
    """The head of the new branch, or the former head of the deleted branch. Its hash stays
    reachable.
    """


def create_branch(ws: Workspace, name: str, start: str) -> BranchPosition:
    """Create a KB branch and stay on the present one.

    Raises `RevisionMissing`, `RevisionAmbiguous`, `BranchExists` and `NameInvalid`.
    """
    follow(ws, tolerate="git")
    revision = revparse.resolve_tool_rev(ws, start)
    kb_branches.require_new(ws, name)
    ws.engine.create_branch(name, revision)
    return BranchPosition(name, revision)


def delete_branch(ws: Workspace, name: str, *, force: bool = False) -> BranchPosition:
    """Delete a local KB branch. Remotes keep theirs.

    `force` also deletes a branch that no other branch contains, and its uncommitted documents,
    which are printed. Raises `BranchMissing`, `NameInvalid` for a reserved name, `BranchInUse` if
    a code branch uses it and, without `force`, `Uncommitted` and `BranchUnmerged`.
    """
    writing.refuse_if_busy(ws)
    recover(ws)
    branch = ws.engine.find_branch(name) if ws.engine.is_legal_branch_name(name) else None
    if branch is None:
        raise revparse.no_branch(ws, name)
    _require_unused(ws, branch)
    if branch.dirty and not force:
        raise reset.build_uncommitted_error(ws, branch)
    if not force and ws.engine.find_unreachable([branch.head], heads=revparse.list_visible_heads(ws, without=name)):
        raise BranchUnmerged(
            f"no other branch, here or on a remote as last fetched, contains {name!r} at {branch.head[:7]}.",
            hint=f"run 'vmrag merge {quoted(name)}' to merge it",
            branch=name,
        )
    if branch.dirty:
        reset.discard_uncommitted(ws, branch)
    ws.engine.delete_branch(name, expected=branch.head)
    return BranchPosition(name, branch.head)


def _require_unused(ws: Workspace, branch: KbBranch) -> None:
    name = branch.name
    if is_reserved(name):
        raise NameInvalid(
            f"{name!r} is a reserved branch, which you cannot delete.",
            hint="run 'vmrag branch' to list the KB branches",
            branch=name,
        )
    with locks.hold_exclusive(ws.places.mapping_lock, purpose="free a KB branch", timeout=ws.lock_timeout):
        owner = _find_owner(ws, name)
    if owner is not None:
        is_current = owner == ws.read_trigger().branch
        raise BranchInUse(
            f"the code branch {owner!r} uses the KB branch {name!r}.",
            hint="run 'vmrag branch --switch NAME'" if is_current else f"run 'git branch -d {quoted(owner)}'",
            branch=name,
            holder=owner,
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
    if head := revparse.find_remote_only(ws, target):
        kb_branches.require_new(ws, target)
        return _Goal(target, head, new=True)
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
    return goal.revision or ws.require_stored_revision()
