"""`vmrag branch --switch`: connect the checked-out code branch to another KB branch.

git's branch stays, and the pin changes. git's configuration maps each code branch to its KB branch.
Uncommitted documents stay on their KB branch.
"""

from __future__ import annotations

from vmrag_link import locks
from vmrag_link.engines.own_branches import ASIDE_PREFIX, is_reserved
from vmrag_link.errors import BranchInUse, BranchMissing, NameInvalid, quoted
from vmrag_link.git import own_keys, work_trees
from vmrag_link.models import Record
from vmrag_link.ops.pin import go_to
from vmrag_link.sync import lease
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.follow.recovery import recover
from vmrag_link.workspace.merge import merge_state
from vmrag_link.workspace.pins.pinning import PinBlock


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
    code_branch = trigger.branch or ""
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
            require_free_branch(ws, branch.name, code_branch)
            own_keys.set_kb_branch(ws.places, code_branch, branch.name)
        else:
            own_keys.forget_kb_branch(ws.places, code_branch)
    pin_report = go_to(ws, branch.head if branch else name, trigger=trigger)
    notes: tuple[str, ...] = ()
    stays = branch is not None and branch_before is not None and branch.name == branch_before.name
    if branch_before and branch_before.dirty and not stays:
        command = f"vmrag branch --switch {quoted(branch_before.name)}"
        notes = (f"uncommitted documents stay on {branch_before.name!r}; run '{command}' to return to them",)
    return SwitchReport(
        code_branch=code_branch,
        branch=branch.name if branch else None,
        pin=pin_report.pin,
        staged=pin_report.staged,
        notes=notes,
        pending=pin_report.pending,
    )


def require_free_branch(ws: Workspace, kb_branch: str, code_branch: str) -> None:
    """Check that a code branch can use a KB branch.

    Raises `BranchInUse` if another code branch uses it, and `NameInvalid` for a reserved name.
    """
    if is_reserved(kb_branch):
        hint = "run 'vmrag branch' to list the KB branches"
        if kb_branch.startswith(ASIDE_PREFIX):
            hint = f"run 'vmrag merge {quoted(kb_branch)}' to merge it"
        raise NameInvalid(f"{kb_branch!r} is a reserved branch that you cannot write to.", hint=hint, branch=kb_branch)
    owner = find_owner(ws, kb_branch) or code_branch
    if owner != code_branch:
        raise BranchInUse(
            f"the code branch {owner!r} uses the KB branch {kb_branch!r}.",
            hint=f"run 'git switch {quoted(owner)}', or 'vmrag pin {quoted(kb_branch)}' to only pin its revision",
            branch=kb_branch,
            holder=owner,
        )


def find_owner(ws: Workspace, kb_branch: str) -> str | None:
    """Return the code branch that uses a KB branch; None if none does.

    It also deletes the entry of a deleted code branch, which `git update-ref -d` leaves.
    """
    existing = work_trees.list_code_branches(ws.places)
    for mapping in own_keys.list_kb_mappings(ws.places):
        if mapping.kb_branch == kb_branch and mapping.code not in existing:
            own_keys.forget_kb_branch(ws.places, mapping.code, mapping.tree)
    return own_keys.read_kb_owners(ws.places).get(kb_branch)
