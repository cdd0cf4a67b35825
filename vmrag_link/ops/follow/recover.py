"""Finish what a killed command began, and only then look at the pin."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from vmrag_link import locks
from vmrag_link.engines.base import ASIDE_PREFIX
from vmrag_link.errors import (
    Busy,
    EngineUnwritable,
    FileSystemError,
    GitBusy,
    GitFailed,
    IndexFailed,
    LimitExceeded,
    LimitTooLow,
    RowsInvalid,
    file_failures,
    quoted,
    shortened,
)
from vmrag_link.git import pin_merge, plumbing, worktrees
from vmrag_link.journal import CommitEntry, Entry, ReplayEntry
from vmrag_link.ops.follow import lazy_fetch
from vmrag_link.ops.pins import pinning
from vmrag_link.sync import apply, background
from vmrag_link.sync.apply import SyncReport
from vmrag_link.workspace import Workspace

ATTEMPTS = 3

T = TypeVar("T")


def reconciled(ws: Workspace) -> SyncReport | None:
    """Finish or report interrupted commits, then bring the workspace to its pin; None when that was not needed.

    All that a person should know has been said when this returns.
    """
    _prepare(ws)
    return ws.reconcile()


def move(ws: Workspace) -> None:
    """As `reconciled`, for what needs the documents and no index: nothing is built, and nobody waits for what is being built."""
    _prepare(ws)
    ws.move()


def _prepare(ws: Workspace) -> None:
    lazy_fetch.bring(ws)
    recover(ws)
    background.tell(ws.places, ws.progress.note)


def reconciled_for_reading(ws: Workspace) -> None:
    """As `reconciled`, but what was applied last goes on answering while another git command holds the repository, and when a
    sync in the background takes longer than `hooks.wait_s`.
    """
    if ws.binding is not None and not background.ended(ws.places, within=ws.config.hooks.wait_s):
        return
    try:
        reconciled(ws)
    except GitBusy:
        if ws.binding is None:
            raise


def reconciled_as_far_as_possible(ws: Workspace) -> None:
    """As `reconciled_for_reading`; the index that is bound also goes on answering where the next one cannot be built: on a full or
    read-only disk, or of a document that makes too many chunks. `Workspace.unbuilt` has the reason, which the answer's notes give.
    """
    ws.unbuilt = None
    try:
        with file_failures():
            reconciled_for_reading(ws)
    except (FileSystemError, IndexFailed, LimitExceeded, LimitTooLow, EngineUnwritable, RowsInvalid) as why:
        if ws.binding is None:
            raise
        ws.unbuilt = why


def moved_for_reading(ws: Workspace) -> None:
    """As `move`, but documents are read where they were read last while git holds the repository, or where nothing can be written."""
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


def read_consistently(ws: Workspace, look: Callable[[], T], *, index: bool = True) -> T:
    """What `look` makes of the workspace, which is brought to its pin first; it looks again if another process moved the pin meanwhile.

    A commit moves the KB branch first and the pin then: who looks in between finds what was uncommitted nowhere. Without `index`
    the documents alone are brought.
    """
    bring = reconciled_as_far_as_possible if index else moved_for_reading
    for _ in range(ATTEMPTS):
        before = ws.trigger()
        bring(ws)
        found = look()
        if ws.trigger() == before and not pending(ws):
            break
    return found


def move_and_warn(ws: Workspace) -> None:
    """As `moved_for_reading`, for commands whose report has no place for it: says where what follows comes from."""
    moved_for_reading(ws)
    for note in ws.notes(ws.target(), ws.revision()) if ws.standing_revision else ():
        ws.progress.note(note)


def sync_and_warn(ws: Workspace) -> None:
    """As `move_and_warn`, with the index, for what says where that is."""
    reconciled_as_far_as_possible(ws)
    for note in ws.notes(ws.target(), ws.binding.revision) if ws.binding else ():
        ws.progress.note(note)


def recover(ws: Workspace) -> None:
    """Every command that works on the knowledge base calls this first; nearly always there is nothing to do."""
    _finish_replays(ws)
    if not pending(ws):
        return
    with locks.exclusive(ws.places.workspace_lock, purpose="finish a commit", timeout=ws.lock_timeout):
        for path, entry in pending(ws):  # again: who held the lock may have finished it
            if problem := flaw(ws, entry):
                _set_aside(ws, path, problem)
            elif entry is None:
                continue  # `flaw` has named it
            elif entry.git_dir == str(ws.places.git_dir):
                _finish(ws, path, entry)
            else:
                _take_over(ws, path, entry)


def _finish_replays(ws: Workspace) -> None:
    """Uncommitted documents of HEAD's branch, or of one that is gone, that were on their way to another revision."""
    branch = ws.trigger().branch
    for path, entry in ws.journal.entries():
        if not isinstance(entry, ReplayEntry):
            continue
        if problem := flaw(ws, entry):
            _set_aside(ws, path, problem)
            continue
        if not _is_ours(ws, entry.kb_branch, branch):
            continue
        from vmrag_link.merging import replay

        there = ws.engine.branch(entry.kb_branch)
        copy = apply.forgotten_copy(ws.parts, entry.kb_branch, there.head if there else entry.to)
        with copy, ws.engine.writing("carry uncommitted documents"):
            if path.exists():  # who is at work holds the write lock until its entry is gone
                finished = replay.finish(ws.engine, entry)
                ws.journal.finish(path)
                if finished:
                    ws.progress.note(finished.note)


def _is_ours(ws: Workspace, kb_branch: str, branch: str | None) -> bool:
    """Whether a KB branch belongs to this code branch, or to none."""
    owners = {kb: code for code, kb in plumbing.kb_branches(ws.places).items()}
    return owners.get(kb_branch, branch) == branch


def pending(ws: Workspace) -> list[tuple[Path, CommitEntry | None]]:
    """The commits of the journal that concern this work tree: its own, those of the code branch that it is on, and damaged ones."""
    commits = [(path, entry) for path, entry in ws.journal.entries() if not isinstance(entry, ReplayEntry)]
    return [
        (path, entry)
        for path, entry in commits
        if entry is None or entry.git_dir == str(ws.places.git_dir) or is_here(ws, entry)
    ]


def is_here(ws: Workspace, entry: CommitEntry) -> bool:
    """Whether HEAD is on the code branch of the entry, which may have another name by now: git carries the mapping along."""
    trigger = ws.trigger()
    if trigger.symbolic == entry.symbolic:
        return True
    return trigger.branch is not None and plumbing.kb_branch_of(ws.places, trigger.branch) == entry.kb_branch


def flaw(ws: Workspace, entry: Entry | None) -> str:
    """Why nothing can be finished by an entry of the journal: it cannot be read, or names what is not there; empty if it can."""
    if entry is None:
        return "cannot be read"
    engine = ws.engine
    named = [entry.parent] if isinstance(entry, CommitEntry) else [entry.head, entry.to]
    for revision in named:
        if not engine.has_revision(revision):
            return f"names a revision that is not there ({shortened(repr(revision))})"
    if isinstance(entry, ReplayEntry):
        ours = entry.aside.startswith(ASIDE_PREFIX) and engine.legal_branch_name(entry.kb_branch)
        return "" if ours else f"names a branch that holds no documents set aside ({shortened(repr(entry.aside))})"
    there = engine.legal_branch_name(entry.kb_branch) and engine.branch(entry.kb_branch)
    return "" if there else f"names a branch that is not there ({shortened(repr(entry.kb_branch))})"


def _set_aside(ws: Workspace, path: Path, problem: str) -> None:
    try:
        aside = ws.journal.set_aside(path)
    except FileNotFoundError:
        return  # another process was faster
    ws.progress.note(
        f"A journal entry {problem}; it was set aside as {aside}. If it belonged to a commit that was killed, "
        "'vmrag status' shows it as drift, and 'vmrag pin' finishes it."
    )


def _take_over(ws: Workspace, path: Path, entry: CommitEntry) -> None:
    """Another work tree was on this code branch when it was killed; one that is alive holds its lock."""
    theirs = Path(entry.git_dir)
    if theirs not in worktrees.git_dirs(ws.places) or not theirs.is_dir():
        _finish(ws, path, entry)
        return
    lock = ws.places._replace(git_dir=theirs).workspace_lock
    with contextlib.suppress(Busy), locks.exclusive(lock, purpose="finish a commit", timeout=0):
        if path.exists():
            _finish(ws, path, entry)


def _finish(ws: Workspace, path: Path, entry: CommitEntry) -> None:
    """Call it with the workspace's lock held. An entry whose branch HEAD has left stays until HEAD comes back."""
    branch = ws.engine.branch(entry.kb_branch)
    if branch is None or branch.head == entry.parent:
        ws.journal.finish(path)  # killed before the knowledge base was committed: the documents are still uncommitted
        return
    revision = branch.head
    trigger = ws.trigger()
    on_branch = is_here(ws, entry) and not plumbing.busy(ws.places) and not pin_merge.stages(ws.places)
    before = entry.pin.encode() if entry.pin is not None else None
    if on_branch and (trigger.pin == before or _pinned(trigger.pin) == revision):
        _pin(ws, path, revision, entry.kb_branch)
        return
    code = quoted(entry.symbolic.removeprefix("refs/heads/"))
    ws.progress.note(
        f"UNPINNED_REVISION: revision {revision[:7]} of {entry.kb_branch!r} was committed, but not pinned before HEAD or the pin "
        f"moved. To pin it: {'' if on_branch else f'git switch {code} && '}vmrag pin {revision}"
    )
    if on_branch:
        # The pin was replaced by something else: nobody will finish the commit, but nothing is lost either.
        ws.engine.anchor(revision, reason="committed, never pinned")
        ws.journal.finish(path)


def _pin(ws: Workspace, path: Path, revision: str, kb_branch: str) -> None:
    """What cannot be pinned now (a read-only work tree, say) keeps nobody from working: the next command tries again."""
    try:
        report = pinning.write_pin(ws, revision, kb_branch)
    except (OSError, GitFailed) as error:
        ws.progress.note(f"UNPINNED_REVISION: revision {revision[:7]} of {kb_branch!r} cannot be pinned yet: {error}")
        return
    if not report.staged:
        ws.progress.note(
            f"Revision {revision[:7]} of an interrupted commit is pinned, but not staged yet: another git command holds the index. "
            f"If none is running: rm {quoted(ws.places.git_dir / 'index.lock')}"
        )
        return
    ws.journal.finish(path)
    ws.progress.note(f"Finished an interrupted commit: revision {revision[:7]} is pinned now.")


def _pinned(data: bytes | None) -> str | None:
    pin = pinning.parsed(data)
    return pin.dolt_commit if pin else None
