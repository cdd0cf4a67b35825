"""Folders of directories that do not change after they are finished.

A directory is built under a temporary name, renamed, read, and finally removed:

    NAME/                  a finished directory; its lock is NAME.lock
    .building-<random>/    an unfinished directory, locked by the process that builds it

Processes that read or copy a directory share its lock. A process that removes a directory takes the
lock exclusively, without waiting. The lock file stays until `vmrag gc` removes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from vmrag_link import file_access, locks, permissions, proc
from vmrag_link.errors import Busy, FileFailed, IndexFailed
from vmrag_link.index import seal

BUILDING_PREFIX = ".building-"
"""Prefix of the names of unfinished directories."""

READ_TIMEOUT = 30.0
STALE_SECONDS = 600
"""Age from which the lock file of an unfinished directory without a directory is removed."""

MARK_SUFFIXES = (".writing", ".lease")
"""Suffixes of the files next to an index, besides its lock file."""


class Directories:
    """All directories of one kind below `root`.

    `kind`: the kind as messages show it, such as "segment".
    """

    def __init__(self, root: Path, *, kind: str) -> None:
        self.root = root
        self._kind = kind

    def list_newest_first(self) -> list[Path]:
        """Return all directories, usable or not. The most recently used or built is first."""
        if not self.root.is_dir():
            return []
        directories: list[tuple[int, Path]] = []
        for path in self.root.iterdir():
            if path.is_dir() and "-" in path.name and not path.name.startswith("."):
                with contextlib.suppress(FileNotFoundError):  # another process removes it right now
                    directories.append((path.stat().st_mtime_ns, path))
        return [path for _, path in sorted(directories, reverse=True)]

    @contextlib.contextmanager
    def lock_for_reading(self, path: Path) -> Iterator[None]:
        """Keep a directory from being removed while the block reads it."""
        if path in seal.MEMORY_FOLDERS:
            from vmrag_link.index import storage

            with storage.hold_memory_folder(path):
                yield
            return
        with locks.hold_shared(lock_path(path), purpose=f"read a {self._kind}", timeout=READ_TIMEOUT):
            yield

    def mark_used(self, path: Path) -> None:
        """Record the use of a directory, because the least recently used directories are removed
        first.
        """
        with contextlib.suppress(OSError):
            path.touch()

    # -- making ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def temporary_folder(self) -> Iterator[Path]:
        """Yield a new path at which the caller builds a directory.

        The directory is removed at the end of the block unless it was renamed.
        """
        with self._locked_folder(f"build a {self._kind}") as folder:
            yield folder

    def move_into_place(self, built: Path, target: Path, *, problem: Callable[[], str]) -> None:
        """Rename a finished directory to its final name, unless a usable directory has that name.

        `problem` returns why the existing directory is unusable, or an empty text. An unusable
        directory is removed first. Raises `IndexFailed` if another process reads it.
        """
        while problem():
            try:
                built.rename(target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
                if not self.remove_if_unused(target):
                    raise IndexFailed(
                        f"cannot replace the damaged {self._kind} {target.name}: another process reads it.",
                        hint="run 'vmrag sync' again when the other process has finished",
                        path=str(target),
                    ) from None
            else:
                file_access.sync_to_disk(self.root)
                break

    # -- removing ----------------------------------------------------------------------------------

    def remove_if_unused(self, path: Path, *, unless: Callable[[], Collection[Path]] = tuple) -> bool:
        """Remove a directory, and return whether it was removed.

        A directory stays if another process reads it, or if `unless` returns it once the lock is
        held.
        """
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
        """Yield a path to which the caller moves files to delete.

        The files are deleted at the end of the block or, if the process is killed, by the next call
        of `remove_unfinished`.
        """
        with self._locked_folder(f"remove a {self._kind}") as trash:
            yield trash

    @contextlib.contextmanager
    def _locked_folder(self, purpose: str) -> Iterator[Path]:
        """Yield a path with a random name and hold its lock. Remove what is at the path at the end
        of the block.
        """
        folder = self.root / f"{BUILDING_PREFIX}{os.urandom(6).hex()}"
        with locks.hold_exclusive(lock_path(folder), purpose=purpose, timeout=0):
            try:
                yield folder
            finally:
                remove_path(folder)
                lock_path(folder).unlink(missing_ok=True)  # the name is random, so no process waits for the lock

    def list_unfinished(self) -> list[Path]:
        """Return the directories that are being built, or that a killed process left behind."""
        return [path for path in sorted(self.root.glob(f"{BUILDING_PREFIX}*")) if path.is_dir()]

    def remove_unfinished(self) -> list[Path]:
        """Remove the directories that killed processes left behind, and return them.

        A process that still builds a directory holds its lock, so its directory stays.
        """
        removed = []
        for folder in self.list_unfinished():
            if self.remove_if_unused(folder):
                lock_path(folder).unlink(missing_ok=True)
                removed.append(folder)
        # a process that was killed after it had removed its directory leaves these
        for path in list_orphaned_files(self.root):
            with contextlib.suppress(FileNotFoundError):
                if path.name.startswith(BUILDING_PREFIX) and time.time() - path.stat().st_mtime > STALE_SECONDS:
                    path.unlink()
        return removed


def copy_tree(source: Path, target: Path) -> None:
    """Copy a directory, and share disk blocks with the copy if the file system can. Raises
    `FileFailed`.
    """
    clone = ["-c"] if sys.platform == "darwin" else ["--reflink=auto"]
    result = proc.run(["cp", "-R", *clone, str(source), str(target)])
    if result.returncode:
        raise FileFailed(
            f"cannot copy {source.name}: {result.failure.splitlines()[0]}",
            hint="run the command again"
            if result.killed_by
            else f"make room on the disk of {target.parent}, or run 'vmrag gc --apply' to remove spare indexes",
        )
    permissions.apply_folder_mode(target)


def list_orphaned_files(root: Path) -> list[Path]:
    """Return the files next to indexes that no longer exist: locks, holders of locks, marks and
    leases.
    """
    if not root.is_dir():
        return []
    files = (path for path in root.iterdir() if ".lock" in path.suffixes or path.suffix in MARK_SUFFIXES)
    orphaned = (path for path in files if path.is_file() and not _find_index_path(path).exists())
    return sorted(path for path in orphaned if not locks.read_holder(lock_path(_find_index_path(path))))


def remove_orphaned_lock(path: Path) -> None:
    """Remove a file of `list_orphaned_files` and its lock, unless a process is about to build the
    index.

    Processes that wait for the lock notice that it was removed (`locks`).
    """
    index = _find_index_path(path)
    with contextlib.suppress(Busy), locks.hold_exclusive(lock_path(index), purpose="remove unused files", timeout=0):
        if not index.exists():
            path.unlink(missing_ok=True)
            lock_path(index).unlink(missing_ok=True)


def _find_index_path(path: Path) -> Path:
    """Return the path of the index to which a lock, a holder, a mark or a lease belongs."""
    name = path.name.removesuffix(".holder").removesuffix(".lock")
    return path.with_name(name.removesuffix(".writing").removesuffix(".lease"))


def lock_path(path: Path) -> Path:
    """Return the path of a directory's lock file."""
    return path.with_name(path.name + ".lock")


def remove_path(folder: Path) -> None:
    """Remove a directory that no other process uses, or a file or link in its place.

    A missing path is not an error.
    """
    if folder.is_dir() and not folder.is_symlink():
        import shutil

        shutil.rmtree(folder)
    else:
        folder.unlink(missing_ok=True)
