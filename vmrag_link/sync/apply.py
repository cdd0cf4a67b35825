"""Bring a work tree to its pin: build the index first, then swap everything at once, if HEAD and
the pin still are what they were. Then remove what nothing needs any more: spare views and their
segments, old working copies, what killed processes left.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from vmrag_link import locks
from vmrag_link.engines import migrated
from vmrag_link.engines.base import Engine, has_remembered_changes, is_readable
from vmrag_link.errors import BranchInUse, Busy, GitBusy, GitRepositoryMissing
from vmrag_link.git import plumbing, sidecar_repo
from vmrag_link.git.run import unlock_hint
from vmrag_link.index import view, working
from vmrag_link.journal import CommitEntry, Journal
from vmrag_link.models import ChangeCounts, ChunkCounts, KbBranch, Record
from vmrag_link.paths import Places, remove_stale_temporaries
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


class SnapshotReport(Record, frozen=True):
    path: str
    how: How


class SyncReport(Record, frozen=True, rename={"from_": "from"}):
    """`from_` and `to` are revisions; `plan` counts documents that differ between them. `state`
    other than `pinned`: nothing changed.

    `notes` say what became of uncommitted documents and left revisions; that documents were set
    aside comes first. `chroma`: how its store stands, where somebody asked for this sync.
    """

    state: State
    from_: str | None
    to: str | None
    plan: ChangeCounts
    chunks: ChunkCounts
    snapshot: SnapshotReport | None
    seconds: dict[str, float]
    attachment: Attachment
    notes: tuple[str, ...] = ()
    chroma: ChromaState | None = None
    server: SharingState | None = None


def move_to_pin(context: SyncContext) -> tuple[str, ...]:
    """Bring the KB branch to the pin, with its uncommitted documents, and leave the index for
    later.

    Returns notes for a person. Raises `GitBusy`, and `Busy` where another process switches the work
    tree.
    """
    for _ in range(ATTEMPTS):
        if Position.read(context.places).is_followed:
            return ()
        sidecar_repo.prepare_folders(context.places)
        wait_for_git(context)
        target = resolve_target(context.places, context.engine, read_trigger(context.places))
        if target.state != "pinned":
            _stay(context, target)
            return ()
        swapped = _swap(context, target, None) if _take_lease(context, target) else None
        if swapped is not None:
            return swapped[1]
    raise _restless("the knowledge base was brought to the pin")


def reconcile(context: SyncContext, *, rebuild: bool = False) -> SyncReport:
    """Bring KB branch, index and binding to the pin.

    `rebuild`: with a view that is built anew, even if there is one.
    """
    from vmrag_link.sync import build

    started = time.perf_counter()
    sidecar_repo.prepare_folders(context.places)
    for _ in range(ATTEMPTS):
        wait_for_git(context)
        trigger = read_trigger(context.places)
        bound = bindings.read_binding(context.places)
        target = resolve_target(context.places, context.engine, trigger, bound=bound.revision if bound else None)
        if target.state != "pinned":
            return _stay(context, target)
        built = (
            build.rebuild_view(context, target.revision)
            if rebuild
            else build.provide_view(context, target.revision, bases=build.list_bases(context, target))
        )
        rebuild = False
        changes = _changes(context.engine, bound, target, built)
        if not _take_lease(context, target):
            continue
        with context.views.lock_for_reading(built.path):  # from here on nobody evicts it
            swapped = None if context.views.find_problem(target.revision) else _swap(context, target, built)
        if swapped is None:
            continue  # HEAD or the pin moved meanwhile, and what was built stays as a spare; or it was evicted already
        remove_leftovers(context)
        attachment, notes = swapped
        return SyncReport(
            state="pinned",
            from_=bound.revision if bound else None,
            to=target.revision,
            plan=changes,
            chunks=built.chunks,
            snapshot=SnapshotReport(str(built.path), built.how),
            seconds=built.seconds | {"total": round(time.perf_counter() - started, 4)},
            attachment=attachment,
            notes=notes,
        )
    raise _restless("the index was brought up to date")


def _take_lease(context: SyncContext, target: Target) -> bool:
    """Whether this work tree may move the target's KB branch, if there is one.

    Raises `GitRepositoryMissing`.
    """
    if target.kb_branch and target.trigger.symbolic and not target.has_own_branch:
        try:
            lease.take_lease(context.places, target.trigger.symbolic, timeout=context.lock_timeout)
        except BranchInUse:
            return False  # another work tree was faster: here its documents are only read
    if not context.places.git_dir.is_dir():  # and would be made again, by the first lock in it
        raise GitRepositoryMissing("The work tree was removed meanwhile.", hint="git worktree list")
    return True


def wait_for_git(context: SyncContext) -> None:
    """Wait while another git command holds the index: during a checkout the pin may be new and HEAD
    still old. Raises `GitBusy`.
    """
    deadline = time.monotonic() + INDEX_LOCK_SECONDS
    while context.index_file is None and plumbing.is_index_locked(context.places):
        if time.monotonic() >= deadline:
            raise GitBusy(
                "Another git command works in this repository (index.lock is there).",
                hint=unlock_hint(context.places.git_dir / "index.lock"),
            )
        time.sleep(POLL_SECONDS)


def _stay(context: SyncContext, target: Target) -> SyncReport:
    """Without a usable pin everything stays where it is.

    No pin at all counts as applied; else the next command looks again.
    """
    if target.state == "no_pin":
        with _switching(context):
            bindings.note_applied(context.places, target.trigger)
    bound = bindings.read_binding(context.places)
    stands = bound.revision if bound else None
    return SyncReport(target.state, stands, stands, ChangeCounts(), ChunkCounts(), None, {}, "detached")


def _changes(engine: Engine, bound: Binding | None, target: Target, built: Built) -> ChangeCounts:
    if bound is None:
        return built.changes
    stood = migrated.translate_revision(engine.folder, bound.revision)  # the index may be of the engine of before
    if stood == target.revision:
        return ChangeCounts()
    return engine.count_changes(stood, target.revision) if is_readable(engine, stood) else built.changes


def _swap(context: SyncContext, target: Target, built: Built | None) -> tuple[Attachment, tuple[str, ...]] | None:
    """Move the KB branch, and bind the work tree to what was built; None when HEAD, pin or KB
    branch are no longer what they were.

    Without `built` the bound index stays bound.
    """
    with _switching(context):
        if read_trigger(context.places) != target.trigger or _branch_changed(context.engine, target):
            return None
        stay = _documents_that_stay(context, target)
        attachment, notes = _move_branch(context, target)
        if built:
            bindings.write_binding(context.places, Binding(target.revision, built.path.name), target.trigger)
        else:
            bindings.note_applied(context.places, target.trigger)
        return attachment, notes + stay


def _branch_changed(engine: Engine, target: Target) -> bool:
    """Whether another process has changed the KB branch while this one waited for the lock."""
    return target.kb_branch is not None and engine.find_branch(target.kb_branch.name) != target.kb_branch


def _switching(context: SyncContext) -> contextlib.AbstractContextManager[None]:
    return locks.hold_exclusive(
        context.places.workspace_lock, purpose="switch the workspace", timeout=context.lock_timeout
    )


def _move_branch(context: SyncContext, target: Target) -> tuple[Attachment, tuple[str, ...]]:
    """Let the KB branch follow the pin, as a git branch follows a reset; the engine anchors its old
    head. Returns notes, too.
    """
    branch = target.kb_branch
    if branch is None or target.attachment in ("attached", "detached"):
        return target.attachment, ()
    if bindings.read_applied(context.places) == target.trigger or _being_committed(context.places, branch):
        # The pin did not move, the branch did: 'vmrag pin' decides, not we. Answers say so
        # (`left_behind`).
        return target.attachment, ()
    bindings.forget_applied(context.places)
    if target.attachment == "held" or has_remembered_changes(context.engine):
        from vmrag_link.merging.replay import replay_branch  # rarely needed, and a checkout waits for imports

        journal = Journal(context.places.journal)
        with context.without_copy(branch.name, target.revision):
            carried = replay_branch(
                context.engine,
                journal,
                branch,
                target.revision,
                timeout=context.lock_timeout,
                derived=context.derived,
            )
        if carried.note:
            return "attached", (carried.note,)
    else:
        with context.engine.write_lock("move a branch", timeout=context.lock_timeout):
            context.engine.move_branch(branch.name, target.revision, expected=branch.head)
    return "attached", (describe_left_revision(branch),) if _leaves_documents(
        context.engine, branch, target.revision
    ) else ()


def _leaves_documents(engine: Engine, branch: KbBranch, revision: str) -> bool:
    """Whether the branch's former head holds what the revision lacks: after a rebase it does not.

    That another branch holds it, too, says nothing: where a merge dropped it here, the branch that
    was merged does.
    """
    if engine.is_ancestor(branch.head, revision):
        return False
    from vmrag_link.merging.revisions import lacks_revision  # rarely needed, and a checkout waits for imports

    return lacks_revision(engine, revision, branch.head)


def _being_committed(places: Places, branch: KbBranch) -> bool:
    """Whether a commit that is not pinned yet has moved the branch; to finish it,
    `ops.follow.recovery` needs the branch there.
    """
    entries = Journal(places.journal).list_entries()
    return any(
        isinstance(entry, CommitEntry) and entry.kb_branch == branch.name and entry.parent != branch.head
        for _, entry in entries
    )


def _documents_that_stay(context: SyncContext, target: Target) -> tuple[str, ...]:
    """Uncommitted documents stay with the code branch that HEAD comes from; git itself would have
    carried files along.
    """
    before = bindings.read_applied(context.places)
    elsewhere = list_dirty_branches(context.engine, target)
    if not elsewhere or before is None or before.branch is None:
        return ()
    if plumbing.find_kb_branch(context.places, before.branch) not in elsewhere:
        return ()
    return (describe_stay(before.branch),)


def _restless(meanwhile: str) -> GitBusy:
    return GitBusy(
        f"HEAD or the pin moved {ATTEMPTS} times while {meanwhile}.", hint="Run 'vmrag sync' when git has finished."
    )


def remove_leftovers(context: SyncContext) -> None:
    """Remove what killed processes left, spare views, and working copies and leases that nothing
    needs any more.
    """
    context.views.remove_unfinished()
    context.chroma.remove_leftovers()
    working.remove_unused_copies(context.places.working_copies, needed=lambda: set(list_needed_copies(context)))
    evict_views(context)
    remove_stale_temporaries(context.places.work_tree_folder, context.places.journal)
    lease.remove_stale_leases(context.places)


def evict_views(context: SyncContext) -> None:
    """Remove the spare views beyond the limit, but for those that are being read, and the segments
    that no view counts any more.
    """
    places, segments = context.places, context.views.segments
    context.views.evict_spare(bound=lambda: bindings.list_bound_views(places), keep_bytes=context.keep_bytes)
    if places.source_views.is_dir():
        from vmrag_link.sync import source_views  # a checkout waits for imports

        source_views.evict_views(places, keep_bytes=context.keep_bytes)
    segments.remove_unfinished()
    segments.collect_garbage(places.view_folders)


def list_needed_copies(context: SyncContext) -> Iterator[Path]:
    """The working copies that some code branch's uncommitted documents need, and those with vectors
    of their own.
    """
    for branch in context.engine.list_branches():
        copy = context.working_copy(branch.name, branch.head)
        if branch.dirty or copy.holds_given_vectors:
            yield copy.path


def discard_views(context: SyncContext, target: Target, revision: str) -> None:
    """Let the view of a revision, whose segments could not be read, be built again, and the working
    copy that stands on it.

    Segments that are not as they were sealed are built again alone. If all are, the view goes.
    Raises `Busy` while somebody reads it.
    """
    if target.kb_branch:
        copy = context.working_copy(target.kb_branch.name, revision)
        with copy.lock_for_writing():
            copy.remove_copy()
    distrust_view(context, revision)


def distrust_view(context: SyncContext, revision: str) -> None:
    """As `throw_away`, of the revision's view alone."""
    path = context.views.view_path(revision)
    view.require_verification(path)
    if not context.views.find_problem(revision) and not context.views.remove_if_unused(path):
        raise Busy(
            f"The index of {revision[:7]} cannot be built again now: another process reads it.",
            hint="Run 'vmrag sync --rebuild' again when that has finished.",
            path=str(path),
        )
