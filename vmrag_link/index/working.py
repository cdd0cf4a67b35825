"""The working copy: the index of a KB branch's uncommitted documents.

<git common dir>/vmrag/uncommitted/<key>/      a view, + <key>.lock; <key>.writing while somebody
writes, <key>.behind until it has followed

It is keyed by (KB branch, base revision, format), and shared like the uncommitted documents
themselves: their code branch may be checked out in one work tree today and in another one tomorrow.
A writer holds the lock alone from before the documents are stored until the index has followed;
readers hold it together. A `writing` mark that nobody's lock stands behind means that a writer was
killed: the copy is thrown away and made again from the revision's view and the uncommitted rows.
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
"""Whether a copy holds all documents that are stored, not yet some, or nothing that can be used."""


class WorkingCopy:
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
    def _behind(self) -> Path:
        return self.path.with_name(self.path.name + ".behind")

    def find_problem(self) -> str:
        """Why the copy must not be read; empty if it may, for as long as the lock is held."""
        if self._behind.exists():
            return "documents were stored that it does not hold yet"
        return self.find_damage()

    @property
    def holds_given_vectors(self) -> bool:
        """Whether it has vectors that clients gave. Then it is read even if nothing is uncommitted,
        and no revision's view is derived from it.
        """
        return has_given_vectors(self.path)

    @property
    def is_unfinished(self) -> bool:
        """Whether a writer did not come to its end, or left it to the next reader."""
        return self._behind.exists() or self._mark.exists()

    def find_damage(self) -> str:
        """Why it cannot be gone on from."""
        if self._mark.exists():
            return "its writer was interrupted"
        return find_index_problem(self.path, revision=self.base)

    @contextlib.contextmanager
    def lock_for_reading(self) -> Iterator[str]:
        """Keep the copy unchanged during the block. Yields its `problem`."""
        with locks.hold_shared(self._lock, purpose="read uncommitted documents", timeout=self._timeout):
            yield self.find_problem()

    @contextlib.contextmanager
    def lock_for_writing(self) -> Iterator[CopyState]:
        """Hold the copy alone. Yields how it stood; one that is `gone` was removed, if it could not
        be used, and has to be made.

        The mark is removed only when the block ends without an error.
        """
        with locks.hold_exclusive(self._lock, purpose="write uncommitted documents", timeout=self._timeout):
            usable = not self.find_damage()
            if not usable:
                self.remove_copy()
            behind = self._behind.exists()
            permissions.make_file(self._mark)
            # Before any row is read: a writer that stores some from here on puts it there again.
            self._behind.unlink(missing_ok=True)
            yield "gone" if not usable else "behind" if behind else "current"
            self._mark.unlink()

    @contextlib.contextmanager
    def defer_update(self) -> Iterator[None]:
        """Mark the copy as behind while documents are stored that it will follow with the next
        read.

        Nobody waits: a copy that is being brought on may have read the rows before these, so it is
        marked again when they are stored.
        """
        with contextlib.ExitStack() as held:
            alone = True
            try:
                held.enter_context(locks.hold_exclusive(self._lock, purpose="write uncommitted documents", timeout=0))
            except Busy:
                alone = False
            if self.path.is_dir() or not alone:
                permissions.make_file(self._behind)
            yield
            if not alone:
                permissions.make_file(self._behind)

    def rebuild_copy(self, make: Callable[[Path], None]) -> None:
        """Replace the copy by the result of `make`, or keep it if that fails."""
        beside = self.path.with_name(f"{self.path.name}.new")
        lock = beside.with_name(f"{beside.name}.lock")
        purpose = "build uncommitted documents again"
        with locks.hold_exclusive(self._lock, purpose=purpose, timeout=self._timeout):
            with locks.hold_exclusive(lock, purpose=purpose, timeout=self._timeout):
                remove_path(beside)
                try:
                    make(beside)
                    permissions.make_file(self._mark)
                    self.remove_copy()
                    beside.rename(self.path)
                finally:
                    remove_path(beside)
                    lock.unlink(missing_ok=True)
            self._behind.unlink(missing_ok=True)
            self._mark.unlink()

    def remove_copy(self) -> None:
        """Throw the copy away (call it while holding the lock)."""
        remove_path(self.path)


def remove_unused_copies(root: Path, *, needed: Callable[[], Collection[Path]]) -> None:
    """Remove unused copies that are not needed any more, such as those of committed documents."""
    there = [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    if not there:
        return
    keep = needed()
    for path in there:
        lock = path.with_name(path.name + ".lock")
        if path not in keep:
            with contextlib.suppress(Busy), locks.hold_exclusive(lock, purpose="sweep", timeout=0):
                remove_path(path)
                for mark in (".writing", ".behind"):
                    path.with_name(path.name + mark).unlink(missing_ok=True)
