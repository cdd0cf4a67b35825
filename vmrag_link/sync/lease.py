"""Which work tree writes a code branch's documents, where several have it checked out (`git worktree add --force`).

The first one to stand on it holds a lease, a file in the common directory, for as long as its HEAD stays there. The others read what the
pin names, and write nothing. Where there is one work tree only, there is nothing to write down.
"""

from __future__ import annotations

import os
from pathlib import Path

from vmrag_link import locks
from vmrag_link.errors import BranchInUse
from vmrag_link.paths import Places, write_atomically


def holder(places: Places, symbolic: str) -> Path | None:
    """The git directory of another work tree that holds the lease of `refs/heads/…`."""
    if not (places.common / "worktrees").is_dir():
        return None
    try:
        recorded = Path(os.fsdecode(_file(places, symbolic).read_bytes()))
    except FileNotFoundError:
        recorded = places.common  # before there was a second one, the main work tree wrote nothing down
    if recorded == places.git_dir or not _stands_on(places._replace(git_dir=recorded), symbolic):
        return None
    return recorded


def take(places: Places, symbolic: str, *, timeout: float) -> None:
    """Hold the lease from now on. Raises `BranchInUse`, naming the work tree that does."""
    if not (places.common / "worktrees").is_dir():
        return
    with locks.exclusive(places.locks / "leases.lock", purpose="attach a branch", timeout=timeout):
        other = holder(places, symbolic)
        if other:
            raise in_use(other, symbolic)
        write_atomically(_file(places, symbolic), os.fsencode(places.git_dir))


def in_use(other: Path, symbolic: str) -> BranchInUse:
    branch = symbolic.removeprefix("refs/heads/")
    where = work_tree(other)
    return BranchInUse(
        f"The documents of {branch!r} are written in another work tree, {where}; here they are only read.",
        hint=f"Work there: cd '{where}'; or write on a branch of your own: git switch -c NAME",
        branch=branch,
        holder=str(where),
    )


def work_tree(git_dir: Path) -> Path:
    """The top of the work tree that a git directory belongs to."""
    try:
        named = os.fsdecode((git_dir / "gitdir").read_bytes().rstrip(b"\n"))
        return Path(os.path.normpath(git_dir / named)).parent  # git writes it relative to the git directory, if told to
    except FileNotFoundError:
        return git_dir.parent


def _file(places: Places, symbolic: str) -> Path:
    import hashlib  # where there is one work tree, nothing is looked up

    return places.shared / "leases" / hashlib.sha256(os.fsencode(symbolic)).hexdigest()[:16]


def _stands_on(places: Places, symbolic: str) -> bool:
    """Whether that work tree is there, has knowledge, and is on the branch or in the middle of a rebase or bisect of it."""
    if not places.workspace.exists() or not work_tree(places.git_dir).is_dir():
        return False
    name = os.fsencode(symbolic)
    wanted = {"HEAD": b"ref: " + name, "rebase-merge/head-name": name, "rebase-apply/head-name": name}
    wanted["BISECT_START"] = name.removeprefix(b"refs/heads/")
    return any(_content(places.git_dir / file) == content for file, content in wanted.items())


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes().rstrip()
    except (FileNotFoundError, NotADirectoryError):
        return b""
