"""Bring a work tree to its pin: build the index first, then switch everything at once, if HEAD and
the pin have not changed meanwhile. Then remove what is no longer needed: spare views and their
segments, old working copies, files of killed processes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vmrag_link import locks
from vmrag_link.engines import migrated
from vmrag_link.engines.base import Engine, is_readable
from vmrag_link.engines.own_branches import has_remembered_changes
from vmrag_link.errors import BranchInUse, Busy, GitBusy, GitRepositoryMissing
from vmrag_link.file_access import remove_stale_temporaries
from vmrag_link.git import folder_modes, git_operation, own_keys
from vmrag_link.git.run import unlock_hint
from vmrag_link.index import view, working
from vmrag_link.journal import CommitEntry, Journal
from vmrag_link.models import ChangeCounts, ChunkCounts, KbBranch, Record
from vmrag_link.paths import Places
from vmrag_link.sync import binding as bindings
from vmrag_link.sync import lease
from vmrag_link.sync.binding import Binding, Position
from vmrag_link.sync.chroma_state import ChromaState, SharingState
from vmrag_link.sync.context import Built, How, SyncContext
from vmrag_link.sync.target import (
    Attachment,
    State,
    Target,
    describe_left_revision,
    describe_stay,
    list_dirty_branches,
    read_trigger,
    resolve_target,
)

ATTEMPTS = 5
INDEX_LOCK_SECONDS = 2.0
POLL_SECONDS = 0.05


class ViewReport(Record, frozen=True):
    """The view that was bound, and how it was provided."""

    path: str
    how: How


class SyncReport(Record, frozen=True, rename={"from_": "from", "view": "snapshot"}):
    """The result of a sync.

    `from_` and `to` are revisions. `plan` counts the documents that differ between them. If `state`
    is not `pinned`, nothing changed.
    """

    state: State
    from_: str | None
    to: str | None
    plan: ChangeCounts
    chunks: ChunkCounts
    view: ViewReport | None
    seconds: dict[str, float]
    attachment: Attachment
    notes: tuple[str, ...] = ()
    """Notes about uncommitted documents and left revisions, beginning with stashed documents."""
    chroma: ChromaState | None = None
    """The state of Chroma's store, if the user requested this sync."""
    server: SharingState | None = None


def move_to_pin(context: SyncContext) -> tuple[str, ...]:
    """Move the KB branch to the pin, with its uncommitted documents, and leave the index for later.

    Returns notes for the user. Raises `GitBusy`, and `Busy` if another process is switching the
    work tree.
    """
    for _ in range(ATTEMPTS):
        if Position.read(context.places).is_followed:
            return ()
        folder_modes.prepare_folders(context.places)
        wait_for_git(context)
        target = resolve_target(context.places, context.engine, read_trigger(context.places))
        if target.state != "pinned":
            _report_unusable_pin(context, target)
            return ()
        result = _switch_work_tree(context, target, None) if _take_lease(context, target) else None
        if result is not None:
            return result[1]
    raise _build_unstable_error("the knowledge base was brought to the pin")


def reconcile(context: SyncContext, *, rebuild: bool = False) -> SyncReport:
    """Bring KB branch, index and binding to the pin.

    `rebuild`: build the view again, even if it exists.
    """
    from vmrag_link.sync import build

    started = time.perf_counter()
    folder_modes.prepare_folders(context.places)
    is_new = False
    for _ in range(ATTEMPTS):
        wait_for_git(context)
        trigger = read_trigger(context.places)
        bound = bindings.read_binding(context.places)
        target = resolve_target(context.places, context.engine, trigger, bound=bound.revision if bound else None)
        if target.state != "pinned":
            return _report_unusable_pin(context, target)
        built = (
            build.rebuild_view(context, target.revision)
            if rebuild
            else build.provide_view(context, target.revision, bases=build.list_bases(context, target))
        )
        rebuild = False
        is_new |= built.how != "reused"
        changes = _count_changes(context.engine, bound, target, built)
        if not is_new and _is_followed(context, target, built):  # another process was faster
            return _build_report(bound, target, built, changes, started)
        if not _take_lease(context, target):
            continue
        with context.views.lock_for_reading(built.path):  # other processes cannot evict it in this block
            result = None if context.views.find_problem(target.revision) else _switch_work_tree(context, target, built)
        if result is None:
            continue  # HEAD or the pin has moved, and the new view is kept as a spare, or the view was evicted
        if is_new:
            remove_leftovers(context)
        attachment, notes = result
        report = _build_report(bound, target, built, changes, started)
        return msgspec.structs.replace(report, attachment=attachment, notes=notes)
    raise _build_unstable_error("the index was brought up to date")


def _is_followed(context: SyncContext, target: Target, built: Built) -> bool:
    """Return whether the work tree is at the target and bound to this view, and its KB branch has
    not moved since the target was read.
    """
    if bindings.read_binding(context.places) != Binding(target.revision, built.path.name):
        return False  # as in nearly every sync
    position = Position.read(context.places)
    return position.is_followed and position.trigger == target.trigger and not _branch_changed(context.engine, target)


def _build_report(
    bound: Binding | None, target: Target, built: Built, changes: ChangeCounts, started: float
) -> SyncReport:
    """Return the report of a sync from the index that was bound before to the target. `started` is
    the time of its start.
    """
    return SyncReport(
        state="pinned",
        from_=bound.revision if bound else None,
        to=target.revision,
        plan=changes,
        chunks=built.chunks,
        view=ViewReport(str(built.path), built.how),
        seconds=built.seconds | {"total": round(time.perf_counter() - started, 4)},
        attachment=target.attachment,
    )


def _take_lease(context: SyncContext, target: Target) -> bool:
    """Return whether this work tree may move the target's KB branch, if it exists.

    Raises `GitRepositoryMissing`.
    """
    if target.kb_branch and target.trigger.symbolic and not target.has_own_branch:
        try:
            lease.take_lease(context.places, target.trigger.symbolic, timeout=context.lock_timeout)
        except BranchInUse:
            return False  # another work tree was faster, so this one only reads the documents
    if not context.places.git_dir.is_dir():  # the first lock in it would create it again
        raise GitRepositoryMissing(
            "the worktree was removed during the command.", hint="run 'git worktree list' to list the worktrees"
        )
    return True


def wait_for_git(context: SyncContext) -> None:
    """Wait while another git command locks the index. During a checkout the pin may be new while
    HEAD is still old. Raises `GitBusy`.
    """
    deadline = time.monotonic() + INDEX_LOCK_SECONDS
    while context.index_file is None and git_operation.is_index_locked(context.places):
        if time.monotonic() >= deadline:
            raise GitBusy(
                "another git command is running in this repository (index.lock exists).",
                hint=unlock_hint(context.places.git_dir / "index.lock"),
            )
        time.sleep(POLL_SECONDS)


def _report_unusable_pin(context: SyncContext, target: Target) -> SyncReport:
    """Return the report for a work tree without a usable pin, in which nothing changes.

    A missing pin is recorded as applied. For other states the next command tries again.
    """
    if target.state == "no_pin":
        with _lock_workspace(context):
            bindings.note_applied(context.places, target.trigger)
    bound = bindings.read_binding(context.places)
    revision = bound.revision if bound else None
    return SyncReport(
        state=target.state,
        from_=revision,
        to=revision,
        plan=ChangeCounts(),
        chunks=ChunkCounts(),
        view=None,
        seconds={},
        attachment="detached",
    )


def _count_changes(engine: Engine, bound: Binding | None, target: Target, built: Built) -> ChangeCounts:
    if bound is None:
        return built.changes
    revision = migrated.translate_revision(engine.folder, bound.revision)  # the index may be from before a migration
    if revision == target.revision:
        return ChangeCounts()
    return engine.count_changes(revision, target.revision) if is_readable(engine, revision) else built.changes


def _switch_work_tree(
    context: SyncContext, target: Target, built: Built | None
) -> tuple[Attachment, tuple[str, ...]] | None:
    """Move the KB branch and bind the work tree to the new view. Returns None if HEAD, pin or KB
    branch have changed.

    Without `built`, the bound index stays bound.
    """
    with _lock_workspace(context):
        if read_trigger(context.places) != target.trigger or _branch_changed(context.engine, target):
            return None
        staying = _describe_staying_documents(context, target)
        attachment, notes = _move_branch(context, target)
        if built:
            bindings.write_binding(context.places, Binding(target.revision, built.path.name), target.trigger)
        else:
            bindings.note_applied(context.places, target.trigger)
        return attachment, notes + staying


def _branch_changed(engine: Engine, target: Target) -> bool:
    """Return whether another process changed the KB branch while this one waited for the lock."""
    return target.kb_branch is not None and engine.find_branch(target.kb_branch.name) != target.kb_branch


def _lock_workspace(context: SyncContext) -> contextlib.AbstractContextManager[None]:
    return locks.hold_exclusive(
        context.places.workspace_lock, purpose="switch the workspace", timeout=context.lock_timeout
    )


def _move_branch(context: SyncContext, target: Target) -> tuple[Attachment, tuple[str, ...]]:
    """Move the KB branch to the pin, like a git branch in a reset, and return notes. The engine
    anchors its old head.
    """
    branch = target.kb_branch
    if branch is None or target.attachment in ("attached", "detached"):
        return target.attachment, ()
    if bindings.read_applied(context.places) == target.trigger or _is_being_committed(context.places, branch):
        # The branch moved, not the pin. Only 'vmrag pin' decides about that. Answers contain a note
        # about it (`describe_left_behind`).
        return target.attachment, ()
    bindings.forget_applied(context.places)
    if target.attachment == "held" or has_remembered_changes(context.engine):
        from vmrag_link.merging.replay import replay_branch  # rarely needed, and a checkout waits for imports

        journal = Journal(context.places.journal)
        with context.without_copy(branch.name, target.revision):
            replayed = replay_branch(
                context.engine,
                journal,
                branch,
                target.revision,
                timeout=context.lock_timeout,
                derived=context.derived,
            )
        if replayed.note:
            return "attached", (replayed.note,)
    else:
        with context.engine.write_lock("move a branch", timeout=context.lock_timeout):
            context.engine.move_branch(branch.name, target.revision, expected=branch.head)
    return "attached", (describe_left_revision(branch),) if _leaves_documents(
        context.engine, branch, target.revision
    ) else ()


def _leaves_documents(engine: Engine, branch: KbBranch, revision: str) -> bool:
    """Return whether the branch's former head has documents that the revision lacks. After a rebase
    it has none.

    Another branch that also has them does not matter: if a merge dropped them here, the merged
    branch still has them.
    """
    if engine.is_ancestor(branch.head, revision):
        return False
    from vmrag_link.merging.revisions import lacks_revision  # rarely needed, and a checkout waits for imports

    return lacks_revision(engine, revision, branch.head)


def _is_being_committed(places: Places, branch: KbBranch) -> bool:
    """Return whether a commit that is not pinned yet has moved the branch.
    `workspace.follow.recovery` needs the branch there to finish the commit.
    """
    entries = Journal(places.journal).list_entries()
    return any(
        isinstance(entry, CommitEntry) and entry.kb_branch == branch.name and entry.parent != branch.head
        for _, entry in entries
    )


def _describe_staying_documents(context: SyncContext, target: Target) -> tuple[str, ...]:
    """Return a note about uncommitted documents of the previous code branch, which stay there. git
    itself would have moved files to the new branch.
    """
    before = bindings.read_applied(context.places)
    elsewhere = list_dirty_branches(context.engine, target)
    if not elsewhere or before is None or before.branch is None:
        return ()
    if own_keys.find_kb_branch(context.places, before.branch) not in elsewhere:
        return ()
    return (describe_stay(before.branch),)


def _build_unstable_error(action: str) -> GitBusy:
    return GitBusy(
        f"HEAD or the pin moved {ATTEMPTS} times while {action}.", hint="run 'vmrag sync' after git has finished"
    )


def remove_leftovers(context: SyncContext) -> None:
    """Remove files of killed processes, spare views, and unneeded working copies and leases."""
    context.views.remove_unfinished()
    context.chroma.remove_leftovers()
    working.remove_unused_copies(context.places.working_copies, needed=lambda: set(list_needed_copies(context)))
    evict_views(context)
    remove_stale_temporaries(context.places.work_tree_folder, context.places.journal)
    lease.remove_stale_leases(context.places)


def evict_views(context: SyncContext) -> None:
    """Remove the spare views beyond the limit, except those that are being read, and the segments
    that no view uses.
    """
    places, segments = context.places, context.views.segments
    context.views.evict_spare(bound=lambda: bindings.list_bound_views(places), keep_bytes=context.keep_bytes)
    if places.source_views.is_dir():
        from vmrag_link.sync import source_views  # a checkout waits for imports

        source_views.evict_views(places, keep_bytes=context.keep_bytes)
    segments.remove_unfinished()
    segments.collect_garbage(places.view_folders)


def list_needed_copies(context: SyncContext) -> Iterator[Path]:
    """Yield the working copies for uncommitted documents of a code branch, and those with vectors
    of their own.
    """
    for branch in context.engine.list_branches():
        copy = context.working_copy(branch.name, branch.head)
        if branch.dirty or copy.holds_given_vectors:
            yield copy.path


def discard_views(context: SyncContext, target: Target, revision: str) -> None:
    """Mark the view of a revision whose segments could not be read, so that it is built again, and
    discard the working copy on it.

    Only segments that differ from their seal are built again. If all do, the view is removed.
    Raises `Busy` while another process reads it.
    """
    if target.kb_branch:
        copy = context.working_copy(target.kb_branch.name, revision)
        with copy.lock_for_writing():
            copy.remove_copy()
    distrust_view(context, revision)


def distrust_view(context: SyncContext, revision: str) -> None:
    """Mark the view of a revision, so that it is verified and built again. Raises `Busy` while
    another process reads it.
    """
    path = context.views.view_path(revision)
    view.require_verification(path)
    if not context.views.find_problem(revision) and not context.views.remove_if_unused(path):
        raise Busy(
            f"the index of {revision[:7]} cannot be rebuilt now, because another process reads it.",
            hint="run 'vmrag sync --rebuild' again after that process has finished",
            path=str(path),
        )
