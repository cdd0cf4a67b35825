"""Create and delete KB branches for tools. HEAD's KB branch stays."""

from __future__ import annotations

from vmrag_link import locks
from vmrag_link.engines.own_branches import is_reserved
from vmrag_link.errors import BranchInUse, BranchUnmerged, NameInvalid, quoted
from vmrag_link.models import KbBranch, Record
from vmrag_link.ops import uncommitted
from vmrag_link.ops.branch.switch import find_owner
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.follow.follow_pin import follow
from vmrag_link.workspace.follow.recovery import recover
from vmrag_link.workspace.history import revparse
from vmrag_link.workspace.pins import kb_branches


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
        raise uncommitted.build_uncommitted_error(ws, branch)
    other_heads = [] if force else revparse.list_visible_heads(ws, without=name)
    if not force and ws.engine.find_unreachable([branch.head], heads=other_heads):
        raise BranchUnmerged(
            f"no other branch, here or on a remote as last fetched, contains {name!r} at {branch.head[:7]}.",
            hint=f"run 'vmrag merge {quoted(name)}' to merge it",
            branch=name,
        )
    if branch.dirty:
        uncommitted.discard_uncommitted(ws, branch)
    ws.engine.delete_branch(name, expected=branch.head)
    return BranchPosition(name, branch.head)


def _require_unused(ws: Workspace, branch: KbBranch) -> None:
    """Raise `NameInvalid` for a reserved branch, and `BranchInUse` if a code branch uses it."""
    name = branch.name
    if is_reserved(name):
        raise NameInvalid(
            f"{name!r} is a reserved branch, which you cannot delete.",
            hint="run 'vmrag branch' to list the KB branches",
            branch=name,
        )
    with locks.hold_exclusive(ws.places.mapping_lock, purpose="free a KB branch", timeout=ws.lock_timeout):
        owner = find_owner(ws, name)
    if owner is not None:
        is_current = owner == ws.read_trigger().branch
        raise BranchInUse(
            f"the code branch {owner!r} uses the KB branch {name!r}.",
            hint="run 'vmrag branch --switch NAME'" if is_current else f"run 'git branch -d {quoted(owner)}'",
            branch=name,
            holder=owner,
        )
