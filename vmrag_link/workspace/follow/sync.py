"""`vmrag sync`: bring KB branch and index to the pin; and wait for Chroma: for the store of the
index that answers here, and for that index on the Chroma server of the settings.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vmrag_link.errors import UsageInvalid, VmragError
from vmrag_link.git import plumbing
from vmrag_link.models import ChangeCounts, ChunkCounts, Record
from vmrag_link.sync.target import describe_left_behind, read_own_pin
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.follow import lazy_fetch
from vmrag_link.workspace.follow.recovery import recover

if TYPE_CHECKING:
    from vmrag_link.sync.apply import SyncReport
    from vmrag_link.sync.chroma_state import ChromaState


def sync_to_pin(ws: Workspace, *, rebuild: bool = False, wait: bool = False) -> SyncReport:
    """Raises why the pin cannot be followed: `PinMissing`, `PinMalformed`, `PinRevisionMissing`.
    The index keeps serving.

    The report's notes have been said. `wait`: until Chroma's store is there, and the index is on
    the Chroma server of the settings; raises why that cannot be. `index.chroma: wait` and
    `chroma.share: wait` ask for it each time.
    """
    from vmrag_link.sync import apply
    from vmrag_link.sync.apply import SnapshotReport, SyncReport  # who only waits for Chroma's store applies nothing

    _require_readable_pin(ws)
    lazy_fetch.fetch_pinned(ws, insist=True)
    recover(ws)
    report = ws.bring_to_pin(rebuild=rebuild)
    target = ws.resolve_target()
    if target.state != "pinned":
        raise reasons.explain_unusable(ws, target)
    if report is None:
        apply.remove_leftovers(ws.sync_context)  # a process that was killed after the switch left it undone
        revision = ws.require_revision()
        path = SnapshotReport(str(ws.views.view_path(revision)), "reused")
        report = SyncReport("pinned", revision, revision, ChangeCounts(), ChunkCounts(), path, {}, target.attachment)
    behind = describe_left_behind(target)
    for note in behind:
        ws.progress.note(note)
    report = msgspec.structs.replace(report, notes=report.notes + behind)
    with ws.reader.view():
        pass  # opening the view mends the working copy, too, where there are uncommitted documents
    if wait and not (ws.chroma.local.mode == "off" and ws.chroma.server):
        wait_for_store(ws)
    else:
        wait_if_set(ws)
    if wait or ws.config.chroma.share == "wait":
        wait_for_server(ws)
    server = ws.chroma.sharing.read_state() if ws.chroma.server else None
    return msgspec.structs.replace(report, chroma=ws.chroma.local.read_state(), server=server)


class FilesReport(Record, frozen=True):
    """The index of a repository that stores no documents."""

    commit: str | None
    """Checked-out commit. None before the first commit."""
    files: int
    """Number of files that answer."""
    sources: tuple[str, ...]
    """Collections of these files."""
    indexed: int
    """Percentage of the files that the index has."""
    chroma: ChromaState | None
    """Chroma's store of the commit's files. None if there is no store to follow them."""


def sync_files(ws: Workspace, *, wait: bool = False) -> FilesReport:
    """Build the index of the files of the working tree.

    `wait`: until Chroma's store has the files of the commit, too. Raises `NotInitialized` if no
    file is a document, and the errors of `Sources.here` and `wait_for_store`.
    """
    from vmrag_link.sync import source_views

    with ws.sources.open_work_tree() as opened:
        if opened is None:
            raise reasons.explain_uninitialized(ws)
        contents = source_views.read_contents(opened.folder)
        files = sum(
            len(contents.tags.get(name, {}).keys() - contents.left_out.get(name, {}).keys())
            for name in opened.collections
        )
        commit, names, indexed = opened.commit, opened.collections, opened.indexed
    if wait:
        wait_for_store(ws)
    else:
        ws.chroma.start_following()
        wait_if_set(ws)
    chroma = ws.chroma.local
    return FilesReport(commit, files, names, indexed, chroma.read_state() if chroma.follows_files else None)


def _require_readable_pin(ws: Workspace) -> None:
    """In a fresh clone, whose pin says where the knowledge is: to fetch it would not help.

    Raises `PinMalformed`.
    """
    if not ws.is_initialized and (data := plumbing.read_pin_bytes(ws.places)) is not None:
        read_own_pin(ws.places, data)


def wait_for_store(ws: Workspace, *, lend: bool = False) -> Path:
    """The store of the bound index, of pinned documents and committed files only, as soon as it is
    there.

    `lend`: it is handed out, and stays for `LEASE_SECONDS` at least. Raises why there can be none,
    and `UsageInvalid` or `IndexExtraMissing` where it is off.
    """
    from vmrag_link.sync import chroma_builder  # a third of what a switch imports, and most do not wait
    from vmrag_link.workspace.committed_files import bind_files

    chroma_builder.require_chroma(ws.chroma.local)
    bind_files(ws)
    revision = None if ws.stores_nothing else ws.require_indexed_revision()
    if revision:
        with ws.reader.open_index(revision):
            pass  # one that does not verify was built again
    chroma, files = ws.chroma.local, ws.chroma.local.committed
    store = chroma.get_store(revision, files.view if files else "")
    if not store.views:
        raise _explain_empty_store(ws)
    return chroma_builder.provide_store(chroma, store, vectors=ws.read_vectors, progress=ws.progress, lend=lend)


def _explain_empty_store(ws: Workspace) -> VmragError:
    """Return why Chroma's store of a repository without stored documents would be empty."""
    if not ws.sources.configured:
        return reasons.explain_uninitialized(ws)
    setting = ws.config.chroma.sources
    if plumbing.read_head(ws.places).commit is None:
        return UsageInvalid("Chroma's store has committed files, and there is no commit yet.", hint="git commit")
    return UsageInvalid(
        f"no file of HEAD belongs in Chroma's store (chroma.sources: {setting}), and no documents are stored.",
        hint="git config vmrag.chroma.sources all" if setting != "all" else "vmrag sources",
    )


def wait_if_set(ws: Workspace) -> None:
    """Wait where `index.chroma` says so. Raises `IndexExtraMissing` where a store is wanted that
    cannot be made without the extra.
    """
    chroma = ws.chroma.local
    if (ws.binding is None and not chroma.follows_files) or chroma.mode == "off":
        return
    if chroma.mode == "wait":
        wait_for_store(ws)
    elif chroma.read_state().state != "ready":
        from vmrag_link.chroma import bindings

        bindings.require_supported()


def store_of_working_copy(ws: Workspace) -> Path:
    """A store of the documents as they are now, uncommitted ones and edited files included; as
    `wait_for_store` where there are none. It is made for this call, and stays while it is lent.
    """
    from vmrag_link.sync import chroma_builder
    from vmrag_link.workspace.committed_files import select_sources

    chroma_builder.require_chroma(ws.chroma.local)
    reader = ws.files.reader if ws.stores_nothing else ws.reader
    with contextlib.ExitStack() as until_built:
        with reader.view() as view:
            sources = view.sources if ws.chroma.local.rules else None
            if view.dirty or (sources and (sources.uncommitted or sources.removed)):
                kept = {source.collection for source in select_sources(ws, ws.sources.config).sources}
                unwanted = frozenset(sources.collections if sources else ()) - kept
                folders = (view.folder, *(view.more if sources else ()))
                opened = until_built.enter_context(chroma_builder.hold_views(*folders, leave_out=unwanted))
            else:
                opened = None
        if opened is not None:
            return chroma_builder.provide_held_store(
                ws.chroma.local, opened, vectors=ws.read_vectors, progress=ws.progress
            )
    return wait_for_store(ws, lend=True)


def wait_for_server(ws: Workspace) -> None:
    """Share the bound index, if there is a server and it is not there.

    What failed before is tried again. Raises why it cannot be done.
    """
    if ws.chroma.server is None or ws.config.chroma.share == "off" or ws.binding is None:
        return
    from vmrag_link.sync import chroma_sharing  # as above

    revision = ws.require_indexed_revision()
    with ws.reader.open_index(revision):
        pass  # one that does not verify was built again
    try:
        chroma_sharing.share_revision(ws.chroma.sharing, revision, ws.chroma.publisher, progress=ws.progress)
    except VmragError as error:
        ws.chroma.sharing.record_result(revision, chroma_sharing.NotShared(error.message, error.hint))
        raise
