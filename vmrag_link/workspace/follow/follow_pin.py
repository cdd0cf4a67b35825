"""Follow the pin: move a work tree's documents and index to the pinned revision before reading.

Every command that reads calls `follow` first, because git can change HEAD and the pin without
running a hook. If nothing changed since the last call, `follow` only compares small files.

If the new pin cannot be followed, the work tree stays at the revision that it followed last. Then a
command either raises the reason, or answers from that revision with a warning.
"""

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
"""When a command may answer from the revision that was followed last.

`git`: while another git command holds a lock of git, or while a sync in the background takes longer
than `hooks.wait_s`. `failures`: also if documents cannot be moved or the index cannot be built, for
example on a full or read-only disk.
"""

ATTEMPTS = 3
"""How often a command reads again because another process moved the pin in the meantime."""

_UNWRITTEN = (FileSystemError, EngineUnwritable)
_UNBUILT = (*_UNWRITTEN, IndexFailed, ChromaServerFailed, LimitExceeded, RowsInvalid)

T = TypeVar("T")


def follow(ws: Workspace, *, index: bool = True, tolerate: Tolerance = "nothing") -> SyncReport | None:
    """Move documents and index to the pin. Return None if there was nothing to do.

    Interrupted commits are finished first. Without `index` only the documents move, and an index
    that is being built is not waited for. Notes report changes of documents.

    A missing or malformed pin is not an error: the report's `state` has the reason. Other failures
    are raised, unless `tolerate` covers them and an earlier revision can answer. Then
    `ws.follow_error` is set to the failure, which answers mention (`reasons.explain_difference`).
    """
    ws.follow_error = None
    if tolerate == "nothing":
        return _follow_pin(ws, index=index)
    sync_job = background.get_sync_job(ws.places)
    if index and ws.binding is not None and not background.wait_for_end(sync_job, within=ws.config.hooks.wait_s):
        return None  # a sync is still running
    tolerated: tuple[type[VmragError], ...] = (GitBusy,)
    if tolerate == "failures":
        tolerated += _UNBUILT if index else _UNWRITTEN
    try:
        with file_failures():
            return _follow_pin(ws, index=index)
    except tolerated as error:
        has_earlier = ws.binding is not None if index else ws.current_revision is not None
        if not has_earlier:
            raise
        ws.follow_error = None if isinstance(error, GitBusy) else error
        return None


def follow_or_raise(ws: Workspace) -> SyncReport | None:
    """Follow the pin like `follow`, but raise if the pin is malformed or its revision missing."""
    report = follow(ws)
    if report is not None and report.state in ("malformed", "missing"):
        raise reasons.explain_unusable(ws, ws.resolve_target())
    return report


def follow_and_warn(ws: Workspace, *, index: bool = False) -> None:
    """Follow the pin like `follow`, and print a warning if the answer will come from another
    revision than the pinned one.

    This is for commands whose report has no field for such warnings.
    """
    follow(ws, index=index, tolerate="failures")
    indexed_revision = ws.binding.revision if ws.binding else None
    revision = indexed_revision if index else ws.current_revision
    for note in reasons.explain_difference(ws, ws.resolve_target(), revision) if revision else ():
        ws.progress.note(note)


def read_consistently(ws: ReadableStore, read: Callable[[], T], *, index: bool = True) -> T:
    """Follow the pin, and return the result of `read`, which sees one consistent position.

    If another process changes HEAD or the pin (the trigger) while `read` runs, or begins a commit,
    `read` is called again. A commit first moves the KB branch, then the pin, and between these two
    steps neither has its documents. `index`: as for `follow`.
    """
    if not isinstance(ws, Workspace):
        return read()  # a store without versions follows no pin
    for _ in range(ATTEMPTS):
        trigger = ws.read_trigger()
        earlier_commits = list_pending(ws)
        follow(ws, index=index, tolerate="failures")
        answer = read()
        # A commit that was pending before, and still is, belongs to a killed process.
        has_new_commit = any(commit not in earlier_commits for commit in list_pending(ws))
        if ws.read_trigger() == trigger and not has_new_commit:
            break
    return answer


def _follow_pin(ws: Workspace, *, index: bool) -> SyncReport | None:
    """Fetch, recover, and move to the pin, without tolerance."""
    if not ws.is_initialized:
        ws.chroma.start_following()  # the store has only files; otherwise `bring_to_pin` updates it
    lazy_fetch.fetch_pinned(ws)
    recover(ws)
    background.report_notes(background.get_sync_job(ws.places), ws.progress.note)
    if ws.config.index.chroma != "auto":  # otherwise the user did not ask for stores
        background.report_notes(background.get_chroma_job(ws.places), ws.progress.note)
    return ws.bring_to_pin(index=index)
