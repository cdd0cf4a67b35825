"""Check for `vmrag doctor` what running processes hold and killed ones left: locks, temporary
files, git directories, and leases.

A lease reserves a branch's documents for one worktree.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from vmrag_link import hints, locks
from vmrag_link.errors import quoted, shortened
from vmrag_link.file_access import measure_size, read_recorded_path
from vmrag_link.git import work_trees
from vmrag_link.git.run import unlock_hint
from vmrag_link.index.directories import BUILDING_PREFIX
from vmrag_link.ops.doctor.findings import Finding, Topic
from vmrag_link.ops.gc import garbage
from vmrag_link.paths import Places
from vmrag_link.sync import lease
from vmrag_link.workspace import Workspace

MAX_GIT_LOCK_SECONDS = 60
"""No git command holds its index this long, except one that waits for an editor."""

MIN_REPORTED_SECONDS = 1
"""Locks that were held for a shorter time are not reported."""

MAX_USUAL_SECONDS = 600
"""Locks that were held for a longer time are a warning."""

_HOLDER = ".holder"
"""Suffix of the file next to a lock that names the process that holds it."""


def _check_locks(ws: Workspace) -> Iterator[Finding]:
    """Check locks that are held for a long time, and names of processes that hold nothing."""
    yield from _check_own_locks(ws.places)
    yield from _check_git_locks(ws.places)


def _check_own_locks(places: Places) -> Iterator[Finding]:
    worktree_folders = [git_dir / "vmrag" for git_dir in work_trees.list_git_dirs(places)[1:]]
    for folder in dict.fromkeys((*places.folders, *worktree_folders)):
        for path in sorted(folder.glob(f"*{_HOLDER}")):
            if path.name.startswith(BUILDING_PREFIX):
                continue  # it is reported as a leftover
            with contextlib.suppress(FileNotFoundError):  # it is being released
                yield from _check_holder(path, time.time() - path.stat().st_mtime)


def _check_holder(path: Path, seconds: float) -> Iterator[Finding]:
    lock = path.with_name(path.name.removesuffix(_HOLDER))
    if not locks.is_held(lock):
        if path.exists():
            message = f"{path.name} names a process that no longer holds a lock."
            yield Finding("HOLDER_STALE", "note", message, f"run 'rm -f {quoted(path)}' to remove it", str(lock))
    elif seconds >= MIN_REPORTED_SECONDS:
        pid, purpose = locks.read_holder(lock) or (None, "do something unnamed")
        label = f"process {pid}" if pid else "a process"
        message = f"{label} has held {lock.name} for {seconds:.0f} s, to {purpose}."
        hint = hints.suggest_command(f"ps -fp {pid}" if pid else f"fuser -v {quoted(lock)}", "see the process")
        yield Finding("LOCK_HELD", "note" if seconds < MAX_USUAL_SECONDS else "warning", message, hint, str(lock))


def _check_git_locks(places: Places) -> Iterator[Finding]:
    """Check git's lock files, which a killed git leaves behind."""
    own_locks = [places.git_dir / name for name in ("index.lock", "HEAD.lock")]
    for path in (*own_locks, places.common / "config.lock", places.common / "packed-refs.lock"):
        with contextlib.suppress(FileNotFoundError):
            seconds = time.time() - path.stat().st_mtime
            if seconds > MAX_GIT_LOCK_SECONDS:
                message = f"git's {path.name} has existed for {seconds / 60:.0f} min. If no git command is running, one was killed."
                yield Finding("GIT_LOCK_STALE", "warning", message, unlock_hint(path), str(path))


def _check_leftovers(ws: Workspace) -> Iterator[Finding]:
    """Check for files, worktrees and leases that no process needs."""
    yield from _check_work_trees(ws.places)
    yield from _check_leases(ws.places)
    if ws.is_initialized:
        files = garbage.list_stray_files(ws)
        if files:
            megabytes = sum(map(measure_size, files)) / 1_000_000
            names = ", ".join(path.name for path in files[:3]) + " …" * (len(files) > 3)  # noqa: PLR2004
            message = f"killed processes left {len(files)} files or folders ({megabytes:.1f} MB): {names}"
            yield Finding("LEFTOVERS", "note", message, "run 'vmrag gc --apply' to remove them", str(ws.places.shared))


def _check_work_trees(places: Places) -> Iterator[Finding]:
    """Find deleted worktrees. A locked worktree (`git worktree lock`) may be on a disk that is not
    mounted.
    """
    for git_dir in work_trees.list_git_dirs(places)[1:]:
        tree = lease.find_work_tree(git_dir)
        if not tree.is_dir() and not (git_dir / "locked").exists():
            message = f"the worktree {tree} was deleted, but git still lists it, so its index is kept."
            yield Finding("WORK_TREE_GONE", "note", message, "run 'git worktree prune' to remove it", str(git_dir))


def _check_leases(places: Places) -> Iterator[Finding]:
    for path in sorted((places.shared / "leases").glob("[0-9a-f]" * lease.NAME_LENGTH)):
        git_dir = read_recorded_path(path)
        if git_dir is None:
            message = "a file that reserves a branch's documents for a worktree is damaged."
            yield Finding("LEASE_STALE", "note", message, "run 'vmrag sync' to sync to the pin", str(path))
        elif not os.path.isdir(git_dir) or not lease.find_work_tree(git_dir).is_dir():  # noqa: PTH112  no error for any path
            message = f"a branch's documents are reserved for a deleted worktree ({shortened(str(git_dir))})."
            yield Finding("LEASE_STALE", "note", message, "run 'vmrag sync' to sync to the pin", str(path))


def _release_lock(ws: Workspace, finding: Finding) -> str:  # noqa: ARG001  the signature of a repair
    with locks.hold_exclusive(Path(finding.subject), purpose="tidy up", timeout=0):
        pass  # releasing a lock removes its name
    return "removed the name of the process."


def _remove_leftovers(ws: Workspace, _: Finding) -> str:
    return f"removed {', '.join(garbage.remove_leftovers(ws).files.names)}."


def _remove_leases(ws: Workspace, _: Finding) -> str:
    lease.remove_stale_leases(ws.places)
    return "removed the reservation."


LOCKS = Topic("locks", _check_locks, {"HOLDER_STALE": _release_lock})
LEFTOVERS = Topic("leftovers", _check_leftovers, {"LEASE_STALE": _remove_leases, "LEFTOVERS": _remove_leftovers})
