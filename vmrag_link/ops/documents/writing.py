"""Store rows in the KB branch of HEAD's code branch, and let the index follow in the same call."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from vmrag_link import locks
from vmrag_link.engines.base import Write
from vmrag_link.errors import (
    INDEXING_FAILURES,
    FileSystemError,
    GitBusy,
    IndexFailed,
    KnowledgeMoved,
    LimitExceeded,
    MergeConflict,
    Uncommitted,
    file_failures,
)
from vmrag_link.git import pin_merge, plumbing, sharing
from vmrag_link.index.contents import chunks_held
from vmrag_link.index.store import IndexStore
from vmrag_link.models import At, Record, Working
from vmrag_link.ops.documents import branches
from vmrag_link.ops.follow.follow_pin import move, reconcile
from vmrag_link.sync import apply, lease, sentences
from vmrag_link.sync.target import Target
from vmrag_link.workspace import Workspace, reasons

ATTEMPTS = 3

Plan = Callable[[At], Write | None]
"""What to store, made from the documents at a place; None for nothing. May be asked more than once."""


class Landed(Record, frozen=True):
    """Where a write landed. `pending`: why the index did not follow; the rows are stored, and the next command catches up.

    `chunks`: how many the index holds of the documents that were put.
    """

    branch: str
    revision: str
    pending: str = ""
    chunks: int = 0


def writable(ws: Workspace, *, index: bool = True) -> Target:
    """What a write would go to, after the workspace was brought to its pin; `index` as `movable`. Raises why nothing may be written."""
    target = movable(ws, index=index)
    if target.attachment in ("held", "behind"):
        # Between the two steps of another process's commit it looks so, too: the pin comes after the branch.
        target = movable(ws, index=index)
    if target.kb_branch and target.attachment == "held":
        raise Uncommitted(sentences.held(target.kb_branch, target.revision), hint=sentences.way_back(target.kb_branch))
    if target.kb_branch and target.attachment == "behind":
        raise KnowledgeMoved(
            sentences.unpinned(target.kb_branch, target.revision), hint=sentences.way_back(target.kb_branch)
        )
    return target


def movable(ws: Workspace, *, index: bool = True) -> Target:
    """As `writable`, for what decides where the KB branch stands: it need not stand at the pin.

    With `index` that is brought, too, so that it only has to follow what is written; one that cannot be built stops no writing.
    """
    refuse_if_busy(ws)
    sharing.prepare(ws.places)
    if index:
        try:
            with file_failures():
                reconcile(ws)
        except (IndexFailed, FileSystemError, LimitExceeded):
            move(ws)
    else:
        move(ws)
    # Before anything is planned: who does not hold the lease must not look at the other one's uncommitted documents.
    lease.take(ws.places, ws.trigger().symbolic or "", timeout=ws.lock_timeout)
    target = ws.target()
    if target.state != "pinned":
        raise reasons.unusable(ws, target)
    return target


def refuse_if_busy(ws: Workspace) -> None:
    """Nothing is written where git would lose sight of it. Raises `GitBusy`, `MergeConflict` with the command that helps."""
    refuse_in_between(ws)
    apply.wait_for_git(ws.sync_context)
    if pin_merge.stages(ws.places):
        raise MergeConflict(
            "The pin is in conflict; what would be written now would take one side.",
            hint="vmrag resolve",
        )


def refuse_in_between(ws: Workspace) -> None:
    """As `refuse_if_busy`, where there need not be a knowledge base. Raises `GitBusy`."""
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


def write(
    ws: Workspace,
    plan: Plan,
    purpose: str,
    *,
    follow: bool = True,
    alter: Callable[[IndexStore], None] = lambda _: None,
) -> Landed | None:
    """Store what `plan` makes of the documents at a place; durable on return. None when it makes nothing of them.

    `plan` is asked again when HEAD, the pin or a document move before its rows are stored: they land where they were planned for, and
    on what they were made from, or nowhere. Without `follow` the index is left to whoever needs it next; `alter` does to it what no rows
    decide. Raises as `writable` and `plan`, and `Busy`, `ContentRefused`, `EngineFailed`.
    """
    for _ in range(ATTEMPTS):
        target = writable(ws, index=follow)
        stamp = ws.engine.stamp()
        rows = plan(Working(target.kb_branch.name) if target.kb_branch else target.revision)
        if rows is None:
            return None
        name = branches.prepare(ws, target)
        with locks.exclusive(ws.places.workspace_lock, purpose=purpose, timeout=ws.lock_timeout):
            if ws.trigger() != target.trigger:
                continue  # a checkout in another terminal: plan for where it went, or be refused there
            lease.take(ws.places, target.trigger.symbolic or "", timeout=ws.lock_timeout)
            planned = _Planned(plan, rows, stamp, name, target.revision)
            return _stored(ws, planned, purpose, alter) if follow else _deferred(ws, planned, purpose)
    raise KnowledgeMoved("HEAD kept moving while this waited; nothing was written.", hint="Run the command again.")


class _Planned(NamedTuple):
    """Rows for a branch at a revision; `stamp`: the knowledge base's from before they were planned."""

    plan: Plan
    rows: Write
    stamp: object
    branch: str
    revision: str

    def store(self, ws: Workspace, purpose: str) -> Write:
        """Returns what was stored."""
        with ws.engine.writing(purpose):
            there, rows = ws.engine.branch(self.branch), self.rows
            if ws.engine.stamp() != self.stamp:  # somebody has written meanwhile, and nobody will now
                rows = self.plan(Working(self.branch) if there else self.revision) or Write()
            if there is None:
                ws.engine.create_branch(self.branch, self.revision)
            ws.engine.write(self.branch, rows, expected=self.revision)
        return rows


def _stored(ws: Workspace, planned: _Planned, purpose: str, alter: Callable[[IndexStore], None]) -> Landed:
    branch, revision = planned.branch, planned.revision
    copy = ws.sync_context.working_copy(branch, revision)
    stored = False
    try:
        with file_failures(), copy.writing() as whole:
            rows = planned.store(ws, purpose)
            stored = True
            ws.reader.update_copy(copy.path, branch, revision, whole=whole, alter=alter)
            chunks = chunks_held(copy.path, (each.key for each in rows.put_documents))
    except INDEXING_FAILURES as error:
        if not stored:
            raise
        return Landed(
            branch, revision, f"The documents are stored, but the index could not follow yet: {error.message}"
        )
    return Landed(branch, revision, chunks=chunks)


def _deferred(ws: Workspace, planned: _Planned, purpose: str) -> Landed:
    with ws.sync_context.working_copy(planned.branch, planned.revision).deferring():
        planned.store(ws, purpose)
    pending = "The documents are stored, and the index follows when it is needed next."
    return Landed(planned.branch, planned.revision, pending)
