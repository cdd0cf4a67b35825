"""Bring a work tree to its pin before anything reads it. Every command that reads starts here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeVar

from vmrag_link.errors import (
    ChromaServerFailed,
    EngineUnwritable,
    FileSystemError,
    GitBusy,
    IndexFailed,
    LimitExceeded,
    RowsInvalid,
    VmragError,
    file_failures,
)
from vmrag_link.sync import background
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.follow import lazy_fetch
from vmrag_link.workspace.follow.recovery import list_pending, recover

if TYPE_CHECKING:
    from vmrag_link.sync.apply import SyncReport
    from vmrag_link.workspace import ReadableStore

Tolerance = Literal["nothing", "git", "failures"]
"""When a command may answer from the state that was followed last.

`git`: while another git command works in the repository, and if a sync in the background takes
longer than `hooks.wait_s`. `failures`: also if the next state cannot be written or built, for
example on a full or read-only disk.
"""

ATTEMPTS = 3
"""How often a command reads again because another process moved the pin in the meantime."""

_UNWRITTEN = (FileSystemError, EngineUnwritable)
_UNBUILT = (*_UNWRITTEN, IndexFailed, ChromaServerFailed, LimitExceeded, RowsInvalid)

T = TypeVar("T")


def follow(ws: Workspace, *, index: bool = True, tolerate: Tolerance = "nothing") -> SyncReport | None:
    """Bring documents and index to the pin. Return None if there was nothing to do.

    Interrupted commits are finished first. Without `index` only the documents move, and an index
    that is being built is not waited for. Notes report changes of documents. A pin that cannot be
    followed is not an error: the report's `state` has the reason. `Workspace.follow_error` is the
    failure that was tolerated.
    """
    ws.follow_error = None
    if tolerate == "nothing":
        return _follow_pin(ws, index=index)
    if index and _can_answer(ws, index=True) and _is_syncing(ws):
        return None
    tolerated: tuple[type[VmragError], ...] = (GitBusy,)
    if tolerate == "failures":
        tolerated += _UNBUILT if index else _UNWRITTEN
    try:
        with file_failures():
            return _follow_pin(ws, index=index)
    except tolerated as error:
        if not _can_answer(ws, index=index):
            raise
        ws.follow_error = None if isinstance(error, GitBusy) else error
        return None


def _can_answer(ws: Workspace, *, index: bool) -> bool:
    """Return whether an earlier state can answer."""
    return ws.binding is not None if index else ws.current_revision is not None


def _is_syncing(ws: Workspace) -> bool:
    """Return whether a background sync is still running after `hooks.wait_s`."""
    return not background.wait_for_end(background.get_sync_job(ws.places), within=ws.config.hooks.wait_s)


def _follow_pin(ws: Workspace, *, index: bool) -> SyncReport | None:
    if not ws.is_initialized:
        ws.chroma.start_following()  # the store has only files; otherwise `bring_to_pin` updates it
    lazy_fetch.fetch_pinned(ws)
    recover(ws)
    background.report_notes(background.get_sync_job(ws.places), ws.progress.note)
    if ws.config.index.chroma != "auto":  # otherwise the user did not ask for stores
        background.report_notes(background.get_chroma_job(ws.places), ws.progress.note)
    return ws.bring_to_pin(index=index)


def follow_or_raise(ws: Workspace) -> SyncReport | None:
    """Follow the pin, and raise the reason if there is one that cannot be followed."""
    report = follow(ws)
    if report is not None and report.state in ("malformed", "missing"):
        raise reasons.explain_unusable(ws, ws.resolve_target())
    return report


def follow_and_warn(ws: Workspace, *, index: bool = False) -> None:
    """Follow the pin. Print notes if the answer does not come from the pinned revision.

    This is for commands whose report has no field for the origin of the answer.
    """
    follow(ws, index=index, tolerate="failures")
    revision = (ws.binding.revision if ws.binding else None) if index else ws.current_revision
    for note in reasons.explain_difference(ws, ws.resolve_target(), revision) if revision else ():
        ws.progress.note(note)


def read_consistently(ws: ReadableStore, read: Callable[[], T], *, index: bool = True) -> T:
    """Return the result of `read` while the work tree is at its pin. `index`: as for `follow`.

    `read` is called again if another process moves the pin while it runs. A commit first moves the
    KB branch, then the pin, and between the two its documents are in neither. A commit that was
    pending before, and still is, belongs to a dead process. It waits for git.
    """
    if not isinstance(ws, Workspace):
        return read()  # a store without versions follows no pin
    for _ in range(ATTEMPTS):
        trigger, commits = ws.read_trigger(), list_pending(ws)
        follow(ws, index=index, tolerate="failures")
        answer = read()
        if ws.read_trigger() == trigger and all(entry in commits for entry in list_pending(ws)):
            break
    return answer
