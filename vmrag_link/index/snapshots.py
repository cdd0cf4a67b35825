"""Snapshots: complete, immutable indexes of one revision, shared by all work trees.

    snapshots/<revision>-<format>/

How they are made, read and removed: `directories`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from vmrag_link import locks, paths
from vmrag_link.errors import Busy
from vmrag_link.index import seal
from vmrag_link.index.directories import Directories, copy_tree, lock_of
from vmrag_link.index.verify import SUFFIX, problem_of, unusable
from vmrag_link.models import Record
from vmrag_link.thread_task import ThreadTask

LARGE = 1_000_000
"""Bytes of a file that is worth a thread of its own."""


class Snapshot(Record, frozen=True):
    """One snapshot on the disk, verified or not; `format` is its `verify.SUFFIX`."""

    path: Path
    revision: str
    format: str


class Snapshots(Directories):
    """The folder of all snapshots of a knowledge base."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, kind="snapshot")

    def path(self, revision: str) -> Path:
        return self.root / f"{revision}-{SUFFIX}"

    def problem(self, revision: str) -> str:
        """Why there is no usable snapshot of the revision; empty when there is one."""
        return problem_of(self.path(revision), revision=revision)

    def all(self) -> list[Snapshot]:
        """Every snapshot, of other formats too; the most recently bound or built first."""
        return [Snapshot(path, *path.name.rsplit("-", 1)) for path in self.newest()]

    def publish(self, built: Path, revision: str) -> Path:
        """Give a sealed index its name. A usable one of that name is success, too."""
        target = self.path(revision)
        seal.write_through(built)
        self.name(built, target, problem=lambda: self.problem(revision))
        return target

    def replace(self, built: Path, revision: str, *, timeout: float) -> Path:
        """Replace an index by a sealed one once nobody reads it. Raises `Busy`; then nothing has
        changed.
        """
        target = self.path(revision)
        seal.write_through(built)
        with self.trash() as trash:
            try:
                with locks.exclusive(lock_of(target), purpose="replace a snapshot", timeout=timeout):
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


def copy(source: Path, target: Path) -> None:
    """Copy an index directory that nobody changes meanwhile.

    Raises `FileFailed`, and `IndexFailed` for a damaged one.
    """
    with _proven(source):
        copy_tree(source, target)


@contextlib.contextmanager
def copied(source: Path, target: Path, *, meanwhile: Callable[[], object]) -> Iterator[None]:
    """As `copy`, for a copy that is changed in the block and then published.

    `meanwhile` is called while the bytes are copied. Nobody may change the source before the end.
    """
    with _proven(source):
        copy_tree(source, target, meanwhile=meanwhile)
        # Most of it stays as it is, so that little is left to write when it is published.
        written = ThreadTask(lambda: _write_large(target))
        yield
        written.result()


@contextlib.contextmanager
def _proven(source: Path) -> Iterator[None]:
    """Read every byte of an index beside the block. If it is damaged, nothing that the block makes
    of it or raises counts: `IndexFailed`.
    """
    if not source.is_dir():
        raise unusable(source, "it is not there")
    proof = ThreadTask(lambda: seal.mismatch(source))
    try:
        yield
    except Exception as error:
        if problem := proof.result():
            raise unusable(source, problem) from error
        raise
    if problem := proof.result():
        raise unusable(source, problem)


def _write_large(folder: Path) -> None:
    for path in list(folder.iterdir()):
        with contextlib.suppress(FileNotFoundError):  # a collection's, which goes
            if path.stat().st_size >= LARGE:
                paths.fsync(path)
