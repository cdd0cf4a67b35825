"""Go to another KB branch or a revision: the pin changes, and git's branch stays.

`switch` leaves uncommitted documents on their branch. `checkout` takes every name that the
knowledge base knows, may make the branch, and commits, gives up or takes along what is not
committed.
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
"""What is never the name of a branch."""


class SwitchReport(Record, frozen=True):
    """`branch` is None where a revision is read by its hash: the first write makes a KB branch.

    `pending`: why the index did not follow; the next command catches up.
    """

    code_branch: str
    branch: str | None
    pin: PinBlock
    staged: bool
    notes: tuple[str, ...]
    pending: str = ""


def switch(ws: Workspace, name: str) -> SwitchReport:
    """Let the checked-out code branch write on another KB branch, or stand at a revision.

    Uncommitted documents stay on the KB branch that they are on. Raises `BranchInUse` for a KB
    branch of another code branch and where another work tree writes on this one, `BranchMissing`
    for what is neither, and as `writing.refuse_if_busy`; `MergeConflict` while a merge is open.
    """
    writing.refuse_if_busy(ws)
    recover(ws)
    merge_state.refuse_if_open(ws)
    trigger = ws.read_trigger()
    code = trigger.branch or ""
    branch = ws.engine.find_branch(name)
    if branch is None and not ws.engine.has_revision(name):
        raise BranchMissing(f"There is no KB branch or revision {name!r}.", hint="vmrag branch, vmrag log", branch=name)
    # All work trees on the code branch share its mapping.
    lease.take_lease(ws.places, trigger.symbolic or "", timeout=ws.lock_timeout)
    before = ws.find_kb_branch()
    with locks.hold_exclusive(ws.places.locks / "mapping.lock", purpose="switch a KB branch", timeout=ws.lock_timeout):
        if branch:
            require_free_branch(ws, branch.name, code)
            plumbing.set_kb_branch(ws.places, code, branch.name)
        else:
            plumbing.forget_kb_branch(ws.places, code)
    pinned = go_to(ws, branch.head if branch else name, trigger=trigger)
    stay: tuple[str, ...] = ()
    if before and before.dirty and not (branch and branch.name == before.name):
        back = f"vmrag branch --switch {quoted(before.name)}"
        stay = (f"uncommitted documents stay on {before.name!r}; they are there again after: {back}",)
    return SwitchReport(code, branch.name if branch else None, pinned.pin, pinned.staged, stay, pinned.pending)


def require_free_branch(ws: Workspace, kb_branch: str, code: str) -> None:
    """Raise `BranchInUse` if another code branch writes there, `NameInvalid` for reserved names."""
    if is_reserved(kb_branch):
        helps = f"vmrag merge {quoted(kb_branch)}" if kb_branch.startswith(ASIDE_PREFIX) else "vmrag branch"
        raise NameInvalid(f"{kb_branch!r} is no branch to write on.", hint=helps, branch=kb_branch)
    owner = _owner(ws, kb_branch) or code
    if owner != code:
        raise BranchInUse(
            f"The code branch {owner!r} writes on {kb_branch!r}.",
            hint=f"git switch {quoted(owner)}; or only pin what it holds: vmrag pin {quoted(kb_branch)}",
            branch=kb_branch,
            holder=owner,
        )


def _owner(ws: Workspace, kb_branch: str) -> str | None:
    """The code branch that writes on a KB branch. Drops the entry of one that is gone: `git
    update-ref -d` leaves it.
    """
    existing = refs.list_code_branches(ws.places)
    for kb_mapping in plumbing.list_kb_mappings(ws.places):
        if kb_mapping.kb_branch == kb_branch and kb_mapping.code not in existing:
            plumbing.forget_kb_branch(ws.places, kb_mapping.code, kb_mapping.tree)
    return plumbing.read_kb_owners(ws.places).get(kb_branch)


class CheckoutReport(Record, frozen=True):
    """A branch is None where a revision is read by its hash.

    `changes`: of the documents that are visible, uncommitted ones included.
    """

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
    """`branch` None: the revision is read by hash. `revision` None: HEAD's, once it is clean."""

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
    """Go to a KB branch, or read a commit, as `revparse.tool_rev` names it.

    A branch that only a remote has gets a local one. `create`: make the branch first, at `start` or
    where the workspace stands. `how`, `message`: see `uncommitted.cleared`. Raises `BranchMissing`,
    `RevisionMissing`, `BranchExists`, `NameInvalid`, `BranchInUse`, `Uncommitted`, `MergeConflict`
    before anything is changed, and as `writing.movable` and `switch`.
    """
    here = writing.require_movable(ws)
    if here.in_use_by:
        raise lease.build_in_use_error(here.in_use_by, here.trigger.symbolic or "")
    merge_state.refuse_if_open(ws)
    goal = _goal_of_new(ws, target, start) if create else _goal(ws, target)
    before, stood, left = here.kb_branch, ws.require_stored_revision(), ws.locate_documents()
    handling: Handled = "none"
    if before and goal.branch == before.name and not goal.new and how in ("abort", "carry"):
        switched = switch(ws, before.name)  # the branch is not left: uncommitted documents can stay
    else:
        with reset.clean_branch(
            ws, how, message=message or f"Before going to {target}", onto=_arrival(ws, goal)
        ) as done:
            if goal.new and goal.branch:
                ws.engine.create_branch(goal.branch, goal.revision or ws.require_stored_revision())
            switched = switch(ws, goal.branch or goal.revision or ws.require_stored_revision())
        left, handling = done.held, done.handling
    after = ws.find_kb_branch()
    return CheckoutReport(
        before.name if before else None,
        stood,
        after.name if after else None,
        switched.pin.dolt_commit,
        goal.new,
        handling,
        ws.engine.count_changes(left, ws.locate_documents()),
        switched.staged,
        switched.pending,
    )


class BranchPosition(Record, frozen=True):
    """`commit`: where a new branch stands, or a deleted one stood, which stays reachable by its
    hash.
    """

    branch: str
    commit: str


def create_branch(ws: Workspace, name: str, start: str) -> BranchPosition:
    """Make a KB branch, and stay on the present one.

    Raises as `checkout`.
    """
    follow(ws, tolerate="git")
    revision = revparse.resolve_tool_rev(ws, start)
    kb_branches.require_new(ws, name)
    ws.engine.create_branch(name, revision)
    return BranchPosition(name, revision)


def delete_branch(ws: Workspace, name: str, *, force: bool = False) -> BranchPosition:
    """Delete a KB branch here; remotes keep theirs. `force`: also one that no other branch holds,
    and its uncommitted documents, which a note names.

    Raises `BranchMissing`, `NameInvalid` for a reserved one, `BranchInUse` for one that a code
    branch writes on; without `force`, `Uncommitted` and `BranchUnmerged`.
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
            f"No other branch, here or on a remote as last fetched, holds {name!r} at {branch.head[:7]}.",
            hint=f"vmrag merge {quoted(name)}",
            branch=name,
        )
    if branch.dirty:
        reset.discard_uncommitted(ws, branch)
    ws.engine.delete_branch(name, expected=branch.head)
    return BranchPosition(name, branch.head)


def _require_unused(ws: Workspace, branch: KbBranch) -> None:
    name = branch.name
    if is_reserved(name):
        raise NameInvalid(f"{name!r} belongs to vmrag itself; it stays.", hint="vmrag branch", branch=name)
    with locks.hold_exclusive(ws.places.locks / "mapping.lock", purpose="free a KB branch", timeout=ws.lock_timeout):
        owner = _owner(ws, name)
    if owner is not None:
        here = owner == ws.read_trigger().branch
        raise BranchInUse(
            f"The code branch {owner!r} writes on {name!r}.",
            hint="vmrag branch --switch NAME (goes to another one first)" if here else f"git branch -d {quoted(owner)}",
            branch=name,
            holder=owner,
        )


def _goal_of_new(ws: Workspace, name: str, start: str | None) -> _Goal:
    revision = revparse.resolve_tool_rev(ws, start) if start is not None else None
    kb_branches.require_new(ws, name)
    return _Goal(name, revision, new=True)


def _goal(ws: Workspace, target: str) -> _Goal:
    here = ws.find_kb_branch()
    if target == revparse.HEAD:
        return _Goal(here.name if here else None, ws.require_stored_revision())
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


def _arrival(ws: Workspace, goal: _Goal) -> At:
    """Where uncommitted documents would arrive: among those of the branch, if it has some."""
    there = ws.engine.find_branch(goal.branch) if goal.branch and not goal.new else None
    if there and there.dirty:
        return WorkingSet(there.name)
    return goal.revision or ws.require_stored_revision()
