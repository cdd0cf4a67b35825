"""Store rows in the KB branch of HEAD's code branch, and let the index follow in the same call."""

from __future__ import annotations

from collections.abc import Callable

from vmrag_link import locks
from vmrag_link.engines.base import Write
from vmrag_link.errors import Embedding, Files, GitBusy, Index, KnowledgeMoved, MergeConflict, Uncommitted
from vmrag_link.git import merging, plumbing
from vmrag_link.models import At, Record, Working
from vmrag_link.ops import branches
from vmrag_link.ops.recover import reconciled
from vmrag_link.sync import apply, lease
from vmrag_link.sync.resolve import Target
from vmrag_link.workspace import Workspace

ATTEMPTS = 3


class Landed(Record, frozen=True):
    """Where a write landed. `pending`: why the index did not follow; the rows are stored, and the next command catches up."""

    branch: str
    revision: str
    pending: str = ""


def writable(ws: Workspace) -> Target:
    """What a write would go to, after the workspace was brought to its pin. Raises why nothing may be written here."""
    refuse_if_busy(ws)
    reconciled(ws)
    # Before anything is planned: who does not hold the lease must not look at the other one's uncommitted documents.
    lease.take(ws.places, ws.trigger().symbolic or "", timeout=ws.lock_timeout)
    target = ws.target()
    if target.state != "pinned":
        raise ws.unusable(target)
    if target.kb_branch and target.attachment == "held":
        raise Uncommitted(apply.held(target.kb_branch, target.revision), hint=apply.way_back(target.kb_branch))
    if target.kb_branch and target.attachment == "behind":
        raise KnowledgeMoved(apply.unpinned(target.kb_branch, target.revision), hint=apply.way_back(target.kb_branch))
    return target


def refuse_if_busy(ws: Workspace) -> None:
    """Nothing is written where git would lose sight of it. Raises `GitBusy`, `MergeConflict` with the command that helps."""
    what = plumbing.busy(ws.places)
    if what:
        raise GitBusy(
            f"A {what} is under way in this work tree; knowledge is not written meanwhile.",
            hint=plumbing.busy_hint(what),
            operation=what,
        )
    if ws.trigger().branch is None:
        raise GitBusy(
            "HEAD is detached: documents are written on a branch, and here is none.",
            hint="git switch -c NAME",
            operation="detached",
        )
    apply.wait_for_git(ws.parts)
    if merging.stages(ws.places):
        raise MergeConflict(
            "The pin is in conflict; what would be written now would take one side.",
            hint="vmrag resolve",
        )


def write(ws: Workspace, plan: Callable[[At], Write | None], purpose: str) -> Landed | None:
    """Store what `plan` makes of the documents at a place; durable on return. None when it makes nothing of them.

    `plan` is asked again when HEAD or the pin move before its rows are stored: they land where they were planned for, or
    nowhere. Raises as `writable` and `plan`, and `Busy`, `ContentRefused`, `EngineFailed`.
    """
    for _ in range(ATTEMPTS):
        target = writable(ws)
        rows = plan(Working(target.kb_branch.name) if target.kb_branch else target.revision)
        if rows is None:
            return None
        name = branches.prepare(ws, target)
        with locks.exclusive(ws.places.workspace_lock, purpose=purpose, timeout=ws.lock_timeout):
            if ws.trigger() != target.trigger:
                continue  # a checkout in another terminal: plan for where it went, or be refused there
            lease.take(ws.places, target.trigger.symbolic or "", timeout=ws.lock_timeout)
            return _stored(ws, rows, name, target.revision)
    raise KnowledgeMoved("HEAD kept moving while this waited; nothing was written.", hint="Run the command again.")


def _stored(ws: Workspace, rows: Write, branch: str, revision: str) -> Landed:
    if ws.engine.branch(branch) is None:
        ws.engine.create_branch(branch, revision)
    copy = apply.working_copy(ws.parts, branch, revision)
    stored = False
    try:
        with copy.writing() as whole:
            ws.engine.write(branch, rows, expected=revision)
            stored = True
            ws.follow(copy.path, branch, revision, whole=whole)
    except (Index, Embedding, Files) as error:
        if not stored:
            raise
        return Landed(
            branch, revision, f"The documents are stored, but the index could not follow yet: {error.message}"
        )
    return Landed(branch, revision)
