"""`vmrag commit`: commit the uncommitted documents, pin the new revision, stage the pin.

The journal makes it whole: an entry is durable before the first step and goes away after the last, and whoever comes after a kill
finishes what the entry says (`recover`).
"""

from __future__ import annotations

import datetime as dt

from vmrag_link import locks
from vmrag_link.errors import KnowledgeMoved, NoChanges, UsageInvalid
from vmrag_link.git import plumbing
from vmrag_link.journal import CommitEntry
from vmrag_link.models import Changes, Record, Working
from vmrag_link.ops import pinning, writing
from vmrag_link.pin import Pin
from vmrag_link.sync.resolve import Target
from vmrag_link.workspace import Workspace


class CommitReport(Record, frozen=True):
    """`staged` False: another git command held the index, so `git add .dolt-version` is left to do."""

    revision: str
    parent: str
    branch: str
    changes: Changes
    pin: Pin | None
    staged: bool


def commit(ws: Workspace, message: str, *, author: str | None = None) -> CommitReport:
    """Raises `NoChanges`, `KnowledgeMoved`, `GitBusy`, `FileFailed` (full disk: nothing happened) and as `writing.writable`."""
    if not message.strip():
        raise UsageInvalid("A commit needs a message.", hint='vmrag commit -m "What changed in the knowledge"')
    target = writing.writable(ws)
    if target.kb_branch is None or not target.kb_branch.dirty:
        raise NoChanges("No documents have changed since the last commit.", hint="vmrag import DIR, vmrag add FILE")
    author = author or plumbing.identity(ws.places)
    with locks.exclusive(ws.places.workspace_lock, purpose="commit", timeout=ws.lock_timeout):
        if ws.trigger() != target.trigger:
            raise KnowledgeMoved("HEAD moved while this waited; nothing was committed.", hint="vmrag status")
        report = _committed(ws, target, message, author)
    ws.reconcile()
    return report


def _committed(ws: Workspace, target: Target, message: str, author: str) -> CommitReport:
    assert target.kb_branch is not None  # noqa: S101  commit() has looked
    branch, parent = target.kb_branch.name, target.revision
    changes = ws.engine.diff(parent, Working(branch)).counts()
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if not ws.config.auto_pin:
        revision = ws.engine.commit(branch, message=message, author=author, date=now, expected=parent)
        return CommitReport(revision, parent, branch, changes, None, staged=False)
    before = target.trigger.pin.decode() if target.trigger.pin is not None else None
    entry = CommitEntry(str(ws.places.git_dir), target.trigger.symbolic or "", before, kb_branch=branch, parent=parent)
    with ws.journal.entry(entry):
        revision = ws.engine.commit(branch, message=message, author=author, date=now, expected=parent)
        pinned = pinning.write_pin(ws, revision, branch)
    return CommitReport(revision, parent, branch, changes, pinned.pin, pinned.staged)
