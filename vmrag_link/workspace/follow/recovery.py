"""Recovery after a kill: finish, or report, the commits and replays that the journal holds.

`follow_pin` starts with it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from vmrag_link import locks
from vmrag_link.engines import migrated
from vmrag_link.engines.base import ASIDE_PREFIX
from vmrag_link.errors import Busy, GitFailed, quoted, shortened
from vmrag_link.git import plumbing
from vmrag_link.git.refs import BRANCHES
from vmrag_link.git.run import unlock_hint
from vmrag_link.journal import CommitEntry, Entry, ReplayEntry
from vmrag_link.paths import PIN_NAME
from vmrag_link.sync import binding
from vmrag_link.workspace import Workspace, twins


def recover(ws: Workspace) -> None:
    """Finish what killed commands began. Commands that work on the knowledge base call this first;
    nearly always there is nothing to do.
    """
    _finish_replays(ws)
    if not list_pending(ws):
        _pin_what_was_left(ws)
        return
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="finish a commit", timeout=ws.lock_timeout):
        for path, entry in list_pending(ws):  # again: the lock's last holder may have finished it
            if problem := find_flaw(ws, entry):
                _set_aside(ws, path, problem)
            elif entry is None:
                continue  # `flaw` has named it
            elif entry.git_dir == str(ws.places.git_dir):
                _finish(ws, path, entry)
            else:
                _take_over(ws, path, entry)


def _pin_what_was_left(ws: Workspace) -> None:
    """In a work tree that stood nowhere yet: pin what was committed on its branch, and in no commit
    of git's before that work tree was removed. Uncommitted documents wait as well.
    """
    if ws.binding is not None or binding.read_applied(ws.places) is not None:
        return
    target = ws.resolve_target()
    branch = target.kb_branch
    if branch is None or target.attachment not in ("behind", "held") or plumbing.find_operation(ws.places):
        return
    from vmrag_link.workspace.pins import history_pins

    if not history_pins.is_unpinned(ws, target.revision, branch.head):
        return
    with locks.hold_exclusive(ws.places.workspace_lock, purpose="pin what was left", timeout=ws.lock_timeout):
        if ws.read_trigger() != target.trigger or ws.engine.find_branch(branch.name) != branch:
            return
        from vmrag_link.workspace.pins import pinning

        pinning.write_pin(ws, branch.head, branch.name)
    ws.progress.note(
        f"Revision {branch.head[:7]} of {branch.name!r} was in no commit of git's when its work tree was removed; it is pinned here, "
        f"and staged. To give it up: git checkout HEAD -- {PIN_NAME}"
    )


def _finish_replays(ws: Workspace) -> None:
    """Finish carrying uncommitted documents to another revision, for HEAD's branch and branches
    that are gone.
    """
    branch = ws.read_trigger().branch
    for path, entry in ws.journal.list_entries():
        if not isinstance(entry, ReplayEntry):
            continue
        if problem := find_flaw(ws, entry):
            _set_aside(ws, path, problem)
            continue
        if not _is_ours(ws, entry.kb_branch, branch):
            continue
        from vmrag_link.merging import replay

        there = ws.engine.find_branch(entry.kb_branch)
        copy = ws.sync_context.without_copy(entry.kb_branch, there.head if there else entry.to)
        with copy, ws.engine.write_lock("carry uncommitted documents"):
            if path.exists():  # a living process holds the write lock until its entry is gone
                finished = replay.finish_replay(ws.engine, entry, derived=twins.build_derived(ws))
                ws.journal.remove_entry(path)
                if finished and finished.note:
                    ws.progress.note(finished.note)


def _is_ours(ws: Workspace, kb_branch: str, branch: str | None) -> bool:
    """Whether a KB branch belongs to this code branch, or to none."""
    owners = plumbing.read_kb_owners(ws.places)
    return owners.get(kb_branch, branch) == branch


def list_pending(ws: Workspace) -> list[tuple[Path, CommitEntry | None]]:
    """The commits of the journal that concern this work tree: its own, those of the code branch
    that it is on, and damaged ones; of that branch also those by which nobody can finish a commit.
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
    """Whether HEAD is on the code branch of the entry. It may be renamed by now: git carries the
    mapping to the KB branch along.
    """
    trigger = ws.read_trigger()
    if trigger.branch is None:
        return False
    renamed = plumbing.find_kb_branch(ws.places, trigger.branch) == entry.kb_branch
    if trigger.symbolic != entry.symbolic and not renamed:
        return False
    target = ws.resolve_target()  # another work tree may write the branch, or this one on its own
    return target.kb_branch is not None and target.kb_branch.name == entry.kb_branch


def find_flaw(ws: Workspace, entry: Entry | None) -> str:
    """Why nothing can be finished by an entry of the journal: it cannot be read, or names what is
    not there; empty if it can.
    """
    if entry is None:
        return "cannot be read"
    engine = ws.engine
    named = [entry.parent] if isinstance(entry, CommitEntry) else [entry.head, entry.to]
    for revision in named:
        if not engine.has_revision(revision):
            return f"names a revision that is not there ({shortened(repr(revision))})"
    if isinstance(entry, ReplayEntry):
        ours = entry.aside.startswith(ASIDE_PREFIX) and engine.is_legal_branch_name(entry.kb_branch)
        return "" if ours else f"names a branch that holds no documents set aside ({shortened(repr(entry.aside))})"
    there = engine.is_legal_branch_name(entry.kb_branch) and engine.find_branch(entry.kb_branch)
    return "" if there else f"names a branch that is not there ({shortened(repr(entry.kb_branch))})"


def _set_aside(ws: Workspace, path: Path, problem: str) -> None:
    try:
        aside = ws.journal.mark_damaged(path)
    except FileNotFoundError:
        return  # another process was faster
    ws.progress.note(
        f"A journal entry {problem}; it was set aside as {aside}. If it belonged to a commit that was killed, "
        "'vmrag status' shows it as drift, and 'vmrag pin' finishes it."
    )


def _take_over(ws: Workspace, path: Path, entry: CommitEntry) -> None:
    """Finish the commit of another work tree on this code branch, unless that is alive and holds
    its lock.
    """
    from vmrag_link.git import refs

    theirs = Path(entry.git_dir)
    if theirs not in refs.list_git_dirs(ws.places) or not theirs.is_dir():
        _finish(ws, path, entry)
        return
    lock = ws.places._replace(git_dir=theirs).workspace_lock
    with contextlib.suppress(Busy), locks.hold_exclusive(lock, purpose="finish a commit", timeout=0):
        if path.exists():
            _finish(ws, path, entry)


def _finish(ws: Workspace, path: Path, entry: CommitEntry) -> None:
    """Finish a commit; the caller holds the workspace's lock. An entry whose branch HEAD has left
    stays until HEAD comes back.
    """
    from vmrag_link.git import pin_conflict

    branch = ws.engine.find_branch(entry.kb_branch)
    if branch is None or branch.head == entry.parent:
        ws.journal.remove_entry(
            path
        )  # killed before the knowledge base was committed: the documents are still uncommitted
        return
    revision = branch.head
    trigger = ws.read_trigger()
    on_branch = (
        is_on_branch(ws, entry) and not plumbing.find_operation(ws.places) and not pin_conflict.read_stages(ws.places)
    )
    before = entry.pin.encode() if entry.pin is not None else None
    if on_branch and (trigger.pin == before or _pinned_revision(ws, trigger.pin) == revision):
        _pin(ws, path, revision, entry.kb_branch)
        return
    code = quoted(entry.symbolic.removeprefix(BRANCHES))
    ws.progress.note(
        f"UNPINNED_REVISION: revision {revision[:7]} of {entry.kb_branch!r} was committed, but not pinned before HEAD or the pin "
        f"moved. To pin it: {'' if on_branch else f'git switch {code} && '}vmrag pin {revision}"
    )
    if on_branch:
        # The pin was replaced by something else: nobody will finish the commit, but nothing is lost
        # either.
        ws.engine.anchor_revision(revision, reason="committed, never pinned")
        ws.journal.remove_entry(path)


def _pin(ws: Workspace, path: Path, revision: str, kb_branch: str) -> None:
    """Write the pin of an interrupted commit. If that fails (a read-only work tree, say), a note
    says so, and the next command tries again.
    """
    from vmrag_link.workspace.pins import pinning

    try:
        report = pinning.write_pin(ws, revision, kb_branch)
    except (OSError, GitFailed) as error:
        ws.progress.note(f"UNPINNED_REVISION: revision {revision[:7]} of {kb_branch!r} cannot be pinned yet: {error}")
        return
    if not report.staged:
        ws.progress.note(
            f"Revision {revision[:7]} of an interrupted commit is pinned, but not staged yet: another git command holds the index. "
            f"{unlock_hint(ws.places.git_dir / 'index.lock')}"
        )
        return
    ws.journal.remove_entry(path)
    ws.progress.note(f"Finished an interrupted commit: revision {revision[:7]} is pinned now.")


def _pinned_revision(ws: Workspace, data: bytes | None) -> str | None:
    pin = migrated.try_read_pin(ws.places.kb, data)
    return pin.dolt_commit if pin else None
