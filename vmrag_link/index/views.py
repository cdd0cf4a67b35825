"""The views of revisions, shared by all work trees, and the segments that views share.

    views/<revision>-<format>/
    segments/<random>-<format>/     segments.lock beside them

What is in one: `view`, `segment`. How they are made, read and removed: `directories`.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from vmrag_link import locks, paths
from vmrag_link.errors import Busy, IndexFailed
from vmrag_link.index import seal
from vmrag_link.index import view as views
from vmrag_link.index.directories import BUILDING_PREFIX, READ_TIMEOUT, Directories, lock_path
from vmrag_link.index.view import SUFFIX, find_index_problem
from vmrag_link.models import Record

MOST_SPARE = 100
"""Views that no work tree is bound to: each is looked at after each sync."""


OTHER_FORMAT_SECONDS = 14 * 86_400
"""How long views and segments of other formats stay after their last use."""


class RevisionView(Record, frozen=True):
    """One view on the disk, verified or not."""

    path: Path
    revision: str


class Segments(Directories):
    """The folder of all segments that some views share."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, kind="segment")

    def _new_path(self) -> Path:
        return self.root / f"{os.urandom(8).hex()}-{SUFFIX}"

    def publish(self, built: Path, *, durable: bool = True) -> str:
        """Give a finished segment a name, and return it. `durable`: it survives a power cut."""
        path = self._new_path()
        if durable:
            seal.sync_folder(built)
        built.rename(path)
        if durable:
            paths.sync_to_disk(self.root)
        return path.name

    @contextlib.contextmanager
    def pause_collection(self) -> Iterator[None]:
        """Hold off `collect` while a view is derived, from before its base is read until it lies
        where `collect` looks.
        """
        with locks.hold_shared(lock_path(self.root), purpose="build an index", timeout=READ_TIMEOUT):
            yield

    def collect_garbage(self, roots: Collection[Path]) -> list[Path]:
        """Remove the segments that no view below `roots` counts, unless a view is being derived.

        Returns what was removed. Readers hold their view, and a view that is being read stays.
        """
        if not self.list_spare(roots):
            return []
        try:
            with locks.hold_exclusive(lock_path(self.root), purpose="remove segments", timeout=0):
                gone = self.list_spare(roots)
                for path in gone:
                    self.remove_segment(path)
                return gone
        except Busy:
            return []

    def remove_segment(self, path: Path) -> None:
        """Remove a segment that no view counts."""
        with self.trash_folder() as trash, contextlib.suppress(FileNotFoundError):
            path.rename(trash)

    def list_spare(self, roots: Collection[Path], *, without: Collection[Path] = ()) -> list[Path]:
        """What `collect` would remove, if these views went, too."""
        there = [path for path in self.list_newest_first() if not _of_other_format(path)]
        # Those without a name, too: a view lies there until its maker gives it one.
        found = [view for root in roots if there for view in _list_folders(root) if view not in without]
        named = {name for view in found for name in list_segments(view)}
        spare = [path for path in there if path.name not in named]
        # Their seals say it quickly; what no checksum covers is not enough to remove something for.
        counted = {part.segment for view in found if spare for part in _read_parts(view)}
        return [path for path in spare if path.name not in counted]


class MemorySegments(Segments):
    """Segments that this process keeps in memory, beside those on the disk."""

    @contextlib.contextmanager
    def pause_collection(self) -> Iterator[None]:
        """Hold off other threads of this process: no other process sees these segments."""
        from vmrag_link.index import storage

        with storage.MAKING_LOCK:
            yield

    @contextlib.contextmanager
    def temporary_folder(self) -> Iterator[Path]:
        """Yield a new folder in memory."""
        with temporary_memory_folder(self.root) as folder:
            yield folder

    def publish(self, built: Path, *, durable: bool = True) -> str:
        """Give a finished segment a name, and return it."""
        del durable
        from vmrag_link.index import storage

        path = self._new_path()
        storage.rename_memory_folder(built, path)
        return path.name


class Views(Directories):
    """The views of all revisions of a knowledge base."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, kind="view of the index")

    @property
    def segments(self) -> Segments:
        return Segments(self.root.with_name("segments"))

    def view_path(self, revision: str) -> Path:
        return self.root / f"{revision}-{SUFFIX}"

    def find_problem(self, revision: str) -> str:
        """Why there is no usable view of the revision; empty when there is one."""
        return find_index_problem(self.view_path(revision), revision=revision)

    def list_views(self) -> list[RevisionView]:
        """Every view of this format; the most recently bound or built first."""
        ending = f"-{SUFFIX}"
        names = (
            (path, path.name.removesuffix(ending)) for path in self.list_newest_first() if path.name.endswith(ending)
        )
        return [RevisionView(path, revision) for path, revision in names]

    def publish(self, built: Path, revision: str) -> Path:
        """Give a sealed index its name. A usable one of that name is success, too."""
        target = self.view_path(revision)
        seal.sync_folder(built)
        self.move_into_place(built, target, problem=lambda: self.find_problem(revision))
        return target

    def swap_view(self, built: Path, path: Path, *, unless: Callable[[], bool]) -> bool:
        """Put a sealed view in the place of one that nobody reads, `unless` something is so by
        then; returns whether it was done. Raises `Busy`.
        """
        seal.sync_folder(built)
        with self.trash_folder() as trash:
            with locks.hold_exclusive(lock_path(path), purpose="replace a view of the index", timeout=0):
                if unless():
                    return False
                path.rename(trash)
                built.rename(path)
            paths.sync_to_disk(self.root)
        return True

    def replace_view(self, built: Path, revision: str, *, timeout: float) -> Path:
        """Replace an index by a sealed one once nobody reads it. Raises `Busy`; then nothing has
        changed.
        """
        target = self.view_path(revision)
        seal.sync_folder(built)
        with self.trash_folder() as trash:
            try:
                with locks.hold_exclusive(lock_path(target), purpose="replace a view of the index", timeout=timeout):
                    with contextlib.suppress(FileNotFoundError):
                        target.rename(trash)
                    built.rename(target)
                paths.sync_to_disk(self.root)
            except Busy as error:
                raise Busy(
                    f"The index of {revision[:7]} cannot be replaced now: another process reads it.",
                    hint="Run 'vmrag sync --rebuild' again when that has finished.",
                    path=str(target),
                    **{key: value for key, value in error.details.items() if key != "path"},
                ) from None
        return target

    def list_spare(self, *, bound: Collection[Path], keep_bytes: int) -> list[Path]:
        """The views that `evict` would remove: but for the bound ones, the latest whose segments
        together take so many bytes beside theirs stay, `MOST_SPARE` at most.
        """
        counted = {name for path in bound for name in list_segments(path)}
        spare, kept, taken = [], 0, 0
        for path in self.list_newest_first():
            if path in bound or _of_other_format(path):
                continue
            more = {name: size for name, size in list_segments(path).items() if name not in counted}
            if kept == MOST_SPARE or taken + sum(more.values()) > keep_bytes:
                spare.append(path)
            else:
                counted |= more.keys()
                kept += 1
                taken += sum(more.values())
        return spare

    def evict_spare(self, *, bound: Callable[[], Collection[Path]], keep_bytes: int) -> list[Path]:
        """`bound` is called again under each view's lock, which a process holds while it binds
        one.
        """
        return [
            path
            for path in self.list_spare(bound=bound(), keep_bytes=keep_bytes)
            if self.remove_if_unused(path, unless=bound)
        ]


class MemoryViews(Views):
    """Views that this process keeps in memory, beside those on the disk.

    A view on the disk can be the base of one in memory. Other processes can remove that base: a
    reader that misses a segment looks again.
    """

    @property
    def segments(self) -> Segments:
        return MemorySegments(self.root.with_name("segments"))

    def list_views(self) -> list[RevisionView]:
        from vmrag_link.index import storage

        kept = storage.list_memory_folders(self.root)
        return [*(RevisionView(path, path.name.removesuffix(f"-{SUFFIX}")) for path in kept), *super().list_views()]

    @contextlib.contextmanager
    def temporary_folder(self) -> Iterator[Path]:
        """Yield a new folder in memory."""
        with temporary_memory_folder(self.root) as folder:
            yield folder

    def publish(self, built: Path, revision: str) -> Path:
        """Give a finished view its name."""
        target = self.view_path(revision)
        self.move_into_place(built, target, problem=lambda: "")
        return target

    def move_into_place(self, built: Path, target: Path, *, problem: Callable[[], str]) -> None:
        """Give a finished view its name, and remove the others without a reader."""
        del problem
        from vmrag_link.index import storage

        storage.rename_memory_folder(built, target)
        for path in storage.list_memory_folders(self.root):
            if path != target:
                storage.remove_memory_folder(path)


@contextlib.contextmanager
def temporary_memory_folder(root: Path) -> Iterator[Path]:
    from vmrag_link.index import storage

    folder = root / f"{BUILDING_PREFIX}{os.urandom(6).hex()}"
    storage.make_memory_folder(folder)
    try:
        yield folder
    finally:
        storage.remove_memory_folder(folder)
        _forget_segments(root.with_name("segments"))


def _forget_segments(root: Path) -> None:
    """Remove the segments from memory that no view in memory counts."""
    from vmrag_link.index import storage

    with storage.MAKING_LOCK:
        counted = {
            part.segment for folder in seal.MEMORY_FOLDERS if folder.parent != root for part in _read_parts(folder)
        }
        for path in storage.list_memory_folders(root):
            if path.name not in counted and not path.name.startswith(BUILDING_PREFIX):
                storage.remove_memory_folder(path)


def _list_folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.suffix not in (".lock", ".holder")] if root.is_dir() else []


def _of_other_format(path: Path) -> bool:
    """Whether it is another version's of the program, which may still answer from it."""
    if path.name.endswith(f"-{SUFFIX}"):
        return False
    with contextlib.suppress(OSError):
        return time.time() - path.stat().st_mtime < OTHER_FORMAT_SECONDS
    return True


def _read_parts(view: Path) -> Sequence[views.ViewPart]:
    with contextlib.suppress(IndexFailed):
        return views.read_view(view).parts
    return ()


def list_segments(view: Path) -> Mapping[str, int]:
    """The segments that a view counts, with their bytes; none of one that cannot be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError, msgspec.DecodeError):
        return seal.read_seal(view).segments
    return {}
