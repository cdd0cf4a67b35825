"""Make a work tree stand where its pin says: index built first, then everything swapped at once, if HEAD still is where it was."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vmrag_link import locks
from vmrag_link.engines.base import Engine
from vmrag_link.errors import BranchInUse, Busy, GitBusy, GitRepositoryMissing, quoted
from vmrag_link.git import plumbing, sharing
from vmrag_link.index import working
from vmrag_link.index.snapshots import Snapshot, Snapshots
from vmrag_link.index.working import WorkingCopy
from vmrag_link.journal import CommitEntry, Journal
from vmrag_link.models import ChangeCounts, KbBranch, Record
from vmrag_link.paths import Places, sweep_temporaries
from vmrag_link.progress import Progress
from vmrag_link.sync import binding as bindings
from vmrag_link.sync import lease
from vmrag_link.sync.binding import Binding
from vmrag_link.sync.build import Base, Built, How, snapshot
from vmrag_link.sync.counts import ChunkCounts
from vmrag_link.sync.target import Attachment, State, Target, read_trigger, resolve

if TYPE_CHECKING:
    from vmrag_link.sync.indexer import Indexer

ATTEMPTS = 5
INDEX_LOCK_SECONDS = 2.0
POLL_SECONDS = 0.05


class SyncContext(NamedTuple):
    """What a sync works on: one work tree, its knowledge base and the snapshots."""

    places: Places
    index_file: Path | None
    engine: Engine
    shelf: Snapshots
    keep: int
    lock_timeout: float
    bringer: Callable[[], Indexer]
    progress: Progress


class SnapshotReport(Record, frozen=True):
    path: str
    how: How


class SyncReport(Record, frozen=True, rename={"from_": "from"}):
    """`from_` and `to` are revisions; `plan` counts documents that differ between them. `state` other than `pinned`: nothing changed.

    `notes` say what became of uncommitted documents and left revisions; that documents were set aside comes first.
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


def settled(parts: SyncContext) -> bool:
    """Whether there is nothing to do: the applied pair is the present one, and the snapshot of its revision can be served."""
    bound = bindings.read(parts.places)
    if bound is None or not moved(parts) or bound.revision != bindings.standing_revision(parts.places):
        return False
    return not parts.shelf.problem(bound.revision)


def moved(parts: SyncContext) -> bool:
    """Whether the knowledge base has followed HEAD and the pin; the index may be behind."""
    return bindings.applied(parts.places) == read_trigger(parts.places)


def move(parts: SyncContext) -> tuple[str, ...]:
    """Bring the KB branch to the pin, with its uncommitted documents; the index is left to whoever needs it next.

    Returns what a person should know about it. Raises `GitBusy`, and `Busy` where another process switches the work tree.
    """
    for _ in range(ATTEMPTS):
        if moved(parts):
            return ()
        sharing.prepare(parts.places)
        wait_for_git(parts)
        target = resolve(parts.places, parts.engine, read_trigger(parts.places))
        if target.state != "pinned":
            _unapplied(parts, target)
            return ()
        swapped = _swap(parts, target, None) if _leased(parts, target) else None
        if swapped is not None:
            return swapped[1]
    raise _moving("the knowledge base was brought to the pin")


def reconcile(parts: SyncContext, *, rebuild: bool = False) -> SyncReport:
    """Bring KB branch, index and binding to the pin. `rebuild`: with a snapshot that is built anew, even if there is one."""
    started = time.perf_counter()
    sharing.prepare(parts.places)
    for _ in range(ATTEMPTS):
        wait_for_git(parts)
        trigger = read_trigger(parts.places)
        bound = bindings.read(parts.places)
        target = resolve(parts.places, parts.engine, trigger, bound=bound.revision if bound else None)
        if target.state != "pinned":
            return _unapplied(parts, target)
        built = (
            _rebuilt(parts, target.revision) if rebuild else provide(parts, target.revision, bases=bases(parts, target))
        )
        rebuild = False
        changes = _changes(parts.engine, bound, target, built)
        if not _leased(parts, target):
            continue
        with parts.shelf.reading(built.path):  # from here on nobody evicts it
            swapped = None if parts.shelf.problem(target.revision) else _swap(parts, target, built)
        if swapped is None:
            continue  # HEAD or the pin moved meanwhile, and what was built stays as a spare; or it was evicted already
        tidy(parts)
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
    raise _moving("the index was brought up to date")


def _moving(meanwhile: str) -> GitBusy:
    return GitBusy(
        f"HEAD or the pin moved {ATTEMPTS} times while {meanwhile}.", hint="Run 'vmrag sync' when git has finished."
    )


def _leased(parts: SyncContext, target: Target) -> bool:
    """Whether the target's KB branch, if there is one, is this work tree's to move. Raises `GitRepositoryMissing`."""
    if target.kb_branch and target.trigger.symbolic:
        try:
            lease.take(parts.places, target.trigger.symbolic, timeout=parts.lock_timeout)
        except BranchInUse:
            return False  # another work tree was faster: here its documents are only read
    if not parts.places.git_dir.is_dir():  # and would be made again, by the first lock in it
        raise GitRepositoryMissing("The work tree was removed meanwhile.", hint="git worktree list")
    return True


def provide(parts: SyncContext, revision: str, *, bases: Iterable[Base]) -> Built:
    """A usable snapshot of the revision, made from the nearest base where there is none; says so if one is there that is damaged."""
    problem = parts.shelf.problem(revision)
    if problem and parts.shelf.path(revision).is_dir():
        parts.progress.note(f"The index of {revision[:7]} does not verify: {problem}. It is built again.")
    return snapshot(revision, engine=parts.engine, shelf=parts.shelf, bases=bases, bringer=parts.bringer)


def _rebuilt(parts: SyncContext, revision: str) -> Built:
    """A snapshot that owes nothing to any other. The one in whose place it comes answers until it is complete. Raises `Busy`."""
    return snapshot(
        revision, engine=parts.engine, shelf=parts.shelf, bases=[], bringer=parts.bringer, instead=parts.lock_timeout
    )


def throw_away(parts: SyncContext, target: Target, revision: str) -> None:
    """The snapshot of a revision, and the working copy that stands on it. Raises `Busy` while somebody reads them."""
    if target.kb_branch:
        copy = working_copy(parts, target.kb_branch.name, revision)
        with copy.writing():
            copy.drop()
    path = parts.shelf.path(revision)
    if not parts.shelf.discard(path):
        raise Busy(
            f"The index of {revision[:7]} cannot be built again now: another process reads it.",
            hint="Run 'vmrag sync --rebuild' again when that has finished.",
            path=str(path),
        )


def wait_for_git(parts: SyncContext) -> None:
    """While a checkout runs, the pin may be the target's already and HEAD still the old branch. Raises `GitBusy`."""
    deadline = time.monotonic() + INDEX_LOCK_SECONDS
    while parts.index_file is None and plumbing.index_locked(parts.places):
        if time.monotonic() >= deadline:
            raise GitBusy(
                "Another git command works in this repository (index.lock is there).",
                hint=f"Wait for it; if none is running: rm {quoted(parts.places.git_dir / 'index.lock')}",
            )
        time.sleep(POLL_SECONDS)


def _unapplied(parts: SyncContext, target: Target) -> SyncReport:
    """Without a usable pin everything stays where it is. Without any pin, that is settled; else the next command looks again."""
    if target.state == "no_pin":
        with _switching(parts):
            bindings.note_applied(parts.places, target.trigger)
    bound = bindings.read(parts.places)
    stands = bound.revision if bound else None
    return SyncReport(target.state, stands, stands, ChangeCounts(), ChunkCounts(), None, {}, "detached")


def bases(parts: SyncContext, target: Target | None = None) -> Iterator[Base]:
    """Indexes to start from, the likeliest first; looked for only when something has to be built.

    `target`: its KB branch's working copy may have become its revision.
    """

    def holding(each: Snapshot) -> Callable[[], contextlib.AbstractContextManager[str]]:
        @contextlib.contextmanager
        def hold() -> Iterator[str]:
            with parts.shelf.reading(each.path):
                yield parts.shelf.problem(each.revision)

        return hold

    bound = bindings.read(parts.places)
    usable = [each for each in parts.shelf.all() if each.settings == parts.shelf.settings]
    usable = [each for each in usable if not parts.shelf.problem(each.revision)]
    usable.sort(key=lambda each: bound is None or each.path.name != bound.snapshot)
    if target and (copy := _committed_working_copy(parts, target)):
        yield copy
    yield from (Base(each.path, each.revision, holding(each)) for each in usable)


def _committed_working_copy(parts: SyncContext, target: Target) -> Base | None:
    """The working copy whose uncommitted documents have become the target revision: it has its chunks already."""
    if target.kb_branch is None or target.attachment != "attached":
        return None
    for parent in parts.engine.info(target.revision).parents[:1]:
        copy = working_copy(parts, target.kb_branch.name, parent)
        if copy.path.is_dir() and not copy.problem() and not copy.altered:
            return Base(copy.path, parent, copy.reading)
    return None


def living_copies(parts: SyncContext) -> Iterator[Path]:
    """The working copies that some code branch's uncommitted documents need, and those with vectors of their own."""
    for branch in parts.engine.branches():
        copy = working_copy(parts, branch.name, branch.head)
        if branch.dirty or copy.altered:
            yield copy.path


def working_copy(parts: SyncContext, kb_branch: str, base: str) -> WorkingCopy:
    return WorkingCopy(
        parts.places.working_copies,
        kb_branch=kb_branch,
        base=base,
        settings=parts.shelf.settings,
        timeout=parts.lock_timeout,
    )


@contextlib.contextmanager
def forgotten_copy(parts: SyncContext, kb_branch: str, base: str) -> Iterator[None]:
    """For who changes uncommitted documents without their index: what lies there, from an earlier time say, is thrown away."""
    copy = working_copy(parts, kb_branch, base)
    with copy.writing():
        copy.drop()
        yield


def _changes(engine: Engine, bound: Binding | None, target: Target, built: Built) -> ChangeCounts:
    if bound is None or bound.revision == target.revision:
        return built.changes if bound is None else ChangeCounts()
    return (
        engine.count_changes(bound.revision, target.revision) if engine.has_revision(bound.revision) else built.changes
    )


def _swap(parts: SyncContext, target: Target, built: Built | None) -> tuple[Attachment, tuple[str, ...]] | None:
    """Move the KB branch, and bind the workspace to what was built; None when HEAD, pin or KB branch are no longer what they were.

    Nothing `built`: the index that is bound stays bound.
    """
    with _switching(parts):
        if read_trigger(parts.places) != target.trigger or _branch_changed(parts.engine, target):
            return None
        stay = _stay_behind(parts, target)
        attachment, notes = _settle_branch(parts, target)
        if built:
            bindings.write(parts.places, Binding(target.revision, built.path.name), target.trigger)
        else:
            bindings.note_applied(parts.places, target.trigger)
        return attachment, notes + stay


def _branch_changed(engine: Engine, target: Target) -> bool:
    """Another process has moved it, say, while this one waited for the lock."""
    return target.kb_branch is not None and engine.branch(target.kb_branch.name) != target.kb_branch


def _switching(parts: SyncContext) -> contextlib.AbstractContextManager[None]:
    return locks.exclusive(parts.places.workspace_lock, purpose="switch the workspace", timeout=parts.lock_timeout)


def _settle_branch(parts: SyncContext, target: Target) -> tuple[Attachment, tuple[str, ...]]:
    """The KB branch follows the pin, like a git branch follows a reset; the engine anchors its old head."""
    branch = target.kb_branch
    if branch is None or target.attachment in ("attached", "detached"):
        return target.attachment, ()
    if bindings.applied(parts.places) == target.trigger or _being_committed(parts.places, branch):
        # The pin did not move, the branch did: 'vmrag pin' decides, not we. Who answers says so (`left_behind`).
        return target.attachment, ()
    bindings.forget_applied(parts.places)
    if target.attachment == "held":
        from vmrag_link.merging.replay import replay  # rarely needed, and a checkout waits for imports

        journal = Journal(parts.places.journal)
        with forgotten_copy(parts, branch.name, target.revision):
            carried = replay(parts.engine, journal, branch, target.revision, timeout=parts.lock_timeout)
        return "attached", (carried.note,)
    with parts.engine.writing("move a branch", timeout=parts.lock_timeout):
        parts.engine.move_branch(branch.name, target.revision, expected=branch.head)
    if parts.engine.is_ancestor(branch.head, target.revision):
        return "attached", ()
    return "attached", (
        f"{branch.name!r} left revision {branch.head[:7]}, which is kept. To go back: vmrag pin {branch.head}",
    )


def _being_committed(places: Places, branch: KbBranch) -> bool:
    """Whether a commit that was not pinned yet has moved the branch: whoever finishes it (`ops.follow.recovery`) needs it there."""
    entries = Journal(places.journal).entries()
    return any(
        isinstance(entry, CommitEntry) and entry.kb_branch == branch.name and entry.parent != branch.head
        for _, entry in entries
    )


def _stay_behind(parts: SyncContext, target: Target) -> tuple[str, ...]:
    """Uncommitted documents stay with the code branch that HEAD comes from; git itself would have carried files along."""
    before = bindings.applied(parts.places)
    elsewhere = dirty_elsewhere(parts.engine, target)
    if not elsewhere or before is None or before.branch is None:
        return ()
    if plumbing.kb_branch_of(parts.places, before.branch) not in elsewhere:
        return ()
    there = quoted(before.branch)
    return (f"uncommitted documents stay with {before.branch!r}; they are there again after: git switch {there}",)


def dirty_elsewhere(engine: Engine, target: Target) -> list[str]:
    """KB branches with uncommitted documents, but for the target's own."""
    own = target.kb_branch.name if target.kb_branch else None
    return [each.name for each in engine.branches() if each.dirty and each.name != own]


def left_behind(target: Target) -> tuple[str, ...]:
    """What of HEAD's KB branch the pin does not show, with the command that brings it back."""
    branch = target.kb_branch
    if branch is None or target.attachment not in ("held", "behind"):
        return ()
    what = held(branch, target.revision) if target.attachment == "held" else unpinned(branch, target.revision)
    return (f"{what} To go back there: {way_back(branch)} (and here again: vmrag pin {target.revision})",)


def held(branch: KbBranch, pinned: str) -> str:
    return f"Uncommitted documents of {branch.name!r} were written on revision {branch.head[:7]}, while the pin names {pinned[:7]}."


def unpinned(branch: KbBranch, pinned: str) -> str:
    return f"KB branch {branch.name!r} is at {branch.head[:7]}, while the pin names {pinned[:7]}."


def way_back(branch: KbBranch) -> str:
    """The command after which the pin names the branch's head again."""
    return f"vmrag pin {branch.head}" if branch.dirty else "vmrag pin"


def tidy(parts: SyncContext) -> None:
    """Remove what killed processes left, spare snapshots, and working copies and leases that nothing needs any more."""
    parts.shelf.sweep()
    evict(parts)
    working.sweep(parts.places.working_copies, needed=lambda: set(living_copies(parts)))
    sweep_temporaries(parts.places.own, parts.places.journal)
    lease.sweep(parts.places)


def evict(parts: SyncContext) -> None:
    """Remove the spare snapshots beyond the limit, but for those that are being read."""
    parts.shelf.evict(bound=lambda: bound_snapshots(parts.places, parts.shelf), keep=parts.keep)


def bound_snapshots(places: Places, shelf: Snapshots) -> set[Path]:
    """Those that some work tree answers from."""
    return {shelf.root / name for name in bindings.bound_everywhere(places)}
