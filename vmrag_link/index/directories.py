"""Folders of complete directories that nobody changes: made aside, given their name, read, removed.

    NAME/                  with NAME.lock beside it
    .building-<random>/    one that is being made, locked by its maker

Readers and copiers share a directory's lock; removing one takes it alone, without waiting. The lock
file stays until `vmrag gc` finds it alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from vmrag_link import locks, paths, permissions, proc
from vmrag_link.errors import Busy, FileFailed, IndexFailed
from vmrag_link.index import seal

BUILDING_PREFIX = ".building-"
READ_TIMEOUT = 30.0
STALE_SECONDS = 600
MARK_SUFFIXES = (".writing", ".lease")


class Directories:
    """All directories of one kind below `root`. `kind`, such as "segment", is for messages."""

    def __init__(self, root: Path, *, kind: str) -> None:
        self.root = root
        self._kind = kind

    def list_newest_first(self) -> list[Path]:
        """Every directory, usable or not; the most recently used or made first."""
        if not self.root.is_dir():
            return []
        found: list[tuple[int, Path]] = []
        for path in self.root.iterdir():
            if path.is_dir() and "-" in path.name and not path.name.startswith("."):
                with contextlib.suppress(FileNotFoundError):  # another process evicts it right now
                    found.append((path.stat().st_mtime_ns, path))
        return [path for _, path in sorted(found, reverse=True)]

    @contextlib.contextmanager
    def lock_for_reading(self, path: Path) -> Iterator[None]:
        if path in seal.MEMORY_FOLDERS:
            from vmrag_link.index import storage

            with storage.hold_memory_folder(path):
                yield
            return
        with locks.hold_shared(lock_path(path), purpose=f"read a {self._kind}", timeout=READ_TIMEOUT):
            yield

    def mark_used(self, path: Path) -> None:
        """Note the use of a directory; eviction takes the least recently used."""
        with contextlib.suppress(OSError):
            path.touch()

    # -- making ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def temporary_folder(self) -> Iterator[Path]:
        """A new path to build at; the builder makes the directory. It is removed at the end unless
        it got its name.
        """
        with self._aside(f"build a {self._kind}") as folder:
            yield folder

    def move_into_place(self, built: Path, target: Path, *, problem: Callable[[], str]) -> None:
        """Give a finished directory its name, unless one of that name has no `problem`.

        One that has is removed first. Raises `IndexFailed` where another process reads it.
        """
        while problem():
            try:
                built.rename(target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
                if not self.remove_if_unused(target):
                    raise IndexFailed(
                        f"The {self._kind} {target.name} does not verify and cannot be replaced: another process "
                        "reads it.",
                        hint="Run 'vmrag sync' again when the other process has finished.",
                        path=str(target),
                    ) from None
            else:
                paths.sync_to_disk(self.root)
                break

    # -- removing ----------------------------------------------------------------------------------

    def remove_if_unused(self, path: Path, *, unless: Callable[[], Collection[Path]] = tuple) -> bool:
        """Remove a directory. Returns False if it has a reader or is among `unless` by then."""
        try:
            with locks.hold_exclusive(lock_path(path), purpose=f"remove a {self._kind}", timeout=0):
                if path in unless():
                    return False
                with self.trash_folder() as trash, contextlib.suppress(FileNotFoundError):
                    path.rename(trash)
        except Busy:
            return False
        return True

    @contextlib.contextmanager
    def trash_folder(self) -> Iterator[Path]:
        """A path for removed files. It is deleted with the block or, after a kill, by the next
        sweep.
        """
        with self._aside(f"remove a {self._kind}") as trash:
            yield trash

    @contextlib.contextmanager
    def _aside(self, purpose: str) -> Iterator[Path]:
        """A path of a random name, locked; what is there at the end of the block is removed."""
        folder = self.root / f"{BUILDING_PREFIX}{os.urandom(6).hex()}"
        with locks.hold_exclusive(lock_path(folder), purpose=purpose, timeout=0):
            try:
                yield folder
            finally:
                remove_path(folder)
                lock_path(folder).unlink(missing_ok=True)  # a random name: nobody waits for it

    def list_unfinished(self) -> list[Path]:
        """What builders are at, or left when they were killed."""
        return [path for path in sorted(self.root.glob(f"{BUILDING_PREFIX}*")) if path.is_dir()]

    def remove_unfinished(self) -> list[Path]:
        """Remove what killed builders left; those at work hold their lock."""
        swept = []
        for folder in self.list_unfinished():
            if self.remove_if_unused(folder):
                lock_path(folder).unlink(missing_ok=True)
                swept.append(folder)
        for path in list_orphaned_files(self.root):  # of builders that were killed when their directory was gone
            with contextlib.suppress(FileNotFoundError):
                if path.name.startswith(BUILDING_PREFIX) and time.time() - path.stat().st_mtime > STALE_SECONDS:
                    path.unlink()
        return swept


def copy_tree(source: Path, target: Path) -> None:
    """Copy a directory; shares blocks where the file system can. Raises `FileFailed`."""
    clone = ["-c"] if sys.platform == "darwin" else ["--reflink=auto"]
    copied = proc.run(["cp", "-R", *clone, str(source), str(target)])
    if copied.returncode:
        raise FileFailed(
            f"{source.name} cannot be copied: {copied.failure.splitlines()[0]}",
            hint="Run the command again."
            if copied.killed_by
            else f"Make room on the disk of {target.parent} ('vmrag gc --apply' removes spare indexes).",
        )
    permissions.apply_folder_mode(target)


def list_orphaned_files(root: Path) -> list[Path]:
    """Files beside an index that is gone: its lock, the holder, the mark of a killed writer, a
    lease.
    """
    if not root.is_dir():
        return []
    files = (path for path in root.iterdir() if ".lock" in path.suffixes or path.suffix in MARK_SUFFIXES)
    gone = (path for path in files if path.is_file() and not _index_of(path).exists())
    return sorted(path for path in gone if not locks.read_holder(lock_path(_index_of(path))))


def remove_orphaned_lock(path: Path) -> None:
    """Remove one of them, unless somebody is about to make the index. Waiters for the lock notice
    (`locks`).
    """
    index = _index_of(path)
    with contextlib.suppress(Busy), locks.hold_exclusive(lock_path(index), purpose="sweep", timeout=0):
        if not index.exists():
            path.unlink(missing_ok=True)
            lock_path(index).unlink(missing_ok=True)


def _index_of(beside: Path) -> Path:
    name = beside.name.removesuffix(".holder").removesuffix(".lock")
    return beside.with_name(name.removesuffix(".writing").removesuffix(".lease"))


def lock_path(path: Path) -> Path:
    """The lock file of a directory."""
    return path.with_name(path.name + ".lock")


def remove_path(folder: Path) -> None:
    """Remove an index directory, or a file or link in its place, that nobody else uses. A missing
    one is fine.
    """
    if folder.is_dir() and not folder.is_symlink():
        import shutil

        shutil.rmtree(folder)
    else:
        folder.unlink(missing_ok=True)
