"""Bring KB branch and index to the pin on request, and wait for copies of the index.

`vmrag sync` calls `sync_to_pin`, or `sync_files` in a repository without stored documents. Unlike
`follow_pin.follow`, both raise the reason if that is impossible. The index has two copies, which
background processes build: Chroma's store on this machine, and the index on a Chroma server. The
functions `wait_…` wait until they exist. `vmrag path` and the hooks call them as well.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vmrag_link.errors import UsageInvalid, VmragError
from vmrag_link.git import plumbing
from vmrag_link.models import ChangeCounts, ChunkCounts, Record
from vmrag_link.sync.target import Target, describe_left_behind, read_own_pin
from vmrag_link.workspace import Workspace, reasons
from vmrag_link.workspace.follow import lazy_fetch
from vmrag_link.workspace.follow.recovery import recover

if TYPE_CHECKING:
    from vmrag_link.sync.apply import SyncReport
    from vmrag_link.sync.chroma_state import ChromaState


def sync_to_pin(ws: Workspace, *, rebuild: bool = False, wait: bool = False) -> SyncReport:
    """Bring KB branch and index to the pin. Return what changed. Its notes are printed.

    `rebuild`: build the index again, even if it is current. `wait`: wait until Chroma's store
    exists, and until the index is on the Chroma server of the settings. The settings
    `index.chroma: wait` and `chroma.share: wait` also request this.

    Raises `PinMissing`, `PinMalformed` or `PinRevisionMissing` if the pin cannot be followed. Then
    the index continues to answer. Raises the reason if Chroma's store or server cannot be used.
    """
    if not ws.is_initialized:
        pin_bytes = plumbing.read_pin_bytes(ws.places)
        if pin_bytes is not None:
            read_own_pin(ws.places, pin_bytes)  # raises `PinMalformed`, because a fetch needs the pin
    lazy_fetch.fetch_pinned(ws, insist=True)
    recover(ws)
    report = ws.bring_to_pin(rebuild=rebuild)
    target = ws.resolve_target()
    if target.state != "pinned":
        raise reasons.explain_unusable(ws, target)
    if report is None:
        report = _report_no_change(ws, target)
    unpinned_notes = describe_left_behind(target)  # content of the KB branch that the pin lacks
    for note in unpinned_notes:
        ws.progress.note(note)
    report = msgspec.structs.replace(report, notes=report.notes + unpinned_notes)
    with ws.reader.view():
        pass  # opening the view also repairs the working copy, if there are uncommitted documents
    uses_server_only = ws.chroma.local.mode == "off" and ws.chroma.server
    if wait and not uses_server_only:
        wait_for_store(ws)
    else:
        wait_if_set(ws)
    if wait or ws.config.chroma.share == "wait":
        wait_for_server(ws)
    server = ws.chroma.sharing.read_state() if ws.chroma.server else None
    return msgspec.structs.replace(report, chroma=ws.chroma.local.read_state(), server=server)


def _report_no_change(ws: Workspace, target: Target) -> SyncReport:
    from vmrag_link.sync import apply  # callers that only wait for Chroma's store do not need it
    from vmrag_link.sync.apply import SyncReport, ViewReport

    apply.remove_leftovers(ws.sync_context)  # a process may have been killed after the switch
    revision = ws.require_revision()
    return SyncReport(
        state="pinned",
        from_=revision,
        to=revision,
        plan=ChangeCounts(),
        chunks=ChunkCounts(),
        view=ViewReport(str(ws.views.view_path(revision)), "reused"),
        seconds={},
        attachment=target.attachment,
    )


class FilesReport(Record, frozen=True):
    """The state of the index in a repository without stored documents."""

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
    """Build the index of the files of the work tree.

    `wait`: also wait until Chroma's store has the files of the commit. Raises `NotInitialized` if
    no file is a document, and the errors of `SourceIndex.open_work_tree` and `wait_for_store`.
    """
    from vmrag_link.sync import source_views

    with ws.source_index.open_work_tree() as opened:
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


def wait_for_store(ws: Workspace, *, lend: bool = False) -> Path:
    """Build Chroma's store of the pinned documents and committed files, or wait for its builder.

    Return the path of the store. `lend`: another program will read it, so it stays for at least
    `chroma.stores.LEASE_SECONDS`. Raises the reason if it cannot be built, and `UsageInvalid` or
    `IndexExtraMissing` if the setting `index.chroma` is off.
    """
    from vmrag_link.sync import chroma_builder  # a third of what a switch imports, and most switches do not wait
    from vmrag_link.workspace.committed_files import bind_files

    chroma_builder.require_chroma(ws.chroma.local)
    bind_files(ws)
    revision = None if ws.stores_nothing else ws.require_indexed_revision()
    if revision:
        with ws.reader.open_index(revision):
            pass  # an index that does not verify was rebuilt
    chroma = ws.chroma.local
    files = chroma.committed
    store = chroma.get_store(revision, files.view if files else "")
    if not store.views:
        raise _explain_empty_store(ws)
    return chroma_builder.provide_store(chroma, store, vectors=ws.read_vectors, progress=ws.progress, lend=lend)


def _explain_empty_store(ws: Workspace) -> VmragError:
    """Return why Chroma's store of a repository without stored documents would be empty."""
    if not ws.sources.configured:
        return reasons.explain_uninitialized(ws)
    if plumbing.read_head(ws.places).commit is None:
        return UsageInvalid(
            "cannot build Chroma's store: this repository has no commit yet.",
            hint="run 'git commit' to make the first commit",
        )
    setting = ws.config.chroma.sources
    hint = "run 'git config vmrag.chroma.sources all'"
    if setting == "all":
        hint = "run 'vmrag sources' to list the files of the sources"
    return UsageInvalid(
        f"no file of HEAD belongs in Chroma's store (chroma.sources: {setting}), and no documents are stored.",
        hint=hint,
    )


def wait_if_set(ws: Workspace) -> None:
    """Wait for Chroma's store if the setting `index.chroma` is `wait`.

    Raises `IndexExtraMissing` if a store is enabled and the extra is missing.
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
    """Build a store that includes uncommitted documents and edited files, and return its path.

    If there are none, return the store of `wait_for_store`. Both stay for at least
    `chroma.stores.LEASE_SECONDS`.
    """
    from vmrag_link.sync import chroma_builder
    from vmrag_link.workspace.committed_files import select_sources

    chroma_builder.require_chroma(ws.chroma.local)
    chroma = ws.chroma.local
    reader = ws.files.reader if ws.stores_nothing else ws.reader
    with contextlib.ExitStack() as until_built:
        changed_views = None
        with reader.view() as view:  # its lock is released before the store is built
            sources = view.sources if chroma.rules else None
            if view.dirty or (sources and (sources.uncommitted or sources.removed)):
                collections = {source.collection for source in select_sources(ws, ws.sources.config).sources}
                unwanted = frozenset(sources.collections if sources else ()) - collections
                folders = (view.folder, *view.more) if sources else (view.folder,)
                changed_views = until_built.enter_context(chroma_builder.hold_views(*folders, leave_out=unwanted))
        if changed_views is not None:
            return chroma_builder.provide_held_store(
                chroma, changed_views, vectors=ws.read_vectors, progress=ws.progress
            )
    return wait_for_store(ws, lend=True)


def wait_for_server(ws: Workspace) -> None:
    """Put the index of this work tree on the Chroma server, if there is one and it lacks the index.

    An attempt that failed in the background is repeated. Raises the reason if it fails again.
    """
    if ws.chroma.server is None or ws.config.chroma.share == "off" or ws.binding is None:
        return
    from vmrag_link.sync import chroma_sharing  # callers that only sync do not need it

    revision = ws.require_indexed_revision()
    with ws.reader.open_index(revision):
        pass  # an index that does not verify was rebuilt
    try:
        chroma_sharing.share_revision(ws.chroma.sharing, revision, ws.chroma.publisher, progress=ws.progress)
    except VmragError as error:
        ws.chroma.sharing.record_result(revision, chroma_sharing.NotShared(error.message, error.hint))
        raise
