"""Bring a work tree to its pin before anything reads it. Every command that reads starts here.

`reconcile` brings documents and index; `move` brings the documents alone, which needs no index and
builds none. The variants `…_for_reading` and `…_if_possible` let what was applied last go on
answering where the pin cannot be followed now.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from vmrag_link.errors import (
    ChromaServerFailed,
    EngineUnwritable,
    FileSystemError,
    GitBusy,
    IndexFailed,
    LimitExceeded,
    RowsInvalid,
    file_failures,
)
from vmrag_link.ops.follow import lazy_fetch
from vmrag_link.ops.follow.recovery import pending, recover
from vmrag_link.sync import background
from vmrag_link.workspace import ReadableStore, Workspace, reasons

if TYPE_CHECKING:
    from vmrag_link.sync.apply import SyncReport

ATTEMPTS = 3
"""How often a command looks again because another process moved the pin while it looked."""

T = TypeVar("T")


def reconcile(ws: Workspace) -> SyncReport | None:
    """Finish or report interrupted commits, then bring documents and index to the pin; None when
    there was nothing to do.

    The notes for a person have been said when this returns. A pin that cannot be followed is no
    error: the report's `state` tells.
    """
    _prepare(ws)
    return ws.reconcile()


def reconcile_or_raise(ws: Workspace) -> SyncReport | None:
    """As `reconcile`; raises why the pin cannot be followed, if there is one.

    Where there is no pin, there is nothing to follow.
    """
    report = reconcile(ws)
    if report is not None and report.state in ("malformed", "missing"):
        raise reasons.unusable(ws, ws.target())
    return report


def move(ws: Workspace) -> None:
    """As `reconcile`, for the documents alone: no index is built, and none that is being built is
    waited for.
    """
    _prepare(ws)
    ws.move()


def _prepare(ws: Workspace) -> None:
    if not ws.initialized:
        ws.chroma.follow()  # a store of files alone; otherwise `reconcile` does it
    lazy_fetch.bring(ws)
    recover(ws)
    background.tell(background.sync_of(ws.places), ws.progress.note)
    if ws.config.index.chroma != "auto":  # otherwise the user did not ask for stores
        background.tell(background.chroma_of(ws.places), ws.progress.note)


def reconcile_for_reading(ws: Workspace) -> None:
    """As `reconcile`. The bound index goes on answering while another git command holds the
    repository, and when a sync in the background takes longer than `hooks.wait_s`.
    """
    if ws.binding is not None and not background.ended(background.sync_of(ws.places), within=ws.config.hooks.wait_s):
        return
    try:
        reconcile(ws)
    except GitBusy:
        if ws.binding is None:
            raise


def reconcile_if_possible(ws: Workspace) -> None:
    """As `reconcile_for_reading`. The bound index also goes on answering where the next one cannot
    be built: on a full or read-only disk, of a document that makes too many chunks, or without a
    Chroma server that the settings insist on.
    `Workspace.unbuilt` has the reason, which the answer's notes give.
    """
    ws.unbuilt = None
    try:
        with file_failures():
            reconcile_for_reading(ws)
    except (FileSystemError, IndexFailed, ChromaServerFailed, LimitExceeded, EngineUnwritable, RowsInvalid) as why:
        if ws.binding is None:
            raise
        ws.unbuilt = why


def move_for_reading(ws: Workspace) -> None:
    """As `move`. Documents are read where they were read last while git holds the repository, or
    where nothing can be written.
    """
    ws.unbuilt = None
    try:
        with file_failures():
            move(ws)
    except GitBusy:
        if ws.standing_revision is None:
            raise
    except (FileSystemError, EngineUnwritable) as why:
        if ws.standing_revision is None:
            raise
        ws.unbuilt = why


def read_consistently(ws: ReadableStore, look: Callable[[], T], *, index: bool = True) -> T:
    """What `look` returns when the work tree stands at its pin. Without `index` the documents alone
    are brought there.

    It looks again if another process moved the pin meanwhile: a commit moves the KB branch first
    and the pin then, and a look in between would find what was uncommitted nowhere. A commit that
    was pending before, and still is, belongs to no living process: it waits for git.
    """
    if not isinstance(ws, Workspace):
        return look()  # what is not versioned follows no pin
    bring = reconcile_if_possible if index else move_for_reading
    for _ in range(ATTEMPTS):
        before, known = ws.trigger(), pending(ws)
        bring(ws)
        found = look()
        if ws.trigger() == before and all(entry in known for entry in pending(ws)):
            break
    return found


def move_and_warn(ws: Workspace) -> None:
    """As `move_for_reading`, for commands whose report has no place for it: notes say where what
    follows comes from.
    """
    move_for_reading(ws)
    for note in reasons.notes(ws, ws.target(), ws.revision()) if ws.standing_revision else ():
        ws.progress.note(note)


def sync_and_warn(ws: Workspace) -> None:
    """As `move_and_warn`, with the index, for commands that tell about the index itself."""
    reconcile_if_possible(ws)
    for note in reasons.notes(ws, ws.target(), ws.binding.revision) if ws.binding else ():
        ws.progress.note(note)
