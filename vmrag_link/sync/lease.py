"""Which work tree writes a code branch's documents, where several have it checked out
(`git worktree add --force`).

The first one holds a lease, a file in the common directory, for as long as its HEAD stays on the
branch. The others read what the pin names, and each writes on a KB branch of its own. A single work
tree needs no lease.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from vmrag_link import locks
from vmrag_link.errors import BranchInUse, Busy, quoted
from vmrag_link.git.refs import BRANCHES
from vmrag_link.paths import Places, read_recorded_path, write_atomically

NAME_LENGTH = 16


def find_holder(places: Places, symbolic: str) -> Path | None:
    """The git directory of another work tree that holds the lease of `refs/heads/…`; None if none
    does.
    """
    if not (places.common / "worktrees").is_dir():
        return None
    # Before there was a second one, the main work tree wrote nothing down.
    recorded = read_recorded_path(_file(places, symbolic)) or places.common
    if recorded == places.git_dir or os.fsencode(symbolic) not in _stands_on(places._replace(git_dir=recorded)):
        return None
    return recorded


def take_lease(places: Places, symbolic: str, *, timeout: float) -> None:
    """Hold the lease from now on. Raises `BranchInUse`, which names the work tree that holds it."""
    if not (places.common / "worktrees").is_dir():
        return
    with locks.hold_exclusive(places.locks / "leases.lock", purpose="attach a branch", timeout=timeout):
        other = find_holder(places, symbolic)
        if other:
            raise build_in_use_error(other, symbolic)
        write_atomically(_file(places, symbolic), os.fsencode(places.git_dir), durable=False)


def remove_stale_leases(places: Places) -> None:
    """Remove the leases that hold nothing any more: their work tree is gone, or has left the
    branch.
    """
    folder = places.shared / "leases"
    if not folder.is_dir():
        return
    with (
        contextlib.suppress(Busy),
        locks.hold_exclusive(places.locks / "leases.lock", purpose="sweep leases", timeout=0),
    ):
        for path in folder.glob("[0-9a-f]" * NAME_LENGTH):
            recorded = read_recorded_path(path)
            branches = _stands_on(places._replace(git_dir=recorded)) if recorded else ()
            if path.name not in map(_name, branches):
                path.unlink()


def find_other_work_tree(places: Places, symbolic: str) -> Path | None:
    """The git directory of some other work tree that is on `refs/heads/…`."""
    folders = (places.common, *(head.parent for head in places.common.glob("worktrees/*/HEAD")))
    others = (folder for folder in folders if folder != places.git_dir)
    return next((each for each in others if os.fsencode(symbolic) in _stands_on(places._replace(git_dir=each))), None)


def describe_shared(other: Path, branch: str, kb_branch: str) -> str:
    """What a work tree is told that writes on a KB branch of its own; empty: not yet."""
    own = f"go to {kb_branch!r}" if kb_branch else "would go to a KB branch of its own"
    return (
        f"The documents of {branch!r} are written in another work tree, {find_work_tree(other)}; those of this one {own}. "
        f"What the other one has committed to git comes here by: vmrag merge {quoted(branch)}"
    )


def build_in_use_error(other: Path, symbolic: str) -> BranchInUse:
    branch = symbolic.removeprefix(BRANCHES)
    where = find_work_tree(other)
    return BranchInUse(
        f"The documents of {branch!r} are written in another work tree, {where}; here they are only read.",
        hint=f"Work there: cd {quoted(where)}; or write on a branch of your own: git switch -c NAME",
        branch=branch,
        holder=str(where),
    )


def find_work_tree(git_dir: Path) -> Path:
    """The top of the work tree that a git directory belongs to."""
    try:
        named = os.fsdecode((git_dir / "gitdir").read_bytes().rstrip(b"\n"))
        return Path(os.path.normpath(git_dir / named)).parent  # git writes it relative to the git directory, if told to
    except FileNotFoundError:
        return git_dir.parent


def _file(places: Places, symbolic: str) -> Path:
    return places.shared / "leases" / _name(os.fsencode(symbolic))


def _name(symbolic: bytes) -> str:
    import hashlib  # where there is one work tree, nothing is looked up

    return hashlib.sha256(symbolic).hexdigest()[:NAME_LENGTH]


def _stands_on(places: Places) -> set[bytes]:
    """The branches that a work tree is on, rebases or bisects, as `refs/heads/…`. Empty for a work
    tree without knowledge.
    """
    if not os.path.isfile(places.workspace) or not find_work_tree(places.git_dir).is_dir():  # noqa: PTH113  no error for any path
        return set()
    head = _content(places.git_dir / "HEAD").removeprefix(b"ref: ")
    bisected = os.fsencode(BRANCHES) + _content(places.git_dir / "BISECT_START")
    rebased = (_content(places.git_dir / each) for each in ("rebase-merge/head-name", "rebase-apply/head-name"))
    return {head, bisected, *rebased}


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes().rstrip()
    except (FileNotFoundError, NotADirectoryError):
        return b""
