"""`vmrag branch --switch`: let a code branch write on another KB branch."""

from __future__ import annotations

from vmrag_link import locks
from vmrag_link.engines.base import ASIDE_PREFIX, reserved
from vmrag_link.errors import BranchInUse, BranchMissing, NameInvalid, quoted
from vmrag_link.git import plumbing, worktrees
from vmrag_link.models import Record
from vmrag_link.ops.documents import writing
from vmrag_link.ops.follow.pin import go_to
from vmrag_link.ops.follow.recovery import recover
from vmrag_link.ops.merge import merge_state
from vmrag_link.ops.pins.pinning import PinBlock
from vmrag_link.sync import lease
from vmrag_link.workspace import Workspace


class SwitchReport(Record, frozen=True):
    """`branch` is None when a revision is read by its hash: the first document that is stored makes a KB branch then.

    `pending`: why the index did not follow; the next command catches up.
    """

    code_branch: str
    branch: str | None
    pin: PinBlock
    staged: bool
    notes: tuple[str, ...]
    pending: str = ""


def switch(ws: Workspace, name: str) -> SwitchReport:
    """Let the checked-out code branch write on another KB branch, or stand at a revision: the pin changes, as a submodule's would.

    Uncommitted documents stay on the KB branch that they are on. Raises `BranchInUse` for a KB branch of another code branch and
    where another work tree writes on this one, `BranchMissing` for what is neither, and as `writing.refuse_if_busy`; `MergeConflict`
    while a merge is open.
    """
    writing.refuse_if_busy(ws)
    recover(ws)
    merge_state.refuse_if_open(ws)
    trigger = ws.trigger()
    code = trigger.branch or ""
    branch = ws.engine.branch(name)
    if branch is None and not ws.engine.has_revision(name):
        raise BranchMissing(f"There is no KB branch or revision {name!r}.", hint="vmrag branch, vmrag log", branch=name)
    lease.take(
        ws.places, trigger.symbolic or "", timeout=ws.lock_timeout
    )  # all work trees on the code branch share its mapping
    before = ws.kb_branch()
    with locks.exclusive(ws.places.locks / "mapping.lock", purpose="switch a KB branch", timeout=ws.lock_timeout):
        if branch:
            require_free(ws, branch.name, code)
            plumbing.set_kb_branch(ws.places, code, branch.name)
        else:
            plumbing.forget_kb_branch(ws.places, code)
    pinned = go_to(ws, branch.head if branch else name, trigger=trigger)
    stay: tuple[str, ...] = ()
    if before and before.dirty and not (branch and branch.name == before.name):
        back = f"vmrag branch --switch {quoted(before.name)}"
        stay = (f"uncommitted documents stay on {before.name!r}; they are there again after: {back}",)
    return SwitchReport(code, branch.name if branch else None, pinned.pin, pinned.staged, stay, pinned.pending)


def require_free(ws: Workspace, kb_branch: str, code: str) -> None:
    """Nobody else writes there; the entry of a code branch that is gone (`git update-ref -d` leaves it) goes.

    Raises `BranchInUse`, and `NameInvalid` for a branch that holds no documents to write on.
    """
    if reserved(kb_branch):
        helps = f"vmrag merge {quoted(kb_branch)}" if kb_branch.startswith(ASIDE_PREFIX) else "vmrag branch"
        raise NameInvalid(f"{kb_branch!r} is no branch to write on.", hint=helps, branch=kb_branch)
    existing = worktrees.code_branches(ws.places)
    for owner, kb in plumbing.kb_mappings(ws.places):
        if kb == kb_branch and owner not in existing:
            plumbing.forget_kb_branch(ws.places, owner)
    owners = {kb: owner for owner, kb in plumbing.kb_branches(ws.places).items()}
    owner = owners.get(kb_branch, code)
    if owner != code:
        raise BranchInUse(
            f"The code branch {owner!r} writes on {kb_branch!r}.",
            hint=f"git switch {quoted(owner)}; or only pin what it holds: vmrag pin {quoted(kb_branch)}",
            branch=kb_branch,
            holder=owner,
        )
