"""`vmrag sync`: bring KB branch and index to the pin."""

from __future__ import annotations

import msgspec

from vmrag_link.git import plumbing
from vmrag_link.models import ChangeCounts, ChunkCounts
from vmrag_link.ops.follow import chroma, lazy_fetch
from vmrag_link.ops.follow.recovery import recover
from vmrag_link.sync.apply import SnapshotReport, SyncReport
from vmrag_link.sync.target import left_behind, read_own_pin
from vmrag_link.workspace import Workspace, reasons


def sync(ws: Workspace, *, rebuild: bool = False, wait: bool = False) -> SyncReport:
    """Raises why the pin cannot be followed: `PinMissing`, `PinMalformed`, `PinRevisionMissing`.
    The index keeps serving.

    The report's notes have been said. `wait`: until Chroma's store is there, and the index is on
    the Chroma server of the settings; raises why that cannot be. `index.chroma: wait` and
    `chroma.share: wait` ask for it each time.
    """
    from vmrag_link.sync import apply

    _require_readable_pin(ws)
    lazy_fetch.bring(ws, insist=True)
    recover(ws)
    report = ws.reconcile(rebuild=rebuild)
    target = ws.target()
    if target.state != "pinned":
        raise reasons.unusable(ws, target)
    if report is None:
        apply.tidy(ws.sync_context)  # a process that was killed after the switch left it undone
        revision = ws.revision()
        path = SnapshotReport(str(ws.views.path(revision)), "reused")
        report = SyncReport("pinned", revision, revision, ChangeCounts(), ChunkCounts(), path, {}, target.attachment)
    behind = left_behind(target)
    for note in behind:
        ws.progress.note(note)
    report = msgspec.structs.replace(report, notes=report.notes + behind)
    with ws.reader.view():
        pass  # opening the view mends the working copy, too, where there are uncommitted documents
    if wait and not (ws.chroma.local.mode == "off" and ws.chroma.server):
        chroma.wait_for_store(ws)
    else:
        chroma.wait_if_set(ws)
    if wait or ws.config.chroma.share == "wait":
        chroma.wait_for_server(ws)
    server = ws.chroma.sharing.state() if ws.chroma.server else None
    return msgspec.structs.replace(report, chroma=ws.chroma.local.state(), server=server)


def _require_readable_pin(ws: Workspace) -> None:
    """In a fresh clone, whose pin says where the knowledge is: to fetch it would not help.

    Raises `PinMalformed`.
    """
    if not ws.initialized and (data := plumbing.pin_bytes(ws.places)) is not None:
        read_own_pin(ws.places, data)
