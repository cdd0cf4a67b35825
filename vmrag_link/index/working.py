"""The working copy: the index of the uncommitted documents of a KB branch.

    <git common dir>/vmrag/uncommitted/<key>/    a view
    <key>.lock                                   its lock
    <key>.writing                                exists while a process writes the copy
    <key>.behind                                 exists until the copy has all documents

The key depends on the KB branch, the base revision and the format. Work trees share the copy like
the uncommitted documents, because a code branch can be checked out in another work tree tomorrow.

A writer holds the lock exclusively from before it stores documents until the index has them, and
readers share the lock. A `writing` mark without a lock means that a writer was killed. Then the
copy is deleted and built again from the view of the revision and the uncommitted documents.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Literal

from vmrag_link import locks, permissions
from vmrag_link.errors import Busy
from vmrag_link.index.directories import remove_path
from vmrag_link.index.view import SUFFIX, find_index_problem, has_given_vectors

CopyState = Literal["current", "behind", "gone"]
"""The state of a copy: it has all stored documents (`current`), not yet all (`behind`), or is
unusable (`gone`).
"""


class WorkingCopy:
    """The working copy of a KB branch on a base revision."""

    def __init__(self, root: Path, *, kb_branch: str, base: str, timeout: float) -> None:
        import hashlib

        key = hashlib.sha256(f"{kb_branch}\0{base}\0{SUFFIX}".encode()).hexdigest()[:16]
        self.root = root
        self.path = root / key
        self.base = base
        self._timeout = timeout

    @property
    def _lock(self) -> Path:
        return self.path.with_name(self.path.name + ".lock")

    @property
    def _mark(self) -> Path:
        return self.path.with_name(self.path.name + ".writing")

    @property
    def _behind_mark(self) -> Path:
        return self.path.with_name(self.path.name + ".behind")

    def find_problem(self) -> str:
        """Return why the copy must not be read; empty if it may be read while the lock is held."""
        if self._behind_mark.exists():
            return "it does not have all stored documents yet"
        return self.find_damage()

    @property
    def holds_given_vectors(self) -> bool:
        """True if the copy has vectors that clients gave.

        Then it is read even if nothing is uncommitted, and no view of a revision is derived from
        it.
        """
        return has_given_vectors(self.path)

    @property
    def is_unfinished(self) -> bool:
        """True if a writer was interrupted, or left work to the next reader."""
        return self._behind_mark.exists() or self._mark.exists()

    def find_damage(self) -> str:
        """Return why the copy cannot be updated; empty if it can."""
        if self._mark.exists():
            return "its writer was interrupted"
        return find_index_problem(self.path, revision=self.base)

    @contextlib.contextmanager
    def lock_for_reading(self) -> Iterator[str]:
        """Keep the copy unchanged during the block. Yield the result of `find_problem`."""
        with locks.hold_shared(self._lock, purpose="read uncommitted documents", timeout=self._timeout):
            yield self.find_problem()

    @contextlib.contextmanager
    def lock_for_writing(self) -> Iterator[CopyState]:
        """Hold the copy exclusively. Yield its state before.

        If the state is `gone`, an unusable copy was deleted, and the block has to build a new one.
        The mark of the writer stays if the block raises an error.
        """
        with locks.hold_exclusive(self._lock, purpose="write uncommitted documents", timeout=self._timeout):
            usable = not self.find_damage()
            if not usable:
                self.remove_copy()
            behind = self._behind_mark.exists()
            permissions.make_file(self._mark)
            # Remove the mark before rows are read: a writer that stores more rows sets it again.
            self._behind_mark.unlink(missing_ok=True)
            yield "gone" if not usable else "behind" if behind else "current"
            self._mark.unlink()

    @contextlib.contextmanager
    def defer_update(self) -> Iterator[None]:
        """Mark the copy as behind while the block stores documents. The next read updates the copy.

        This never waits for the lock. Another process may be updating the copy and may have read
        the rows before the new ones were stored, so in this case the mark is set again at the end.
        """
        with contextlib.ExitStack() as stack:
            is_locked = True
            try:
                stack.enter_context(locks.hold_exclusive(self._lock, purpose="write uncommitted documents", timeout=0))
            except Busy:
                is_locked = False
            if self.path.is_dir() or not is_locked:
                permissions.make_file(self._behind_mark)
            yield
            if not is_locked:
                permissions.make_file(self._behind_mark)

    def rebuild_copy(self, build: Callable[[Path], None]) -> None:
        """Replace the copy by one that `build` creates, or keep the copy if that fails."""
        temporary = self.path.with_name(f"{self.path.name}.new")
        lock = temporary.with_name(f"{temporary.name}.lock")
        purpose = "build uncommitted documents again"
        with locks.hold_exclusive(self._lock, purpose=purpose, timeout=self._timeout):
            with locks.hold_exclusive(lock, purpose=purpose, timeout=self._timeout):
                remove_path(temporary)
                try:
                    build(temporary)
                    permissions.make_file(self._mark)
                    self.remove_copy()
                    temporary.rename(self.path)
                finally:
                    remove_path(temporary)
                    lock.unlink(missing_ok=True)
            self._behind_mark.unlink(missing_ok=True)
            self._mark.unlink()

    def remove_copy(self) -> None:
        """Delete the copy. The caller holds the lock."""
        remove_path(self.path)


def remove_unused_copies(root: Path, *, needed: Callable[[], Collection[Path]]) -> None:
    """Remove copies that no process uses and that are no longer needed, such as those of committed
    documents.
    """
    folders = [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    if not folders:
        return
    needed_paths = needed()
    for path in folders:
        lock = path.with_name(path.name + ".lock")
        if path not in needed_paths:
            with contextlib.suppress(Busy), locks.hold_exclusive(lock, purpose="remove unused files", timeout=0):
                remove_path(path)
                for mark in (".writing", ".behind"):
                    path.with_name(path.name + mark).unlink(missing_ok=True)
