"""`vmrag pin`: let the code commit that comes next name another revision, and go there."""

from __future__ import annotations

import msgspec

from vmrag_link import locks
from vmrag_link.engines.base import RESERVED_PREFIX
from vmrag_link.errors import BranchMissing, GitBusy
from vmrag_link.git import plumbing
from vmrag_link.ops import pinning, recover
from vmrag_link.ops.pinning import PinReport
from vmrag_link.workspace import Workspace


def pin(ws: Workspace, reference: str | None) -> PinReport:
    """Pin a revision (full hash), the head of a KB branch, or (None) the head of HEAD's own KB branch; then go there."""
    recover.recover(ws)
    branch = ws.kb_branch()
    newest = branch.head if branch else ws.revision()
    revision = newest if reference is None else _revision(ws, reference)
    with locks.exclusive(ws.places.workspace_lock, purpose="pin", timeout=ws.lock_timeout):
        report = pinning.write_pin(ws, revision, branch.name if branch else _present_name(ws))
    try:
        moved = ws.reconcile()
    except GitBusy:
        return report  # the next command goes there; `staged` says what is left to do
    return msgspec.structs.replace(report, notes=moved.notes) if moved else report


def _revision(ws: Workspace, reference: str) -> str:
    if ws.engine.has_revision(reference):
        return reference
    branch = ws.engine.branch(reference)
    if branch:
        return branch.head
    raise BranchMissing(
        f"There is no revision or KB branch {reference!r} in this knowledge base.",
        hint="vmrag log (shows the revisions; give the full hash), vmrag branch (shows the branches)",
        reference=reference,
        branches=[each.name for each in ws.engine.branches() if not each.name.startswith(RESERVED_PREFIX)],
    )


def _present_name(ws: Workspace) -> str:
    """What the pin says about the branch where there is none yet; information only."""
    old = pinning.parsed(plumbing.pin_bytes(ws.places))
    return old.dolt_branch if old else ws.trigger().branch or "main"
