"""Finish what a killed `vmrag commit` began, and only then look at the pin."""

from __future__ import annotations

from pathlib import Path

from vmrag_link import locks
from vmrag_link import pin as pins
from vmrag_link.journal import CommitEntry
from vmrag_link.ops import pinning
from vmrag_link.sync.apply import SyncReport
from vmrag_link.workspace import Workspace


def reconciled(ws: Workspace) -> SyncReport | None:
    """Finish or report interrupted commits, then bring the workspace to its pin; None when that was not needed."""
    recover(ws)
    return ws.reconcile()


def recover(ws: Workspace) -> None:
    """Every command that works on the knowledge base calls this first; nearly always there is nothing to do."""
    if not ws.journal.entries(ws.places.git_dir):
        return
    with locks.exclusive(ws.places.workspace_lock, purpose="finish a commit", timeout=ws.lock_timeout):
        for path, entry in ws.journal.entries(ws.places.git_dir):  # again: who held the lock may have finished it
            _finish(ws, path, entry)


def _finish(ws: Workspace, path: Path, entry: CommitEntry) -> None:
    branch = ws.engine.branch(entry.kb_branch)
    if branch is None or branch.head == entry.parent:
        ws.journal.finish(path)  # killed before the knowledge base was committed: the documents are still uncommitted
        return
    revision = branch.head
    trigger = ws.trigger()
    pinned = trigger.pin is not None and trigger.pin == _pin_bytes(ws, entry, revision)
    before = entry.pin.encode() if entry.pin is not None else None
    if trigger.symbolic == entry.symbolic and (trigger.pin == before or pinned):
        pinning.write_pin(ws, revision, entry.kb_branch)
        ws.journal.finish(path)
        ws.progress.note(f"Finished an interrupted commit: revision {revision[:7]} is pinned now.")
        return
    ws.progress.note(
        f"UNPINNED_REVISION: revision {revision[:7]} of {entry.kb_branch!r} was committed, but not pinned before HEAD moved. "
        f"On {entry.symbolic.removeprefix('refs/heads/')}: vmrag pin {revision}"
    )
    if trigger.symbolic == entry.symbolic:
        # The pin was replaced by something else: nothing will be finished any more, but nothing is lost either.
        ws.engine.anchor(revision, reason="committed, never pinned")
        ws.journal.finish(path)


def _pin_bytes(ws: Workspace, entry: CommitEntry, revision: str) -> bytes:
    old = pinning.parsed(entry.pin.encode()) if entry.pin is not None else None
    return pins.format(pinning.next_pin(ws, old, revision, entry.kb_branch))
