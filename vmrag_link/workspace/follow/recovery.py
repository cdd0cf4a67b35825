"""Recover after a kill: finish the operations that the journal lists, or report why it cannot.

An operation writes its entry into the journal before its first step, and removes it after the last.
There are two kinds: a commit (`CommitEntry`), whose revision may not be pinned yet, and a replay
(`ReplayEntry`), which moves uncommitted documents to another revision. `follow_pin.follow` calls
`recover`, so the next command finishes what a killed one began.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from vmrag_link import locks
from vmrag_link.engines.own_branches import ASIDE_PREFIX
from vmrag_link.errors import Busy, GitFailed, quoted, shortened
from vmrag_link.git import git_operation, own_keys, work_trees
from vmrag_link.git.refs import BRANCHES
from vmrag_link.git.run import unlock_hint
from vmrag_link.journal import CommitEntry, Entry, ReplayEntry
from vmrag_link.paths import PIN_NAME
from vmrag_link.sync import binding
from vmrag_link.sync.target import read_pinned_revision
from vmrag_link.workspace import Workspace, twins


def recover(ws: Workspace) -> None:
    """Finish the operations of killed commands, usually none."""
    _finish_replays(ws)
    if not list_pending(ws):
        _pin_unpinned_head(ws)
        return
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="finish a commit", timeout=ws.lock_timeout):
        for path, entry in list_pending(ws):  # again, because the last holder of the lock may have finished it
            if problem := find_flaw(ws, entry):
                _stash_entry(ws, path, problem)
            elif entry is None:
                continue  # `find_flaw` reported it
            elif entry.git_dir == str(ws.places.git_dir):
                _finish_commit(ws, path, entry)
            else:
                _take_over(ws, path, entry)


def _pin_unpinned_head(ws: Workspace) -> None:
    """Pin the head of the KB branch if the work tree that committed it was removed before git
    committed its pin.

    Only a new work tree does this, one that never followed a pin.
    """
    if ws.binding is not None or binding.read_applied(ws.places) is not None:
        return
    target = ws.resolve_target()
    branch = target.kb_branch
    if branch is None or target.attachment not in ("behind", "held") or git_operation.find_operation(ws.places):
        return
    from vmrag_link.workspace.pins import history_pins

    if not history_pins.is_unpinned(ws, target.revision, branch.head):
        return
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="pin a committed revision", timeout=ws.lock_timeout):
        if ws.read_trigger() != target.trigger or ws.engine.find_branch(branch.name) != branch:
            return  # another process changed HEAD, the pin or the branch before this one had the lock
        from vmrag_link.workspace.pins import pinning

        pinning.write_pin(ws, branch.head, branch.name)
    ws.progress.note(
        f"pinned and staged revision {branch.head[:7]} of {branch.name!r}, which no git commit had when its worktree was removed; "
        f"run 'git checkout HEAD -- {PIN_NAME}' to discard it"
    )


def _finish_replays(ws: Workspace) -> None:
    """Finish the replays of HEAD's code branch, and of code branches that were removed."""
    code_branch = ws.read_trigger().branch
    for path, entry in ws.journal.list_entries():
        if not isinstance(entry, ReplayEntry):
            continue
        if problem := find_flaw(ws, entry):
            _stash_entry(ws, path, problem)
            continue
        if own_keys.read_kb_owners(ws.places).get(entry.kb_branch, code_branch) != code_branch:
            continue  # the next command on its code branch finishes it
        from vmrag_link.merging import replay

        branch_now = ws.engine.find_branch(entry.kb_branch)
        copy = ws.sync_context.without_copy(entry.kb_branch, branch_now.head if branch_now else entry.to)
        with copy, ws.engine.write_lock("move uncommitted documents"):
            if path.exists():  # a running process has the write lock until it removes its entry
                finished = replay.finish_replay(ws.engine, entry, derived=twins.build_derived(ws))
                ws.journal.remove_entry(path)
                if finished and finished.note:
                    ws.progress.note(finished.note)


def list_pending(ws: Workspace) -> list[tuple[Path, CommitEntry | None]]:
    """Return the entries of commits that this work tree must finish, with their files.

    These are its own commits, and those of other work trees on the code branch that is checked out.
    Damaged entries are included, as None.
    """
    commits = [(path, entry) for path, entry in ws.journal.list_entries() if not isinstance(entry, ReplayEntry)]
    return [
        (path, entry)
        for path, entry in commits
        if entry is None
        or entry.git_dir == str(ws.places.git_dir)
        or is_on_branch(ws, entry)
        or (entry.symbolic == ws.read_trigger().symbolic and find_flaw(ws, entry))
    ]


def is_on_branch(ws: Workspace, entry: CommitEntry) -> bool:
    """Return whether HEAD is on the code branch of the entry, and this work tree writes its KB
    branch.
    """
    trigger = ws.read_trigger()  # HEAD's name and the pin
    if trigger.branch is None:
        return False
    # A code branch that was renamed keeps its KB branch.
    was_renamed = own_keys.find_kb_branch(ws.places, trigger.branch) == entry.kb_branch
    if trigger.symbolic != entry.symbolic and not was_renamed:
        return False
    target = ws.resolve_target()  # without a KB branch if another work tree writes on it
    return target.kb_branch is not None and target.kb_branch.name == entry.kb_branch


def find_flaw(ws: Workspace, entry: Entry | None) -> str:
    """Return why the operation of an entry cannot be finished; empty if it can.

    For example, the entry cannot be read, or contains a revision that does not exist.
    """
    if entry is None:
        return "cannot be read"
    engine = ws.engine
    for revision in [entry.parent] if isinstance(entry, CommitEntry) else [entry.head, entry.to]:
        if not engine.has_revision(revision):
            return f"names a missing revision ({shortened(repr(revision))})"
    if isinstance(entry, ReplayEntry):
        is_stash = entry.aside.startswith(ASIDE_PREFIX) and engine.is_legal_branch_name(entry.kb_branch)
        return "" if is_stash else f"names a branch without stashed documents ({shortened(repr(entry.aside))})"
    branch = engine.is_legal_branch_name(entry.kb_branch) and engine.find_branch(entry.kb_branch)
    return "" if branch else f"names a missing branch ({shortened(repr(entry.kb_branch))})"


def _stash_entry(ws: Workspace, path: Path, problem: str) -> None:
    """Rename a damaged entry, so that no command reads it again, and report that."""
    try:
        aside = ws.journal.mark_damaged(path)
    except FileNotFoundError:
        return  # another process was faster
    ws.progress.note(
        f"a journal entry {problem}, so it was moved to {aside}. If it belonged to a killed commit, "
        "'vmrag status' shows drift, and 'vmrag pin' finishes the commit."
    )


def _take_over(ws: Workspace, path: Path, entry: CommitEntry) -> None:
    """Finish the commit of another work tree, unless a process in that work tree holds its lock."""
    other_git_dir = Path(entry.git_dir)
    if other_git_dir not in work_trees.list_git_dirs(ws.places) or not other_git_dir.is_dir():
        _finish_commit(ws, path, entry)
        return
    lock = ws.places._replace(git_dir=other_git_dir).workspace_lock
    with contextlib.suppress(Busy), locks.hold_exclusive(lock, purpose="finish a commit", timeout=0):
        if path.exists():
            _finish_commit(ws, path, entry)


def _finish_commit(ws: Workspace, path: Path, entry: CommitEntry) -> None:
    """Pin the revision of a commit, and remove its entry. The caller holds the workspace's lock.

    If HEAD is on another branch now, the entry stays until HEAD is back.
    """
    from vmrag_link.git import pin_conflict

    branch = ws.engine.find_branch(entry.kb_branch)
    if branch is None or branch.head == entry.parent:
        # The command was killed before it committed the knowledge base, so the documents are still
        # uncommitted.
        ws.journal.remove_entry(path)
        return
    revision = branch.head
    is_git_busy = git_operation.find_operation(ws.places) or pin_conflict.read_stages(ws.places)
    can_write_pin = is_on_branch(ws, entry) and not is_git_busy
    trigger = ws.read_trigger()
    pin_before = entry.pin.encode() if entry.pin is not None else None
    if can_write_pin and (trigger.pin == pin_before or read_pinned_revision(ws.places, trigger) == revision):
        _write_pin(ws, path, revision, entry.kb_branch)
        return
    code = quoted(entry.symbolic.removeprefix(BRANCHES))
    ws.progress.note(
        f"UNPINNED_REVISION: revision {revision[:7]} of {entry.kb_branch!r} was committed, but not pinned before HEAD or the pin "
        f"moved. To pin it: {'' if can_write_pin else f'git switch {code} && '}vmrag pin {revision}"
    )
    if can_write_pin:
        # The pin was replaced by another one, so no command will finish the commit. Keep its
        # revision.
        ws.engine.anchor_revision(revision, reason="committed, never pinned")
        ws.journal.remove_entry(path)


def _write_pin(ws: Workspace, path: Path, revision: str, kb_branch: str) -> None:
    """Write and stage the pin of a commit, and remove its entry.

    If that fails, for example in a read-only work tree, the entry stays, and the next command tries
    again.
    """
    from vmrag_link.workspace.pins import pinning

    try:
        report = pinning.write_pin(ws, revision, kb_branch)
    except (OSError, GitFailed) as error:
        ws.progress.note(f"UNPINNED_REVISION: revision {revision[:7]} of {kb_branch!r} could not be pinned: {error}")
        return
    if not report.staged:
        ws.progress.note(
            f"revision {revision[:7]} of an interrupted commit is pinned, but not staged, because another git command holds the index. "
            f"{unlock_hint(ws.places.git_dir / 'index.lock')}"
        )
        return
    ws.journal.remove_entry(path)
    ws.progress.note(f"Finished an interrupted commit: revision {revision[:7]} is pinned now.")
