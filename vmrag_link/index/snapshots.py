"""Snapshots: complete, immutable indexes of one revision and `settings`, shared by all work trees.

    snapshots/<revision>-<settings>/    with <revision>-<settings>.lock beside it
    snapshots/.building-<random>/       one that is being made, locked by its maker

Readers and copiers share a snapshot's lock; removing one takes it alone, without waiting. The lock
file stays until `vmrag gc` finds it alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import sys
import time
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from vmrag_link import locks, paths, permissions, proc
from vmrag_link.chroma.bindings import DATABASE_FILE
from vmrag_link.errors import Busy, FileFailed, IndexFailed
from vmrag_link.index import seal
from vmrag_link.index.contents import FORMAT, problem_of, unusable
from vmrag_link.models import Record, canonical_json

BUILDING = ".building-"
READ_TIMEOUT = 30.0
STALE_SECONDS = 600


class Snapshot(Record, frozen=True):
    """One snapshot on the disk, verified or not."""

    path: Path
    revision: str
    settings: str


def settings_hash(*, store_documents: bool) -> str:
    """Eight hex digits of everything that decides an index besides a revision's own rows.

    The rows name models, chunking and distances. A checksum suffices for the few possible values,
    and saves every checkout from loading cryptography.
    """
    return f"{zlib.crc32(canonical_json({'format': FORMAT, 'store_documents': store_documents}).encode()):08x}"


class Snapshots:
    """The folder of all snapshots of a knowledge base, under the present settings."""

    def __init__(self, root: Path, *, store_documents: bool) -> None:
        self.root = root
        self.store_documents = store_documents
        self.settings = settings_hash(store_documents=store_documents)

    def path(self, revision: str) -> Path:
        return self.root / f"{revision}-{self.settings}"

    def problem(self, revision: str) -> str:
        """Why there is no usable snapshot of the revision; empty when there is one."""
        return problem_of(self.path(revision), revision=revision, settings=self.settings)

    def all(self) -> list[Snapshot]:
        """Every snapshot, of other settings too; the most recently bound or built first."""
        if not self.root.is_dir():
            return []
        found: list[tuple[int, Path]] = []
        for path in self.root.iterdir():
            if path.is_dir() and "-" in path.name and not path.name.startswith("."):
                with contextlib.suppress(FileNotFoundError):  # another process evicts it right now
                    found.append((path.stat().st_mtime_ns, path))
        return [Snapshot(path, *path.name.rsplit("-", 1)) for _, path in sorted(found, reverse=True)]

    @contextlib.contextmanager
    def reading(self, path: Path) -> Iterator[None]:
        with locks.shared(_lock(path), purpose="read a snapshot", timeout=READ_TIMEOUT):
            yield

    def touch(self, path: Path) -> None:
        """Note the use of a snapshot; eviction takes the least recently used."""
        with contextlib.suppress(OSError):
            path.touch()

    # -- making ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def building(self) -> Iterator[Path]:
        """A new path to build at; the builder makes the directory. It is removed at the end unless
        published.
        """
        folder = self.root / f"{BUILDING}{os.urandom(6).hex()}"
        with locks.exclusive(_lock(folder), purpose="build a snapshot", timeout=0):
            try:
                yield folder
            finally:
                remove(folder)
                _lock(folder).unlink(missing_ok=True)  # a random name: nobody waits for it

    def publish(self, built: Path, revision: str) -> Path:
        """Give a sealed index its name. A usable one of that name is success, too."""
        target = self.path(revision)
        seal.write_through(built)
        while self.problem(revision):
            try:
                built.rename(target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
                if not self.discard(target):
                    raise IndexFailed(
                        f"The snapshot {target.name} does not verify and cannot be replaced: another process reads it.",
                        hint="Run 'vmrag sync' again when the other process has finished.",
                        path=str(target),
                    ) from None
            else:
                paths.fsync(self.root)
                break
        return target

    def replace(self, built: Path, revision: str, *, timeout: float) -> Path:
        """Replace an index by a sealed one once nobody reads it. Raises `Busy`; then nothing has
        changed.
        """
        target = self.path(revision)
        seal.write_through(built)
        with self._trash() as trash:
            try:
                with locks.exclusive(_lock(target), purpose="replace a snapshot", timeout=timeout):
                    with contextlib.suppress(FileNotFoundError):
                        target.rename(trash)
                    built.rename(target)
                paths.fsync(self.root)
            except Busy as error:
                raise Busy(
                    f"The index of {revision[:7]} cannot be replaced now: another process reads it.",
                    hint="Run 'vmrag sync --rebuild' again when that has finished.",
                    path=str(target),
                    **{key: value for key, value in error.details.items() if key != "path"},
                ) from None
        return target

    # -- removing ----------------------------------------------------------------------------------

    def discard(self, path: Path, *, unless: Callable[[], Collection[Path]] = tuple) -> bool:
        """Remove a snapshot. Returns False if it has a reader or is among `unless` by then."""
        try:
            with locks.exclusive(_lock(path), purpose="remove a snapshot", timeout=0):
                if path in unless():
                    return False
                with self._trash() as trash, contextlib.suppress(FileNotFoundError):
                    path.rename(trash)
        except Busy:
            return False
        return True

    @contextlib.contextmanager
    def _trash(self) -> Iterator[Path]:
        """A path for removed files. It is deleted with the block or, after a kill, by the next
        sweep.
        """
        trash = self.root / f"{BUILDING}{os.urandom(6).hex()}"
        with locks.exclusive(_lock(trash), purpose="remove a snapshot", timeout=0):
            try:
                yield trash
            finally:
                remove(trash)
                _lock(trash).unlink(missing_ok=True)

    def spare(self, *, bound: Collection[Path], keep: int) -> list[Snapshot]:
        """The snapshots that `evict` would remove: all but the bound ones and the `keep` most
        recent others.
        """
        return [each for each in self.all() if each.path not in bound][keep:]

    def evict(self, *, bound: Callable[[], Collection[Path]], keep: int) -> list[Snapshot]:
        """`bound` is called again under each snapshot's lock, which a process holds while it binds
        one.
        """
        return [each for each in self.spare(bound=bound(), keep=keep) if self.discard(each.path, unless=bound)]

    def unfinished(self) -> list[Path]:
        """What builders are at, or left when they were killed."""
        return [each for each in sorted(self.root.glob(f"{BUILDING}*")) if each.is_dir()]

    def sweep(self) -> list[Path]:
        """Remove what killed builders left; those at work hold their lock."""
        swept = []
        for folder in self.unfinished():
            if self.discard(folder):
                _lock(folder).unlink(missing_ok=True)
                swept.append(folder)
        for lock in self.root.glob(f"{BUILDING}*.lock"):  # of builders that were killed when their directory was gone
            with contextlib.suppress(FileNotFoundError):
                if time.time() - lock.stat().st_mtime > STALE_SECONDS and not lock.with_suffix("").exists():
                    lock.unlink()
        return swept


def copy(source: Path, target: Path) -> None:
    """Copy an index directory that others may read meanwhile; shares blocks where the file system
    can.

    The copy is verified: no index is made from a damaged one. Raises `IndexFailed`, `FileFailed`.

    Even a reader's query writes a row into Chroma's database. A read transaction keeps such writers
    out while another process copies the bytes: closing the file in this one would drop the locks
    that SQLite holds on it.
    """
    clone = ["-c"] if sys.platform == "darwin" else ["--reflink=auto"]
    try:
        location = f"{(source / 'chroma' / DATABASE_FILE).absolute().as_uri()}?mode=rw"
        with contextlib.closing(sqlite3.connect(location, uri=True, timeout=READ_TIMEOUT)) as database:
            database.execute("BEGIN")
            database.execute("SELECT count(*) FROM sqlite_master")
            copied = proc.run(["cp", "-R", *clone, str(source), str(target)])
    except sqlite3.Error as error:
        raise IndexFailed(f"The index {source.name} cannot be copied: {error}.", hint="vmrag sync --rebuild") from error
    if copied.returncode:
        raise FileFailed(
            f"The index {source.name} cannot be copied: {copied.failure.splitlines()[0]}",
            hint="Run the command again."
            if copied.killed_by
            else f"Make room on the disk of {target.parent} ('vmrag gc --apply' removes spare snapshots).",
        )
    permissions.settle(target)
    if problem := seal.mismatch(target):
        seal.distrust(source)
        raise unusable(source, problem)
    if seal.chroma_is_proven(source):
        seal.note_chroma(target)


def lonely(root: Path) -> list[Path]:
    """Files beside an index that is gone: its lock, the holder, the mark of a killed writer."""
    if not root.is_dir():
        return []
    files = (path for path in root.iterdir() if ".lock" in path.suffixes or path.suffix == ".writing")
    gone = (path for path in files if path.is_file() and not _index_of(path).exists())
    return sorted(path for path in gone if not locks.holder(_lock(_index_of(path))))


def remove_orphaned_lock(path: Path) -> None:
    """Remove one of them, unless somebody is about to make the index. Waiters for the lock notice
    (`locks`).
    """
    index = _index_of(path)
    with contextlib.suppress(Busy), locks.exclusive(_lock(index), purpose="sweep", timeout=0):
        if not index.exists():
            path.unlink(missing_ok=True)
            _lock(index).unlink(missing_ok=True)


def _index_of(beside: Path) -> Path:
    name = beside.name.removesuffix(".holder").removesuffix(".lock").removesuffix(".writing")
    return beside.with_name(name)


def _lock(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def remove(folder: Path) -> None:
    """Remove an index directory, or a file in its place, that nobody else uses. A missing one is
    fine.
    """
    if folder.is_dir():
        import shutil

        shutil.rmtree(folder)
    else:
        folder.unlink(missing_ok=True)
