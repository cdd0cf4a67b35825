"""What processes hold, and what dead ones left: locks, leases, temporary files, git directories."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from vmrag_link import locks
from vmrag_link.errors import quoted
from vmrag_link.git import refs
from vmrag_link.git.run import until_unlocked
from vmrag_link.ops.upkeep import garbage
from vmrag_link.ops.upkeep.doctor.findings import Finding, Topic
from vmrag_link.paths import Places, size_of
from vmrag_link.sync import lease
from vmrag_link.workspace import Workspace

GIT_LOCK_SECONDS = 60
"""No git command holds its index that long, but for one that waits in an editor."""

BRIEF_SECONDS = 1
LONG_SECONDS = 600

_HOLDER = ".holder"


def held(ws: Workspace) -> Iterator[Finding]:
    yield from _ours(ws.places)
    yield from _git(ws.places)


def _ours(places: Places) -> Iterator[Finding]:
    shared = places.shared
    folders = [shared, shared / "locks", places.kb, places.views, places.segments, places.working_copies]
    folders += [places.chroma, places.builder]
    folders += [git_dir / "vmrag" for git_dir in refs.git_dirs(places)[1:]]
    for path in (path for folder in folders for path in sorted(folder.glob(f"*{_HOLDER}"))):
        with contextlib.suppress(FileNotFoundError):  # it is given back right now
            yield from _holder(path, time.time() - path.stat().st_mtime)


def _holder(path: Path, seconds: float) -> Iterator[Finding]:
    lock = path.with_name(path.name.removesuffix(_HOLDER))
    if not locks.is_held(lock):
        if path.exists():
            message = f"{path.name} names a process that holds nothing any more."
            yield Finding("HOLDER_STALE", "note", message, f"rm -f {quoted(path)}", str(lock))
    elif seconds >= BRIEF_SECONDS:
        pid, purpose = locks.holder(lock) or (None, "to an end that it did not name")
        who = f"Process {pid}" if pid else "A process"
        message = f"{who} has held {lock.name} for {seconds:.0f} s, to {purpose}."
        look = f"ps -fp {pid}" if pid else f"fuser -v {quoted(lock)}"
        yield Finding("LOCK_HELD", "note" if seconds < LONG_SECONDS else "warning", message, look, str(lock))


def _release(ws: Workspace, finding: Finding) -> str:  # noqa: ARG001  as all repairs
    with locks.exclusive(Path(finding.subject), purpose="tidy up", timeout=0):
        pass  # giving a lock back removes its name
    return "Removed the name."


def _git(places: Places) -> Iterator[Finding]:
    """The locks of git itself are files, which a killed git leaves behind."""
    own = [places.git_dir / name for name in ("index.lock", "HEAD.lock")]
    for path in (*own, places.common / "config.lock", places.common / "packed-refs.lock"):
        with contextlib.suppress(FileNotFoundError):
            seconds = time.time() - path.stat().st_mtime
            if seconds > GIT_LOCK_SECONDS:
                message = (
                    f"git's {path.name} has been there for {seconds / 60:.0f} min: unless a git command runs, one died."
                )
                yield Finding("GIT_LOCK_STALE", "warning", message, until_unlocked(path), str(path))


def left(ws: Workspace) -> Iterator[Finding]:
    """Leftover files."""
    yield from _work_trees(ws.places)
    yield from _leases(ws.places)
    if ws.initialized:
        files = garbage.rubbish(ws)
        if files:
            size = sum(map(size_of, files))
            names = ", ".join(path.name for path in files[:3]) + " …" * (len(files) > 3)  # noqa: PLR2004
            message = f"Killed processes left {len(files)} files or folders ({size / 1_000_000:.1f} MB): {names}"
            yield Finding("LEFTOVERS", "note", message, "vmrag gc --apply", str(ws.places.shared))


def _sweep(ws: Workspace, _: Finding) -> str:
    return f"Removed {', '.join(garbage.sweep(ws).files.names)}."


def _work_trees(places: Places) -> Iterator[Finding]:
    """`git worktree lock` says that one may be away, on a disk that is not mounted say."""
    for git_dir in refs.git_dirs(places)[1:]:
        tree = lease.work_tree(git_dir)
        if not tree.is_dir() and not (git_dir / "locked").exists():
            message = f"The work tree {tree} is gone; what git knows of it keeps its index from being removed."
            yield Finding("WORK_TREE_GONE", "note", message, "git worktree prune", str(git_dir))


def _leases(places: Places) -> Iterator[Finding]:
    for path in sorted((places.shared / "leases").glob("[0-9a-f]" * lease.NAME_LENGTH)):
        with contextlib.suppress(FileNotFoundError):
            git_dir = Path(os.fsdecode(path.read_bytes()))
            if not lease.work_tree(git_dir).is_dir():
                message = f"A branch's documents are reserved for a work tree that is gone ({git_dir})."
                yield Finding("LEASE_STALE", "note", message, "vmrag sync", str(path))


def _sweep_leases(ws: Workspace, _: Finding) -> str:
    lease.sweep(ws.places)
    return "Removed the reservation."


LOCKS = Topic("locks", held, {"HOLDER_STALE": _release})
LEFT = Topic("leftovers", left, {"LEASE_STALE": _sweep_leases, "LEFTOVERS": _sweep})
