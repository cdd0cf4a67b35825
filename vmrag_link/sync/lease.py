"""Leases: which work tree writes a code branch's documents, if several have it checked out (`git
worktree add --force`).

The first work tree holds a lease, a file in the common directory, as long as its HEAD stays on the
branch. The others read the pinned revision, and each writes on a KB branch of its own. A single
work tree needs no lease.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from vmrag_link import locks
from vmrag_link.errors import BranchInUse, Busy, quoted
from vmrag_link.file_access import read_recorded_path, write_atomically
from vmrag_link.git.refs import BRANCHES
from vmrag_link.paths import Places

NAME_LENGTH = 16


def find_holder(places: Places, symbolic: str) -> Path | None:
    """Return the git directory of another work tree that holds the lease of `refs/heads/…`, or
    None.
    """
    if not (places.common / "worktrees").is_dir():
        return None
    # The main work tree writes no lease as long as it is the only one.
    recorded = read_recorded_path(_lease_path(places, symbolic)) or places.common
    if recorded == places.git_dir or os.fsencode(symbolic) not in _list_branches(places._replace(git_dir=recorded)):
        return None
    return recorded


def take_lease(places: Places, symbolic: str, *, timeout: float) -> None:
    """Take the lease. Raises `BranchInUse` with the work tree that holds it."""
    if not (places.common / "worktrees").is_dir():
        return
    with locks.hold_exclusive(places.locks / "leases.lock", purpose="attach a branch", timeout=timeout):
        other = find_holder(places, symbolic)
        if other:
            raise build_in_use_error(other, symbolic)
        write_atomically(_lease_path(places, symbolic), os.fsencode(places.git_dir), durable=False)


def remove_stale_leases(places: Places) -> None:
    """Remove the leases of work trees that were removed or have left the branch."""
    folder = places.shared / "leases"
    if not folder.is_dir():
        return
    with (
        contextlib.suppress(Busy),
        locks.hold_exclusive(places.locks / "leases.lock", purpose="sweep leases", timeout=0),
    ):
        for path in folder.glob("[0-9a-f]" * NAME_LENGTH):
            recorded = read_recorded_path(path)
            branches = _list_branches(places._replace(git_dir=recorded)) if recorded else ()
            if path.name not in map(_hash_name, branches):
                path.unlink()


def find_other_work_tree(places: Places, symbolic: str) -> Path | None:
    """Return the git directory of another work tree that is on `refs/heads/…`, or that rebases or
    bisects it; None if there is none.
    """
    folders = (places.common, *(head.parent for head in places.common.glob("worktrees/*/HEAD")))
    others = (folder for folder in folders if folder != places.git_dir)
    return next(
        (folder for folder in others if os.fsencode(symbolic) in _list_branches(places._replace(git_dir=folder))), None
    )


def describe_shared(other: Path, branch: str, kb_branch: str) -> str:
    """Return the note for a work tree that writes on a KB branch of its own. `kb_branch` is empty
    if that branch does not exist yet.
    """
    destination = f"go to {kb_branch!r}" if kb_branch else "would go to a separate KB branch"
    return (
        f"another worktree, {find_work_tree(other)}, writes the documents of {branch!r}, so those of this one "
        f"{destination}; run 'vmrag merge {quoted(branch)}' to merge what the other one has committed to git"
    )


def build_in_use_error(other: Path, symbolic: str) -> BranchInUse:
    """Return the error for a branch that another work tree writes."""
    branch = symbolic.removeprefix(BRANCHES)
    folder = find_work_tree(other)
    return BranchInUse(
        f"the documents of {branch!r} are written in another worktree, {folder}, so they are read-only in this one.",
        hint=f"run 'cd {quoted(folder)}' to work there, or 'git switch -c NAME' to write on a new branch",
        branch=branch,
        holder=str(folder),
    )


def find_work_tree(git_dir: Path) -> Path:
    """Return the top of the work tree that a git directory belongs to."""
    try:
        named = os.fsdecode((git_dir / "gitdir").read_bytes().rstrip(b"\n"))
        return Path(os.path.normpath(git_dir / named)).parent  # it may be relative to the git directory
    except FileNotFoundError:
        return git_dir.parent


def _lease_path(places: Places, symbolic: str) -> Path:
    return places.shared / "leases" / _hash_name(os.fsencode(symbolic))


def _hash_name(symbolic: bytes) -> str:
    import hashlib  # not needed for a single work tree

    return hashlib.sha256(symbolic).hexdigest()[:NAME_LENGTH]


def _list_branches(places: Places) -> set[bytes]:
    """Return the branches that a work tree is on, rebases or bisects, as `refs/heads/…`. Empty for
    a work tree without a knowledge base.
    """
    if not os.path.isfile(places.workspace) or not find_work_tree(places.git_dir).is_dir():  # noqa: PTH113  no error for any path
        return set()
    head = _read_line(places.git_dir / "HEAD").removeprefix(b"ref: ")
    bisected = os.fsencode(BRANCHES) + _read_line(places.git_dir / "BISECT_START")
    rebased = (_read_line(places.git_dir / path) for path in ("rebase-merge/head-name", "rebase-apply/head-name"))
    return {head, bisected, *rebased}


def _read_line(path: Path) -> bytes:
    try:
        return path.read_bytes().rstrip()
    except (FileNotFoundError, NotADirectoryError):
        return b""
