"""The views of revisions, which all work trees share, and the segments that views share.

    views/<revision>-<format>/
    segments/<random>-<format>/     with `segments.lock` next to the folder

`view` and `segment` describe the contents, and `directories` how they are built, read and removed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from vmrag_link import file_access, locks
from vmrag_link.errors import Busy, FileFailed, IndexFailed
from vmrag_link.index import seal
from vmrag_link.index import view as views
from vmrag_link.index.directories import BUILDING_PREFIX, READ_TIMEOUT, Directories, lock_path
from vmrag_link.index.view import SUFFIX, find_index_problem
from vmrag_link.models import Record

MOST_SPARE = 100
"""Maximum number of views that no work tree uses. Each of them is checked after each sync."""


TURN_SECONDS = 1.0
"""How long a process waits for another one that builds the same view. Views of a few new documents
take less.
"""

OTHER_FORMAT_SECONDS = 14 * 86_400
"""How long views and segments of other formats are kept after their last use."""


class RevisionView(Record, frozen=True):
    """A view of a revision, verified or not."""

    path: Path
    revision: str


class Segments(Directories):
    """The folder of all segments that views share."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, kind="segment")

    def _new_path(self) -> Path:
        return self.root / f"{os.urandom(8).hex()}-{SUFFIX}"

    def publish(self, built: Path, *, durable: bool = True) -> str:
        """Give a finished segment its final name, and return the name.

        `durable`: the segment survives a power cut.
        """
        path = self._new_path()
        if durable:
            seal.sync_folder(built)
        built.rename(path)
        if durable:
            file_access.sync_to_disk(self.root)
        return path.name

    @contextlib.contextmanager
    def pause_collection(self) -> Iterator[None]:
        """Keep `collect_garbage` from removing segments while a view is derived.

        Hold it from before the base is read until the view is in a folder that `collect_garbage`
        reads.
        """
        with locks.hold_shared(lock_path(self.root), purpose="build an index", timeout=READ_TIMEOUT):
            yield

    def collect_garbage(self, roots: Collection[Path]) -> list[Path]:
        """Remove the segments that no view below `roots` uses, and return them.

        Nothing is removed while a view is derived. A view that is being read is not removed, so its
        segments stay.
        """
        if not self.list_spare(roots):
            return []
        try:
            with locks.hold_exclusive(lock_path(self.root), purpose="remove segments", timeout=0):
                spare = self.list_spare(roots)
                for path in spare:
                    self.remove_segment(path)
                return spare
        except Busy:
            return []

    def remove_segment(self, path: Path) -> None:
        """Remove a segment that no view uses."""
        with self.trash_folder() as trash, contextlib.suppress(FileNotFoundError):
            path.rename(trash)

    def list_spare(self, roots: Collection[Path], *, without: Collection[Path] = ()) -> list[Path]:
        """Return the segments that `collect_garbage` would remove if the views `without` were
        removed.
        """
        segments = [path for path in self.list_newest_first() if not _is_kept_for_other_version(path)]
        # This includes unfinished views: a view has a temporary name until it is published.
        view_folders = [view for root in roots if segments for view in _list_folders(root) if view not in without]
        sealed = {name for view in view_folders for name in list_segments(view)}
        spare = [path for path in segments if path.name not in sealed]
        # The seals are quick to read, but no checksum covers their lists. So the views decide.
        used = {part.segment for view in view_folders if spare for part in _read_parts(view)}
        return [path for path in spare if path.name not in used]


class MemorySegments(Segments):
    """Segments that this process keeps in memory, in addition to those on the disk."""

    @contextlib.contextmanager
    def pause_collection(self) -> Iterator[None]:
        """Block other threads of this process. No other process sees these segments."""
        from vmrag_link.index import storage

        with storage.MAKING_LOCK:
            yield

    @contextlib.contextmanager
    def temporary_folder(self) -> Iterator[Path]:
        """Yield a new folder in memory."""
        with temporary_memory_folder(self.root) as folder:
            yield folder

    def publish(self, built: Path, *, durable: bool = True) -> str:
        """Give a finished segment its final name, and return the name."""
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
        """Return why there is no usable view of the revision; empty if there is one."""
        return find_index_problem(self.view_path(revision), revision=revision)

    @contextlib.contextmanager
    def hold_turn(self, revision: str, *, timeout: float) -> Iterator[None]:
        """Let one process at a time build the view of a revision. The others find it finished.

        If the other process takes longer than `timeout` or `TURN_SECONDS`, or the lock file cannot
        be written, the block builds the view at the same time. If there is a usable view, nothing
        is locked. Other locks may be held, because each wait is short.
        """
        with contextlib.ExitStack() as held:
            if self.find_problem(revision):
                turn = lock_path(self.root / f"{BUILDING_PREFIX}{revision}")
                with contextlib.suppress(Busy, FileFailed):
                    held.enter_context(
                        locks.hold_exclusive(turn, purpose=f"build a {self._kind}", timeout=min(timeout, TURN_SECONDS))
                    )
                    held.callback(_remove_lock, turn)
            yield

    def list_views(self) -> list[RevisionView]:
        """Return all views of the current format. The most recently used or built is first."""
        ending = f"-{SUFFIX}"
        names = (
            (path, path.name.removesuffix(ending)) for path in self.list_newest_first() if path.name.endswith(ending)
        )
        return [RevisionView(path, revision) for path, revision in names]

    def publish(self, built: Path, revision: str) -> Path:
        """Give a sealed view its final name, unless a usable view of the revision exists. Return
        its path.
        """
        target = self.view_path(revision)
        seal.sync_folder(built)
        self.move_into_place(built, target, problem=lambda: self.find_problem(revision))
        return target

    def swap_view(self, built: Path, path: Path, *, unless: Callable[[], bool]) -> bool:
        """Replace a view by a sealed one, and return whether it was replaced.

        Nothing is replaced if `unless` returns True once the lock is held. Raises `Busy` if another
        process reads the view.
        """
        seal.sync_folder(built)
        with self.trash_folder() as trash:
            with locks.hold_exclusive(lock_path(path), purpose="replace a view of the index", timeout=0):
                if unless():
                    return False
                path.rename(trash)
                built.rename(path)
            file_access.sync_to_disk(self.root)
        return True

    def replace_view(self, built: Path, revision: str, *, timeout: float) -> Path:
        """Replace the view of a revision by a sealed one once no process reads it. Return its path.

        Raises `Busy` after `timeout` seconds. Then the old view is unchanged.
        """
        target = self.view_path(revision)
        seal.sync_folder(built)
        with self.trash_folder() as trash:
            try:
                with locks.hold_exclusive(lock_path(target), purpose="replace a view of the index", timeout=timeout):
                    with contextlib.suppress(FileNotFoundError):
                        target.rename(trash)
                    built.rename(target)
                file_access.sync_to_disk(self.root)
            except Busy as error:
                raise Busy(
                    f"cannot replace the index of revision {revision[:7]}: another process reads it.",
                    hint="run 'vmrag sync --rebuild' again when the other process has finished",
                    path=str(target),
                    **{key: value for key, value in error.details.items() if key != "path"},
                ) from None
        return target

    def list_spare(self, *, bound: Collection[Path], keep_bytes: int) -> list[Path]:
        """Return the views that `evict_spare` would remove.

        `bound` views are kept. So are the most recently used ones, at most `MOST_SPARE`, whose
        segments take at most `keep_bytes` in addition to those of the bound views.
        """
        kept_segments = {name for path in bound for name in list_segments(path)}
        spare, kept, kept_bytes = [], 0, 0
        for path in self.list_newest_first():
            if path in bound or _is_kept_for_other_version(path):
                continue
            more = {name: size for name, size in list_segments(path).items() if name not in kept_segments}
            if kept == MOST_SPARE or kept_bytes + sum(more.values()) > keep_bytes:
                spare.append(path)
            else:
                kept_segments |= more.keys()
                kept += 1
                kept_bytes += sum(more.values())
        return spare

    def evict_spare(self, *, bound: Callable[[], Collection[Path]], keep_bytes: int) -> list[Path]:
        """Remove the views of `list_spare`, and return them.

        `bound` is called again under the lock of each view, because a process holds this lock while
        it binds a view.
        """
        return [
            path
            for path in self.list_spare(bound=bound(), keep_bytes=keep_bytes)
            if self.remove_if_unused(path, unless=bound)
        ]


class MemoryViews(Views):
    """Views that this process keeps in memory, in addition to those on the disk.

    A view on the disk can be the base of a view in memory. Another process may remove that base, so
    a reader that misses a segment opens the view again.
    """

    @property
    def segments(self) -> Segments:
        return MemorySegments(self.root.with_name("segments"))

    def list_views(self) -> list[RevisionView]:
        from vmrag_link.index import storage

        kept = storage.list_memory_folders(self.root)
        return [*(RevisionView(path, path.name.removesuffix(f"-{SUFFIX}")) for path in kept), *super().list_views()]

    @contextlib.contextmanager
    def hold_turn(self, revision: str, *, timeout: float) -> Iterator[None]:
        """Do not wait, because no other process sees these views."""
        del revision, timeout
        yield

    @contextlib.contextmanager
    def temporary_folder(self) -> Iterator[Path]:
        """Yield a new folder in memory."""
        with temporary_memory_folder(self.root) as folder:
            yield folder

    def publish(self, built: Path, revision: str) -> Path:
        """Give a finished view its final name."""
        target = self.view_path(revision)
        self.move_into_place(built, target, problem=lambda: "")
        return target

    def move_into_place(self, built: Path, target: Path, *, problem: Callable[[], str]) -> None:
        """Rename a finished view, and remove the other views in memory that no block reads."""
        del problem
        from vmrag_link.index import storage

        storage.rename_memory_folder(built, target)
        for path in storage.list_memory_folders(self.root):
            if path != target:
                storage.remove_memory_folder(path)


def _remove_lock(path: Path) -> None:
    with contextlib.suppress(OSError):  # the folder cannot be written any longer
        path.unlink()


@contextlib.contextmanager
def temporary_memory_folder(root: Path) -> Iterator[Path]:
    """Yield a new folder in memory. It is removed at the end of the block unless it was renamed."""
    from vmrag_link.index import storage

    folder = root / f"{BUILDING_PREFIX}{os.urandom(6).hex()}"
    storage.make_memory_folder(folder)
    try:
        yield folder
    finally:
        storage.remove_memory_folder(folder)
        _remove_unused_segments(root.with_name("segments"))


def _remove_unused_segments(root: Path) -> None:
    """Remove the segments from memory that no view in memory uses."""
    from vmrag_link.index import storage

    with storage.MAKING_LOCK:
        used = {part.segment for folder in seal.MEMORY_FOLDERS if folder.parent != root for part in _read_parts(folder)}
        for path in storage.list_memory_folders(root):
            if path.name not in used and not path.name.startswith(BUILDING_PREFIX):
                storage.remove_memory_folder(path)


def _list_folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.suffix not in (".lock", ".holder")] if root.is_dir() else []


def _is_kept_for_other_version(path: Path) -> bool:
    """Return whether a folder has another format and was used recently.

    Another version of the program may still use it.
    """
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
    """Return the segments of a view with their bytes; empty if the view cannot be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError, msgspec.DecodeError):
        return seal.read_seal(view).segments
    return {}
