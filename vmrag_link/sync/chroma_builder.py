"""Build the wanted stores of Chroma, with one process at a time for a knowledge base."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from vmrag_link import locks, permissions
from vmrag_link.chroma.bindings import require_supported
from vmrag_link.chroma.build import BuiltStore, build_store
from vmrag_link.chroma.open_index import OpenIndex, VectorSource
from vmrag_link.errors import Busy, UsageInvalid, VmragError, file_failures, unusable
from vmrag_link.index import seal, view
from vmrag_link.index.view import SUFFIX
from vmrag_link.progress import FOLLOWING, Progress
from vmrag_link.sync import background
from vmrag_link.sync.chroma_state import ChromaStores, WantedStore

POLL_SECONDS = 0.05
CONTENTS_DIGITS = 12


class _ViewUnusable(Exception):
    """The view is no longer bound to a work tree, or does not verify. Then reading builds it
    again.
    """


def build_missing_stores(
    chroma: ChromaStores,
    *,
    vectors: VectorSource,
    progress: Progress,
    log: Callable[[str], None],
    bind_files: Callable[[], None] = lambda: None,
) -> None:
    """Build the missing stores, the newest first, and then remove those that are no longer needed.

    A store is skipped if its view is no longer bound to a work tree. The reason of a failure is
    recorded, and the next store is built. `bind_files` brings the files of each worktree to HEAD.
    The caller holds the job's lock.
    """
    permissions.make_folder(chroma.stores.root)
    chroma.stores.remove_unfinished()
    bind_files()
    while lacking := chroma.list_lacking():
        _build_store(chroma, lacking[0], vectors=vectors, progress=progress, log=log)
    chroma.remove_leftovers()


def _build_store(
    chroma: ChromaStores, target: WantedStore, *, vectors: VectorSource, progress: Progress, log: Callable[[str], None]
) -> None:
    def still_wanted() -> None:
        if target not in chroma.list_wanted():
            raise _ViewUnusable("no worktree is bound to it")

    chroma.note_start(target.store.name)
    try:
        made = _make_store(chroma, target, vectors=vectors, progress=progress, between=still_wanted)
    except _ViewUnusable as why:
        log(f"dropped {target.store.name}: {why}")
    except VmragError as error:
        log(f"failed: {error.message}")
        chroma.note_failure(target.store.name, error)
        return
    else:
        log(f"{made.how}: {target.store.name}, {made.added} chunks added, {made.removed} removed")
    chroma.forget_failure(target.store.name)


def _make_store(
    chroma: ChromaStores, target: WantedStore, *, vectors: VectorSource, progress: Progress, between: Callable[[], None]
) -> BuiltStore:
    """Build the store of bound views."""
    with file_failures(), contextlib.closing(_open_views(chroma, target)) as index:
        return build_store(chroma.stores, index, target.store, vectors=vectors, progress=progress, between=between)


def _open_views(chroma: ChromaStores, target: WantedStore) -> OpenIndex:
    """Open the views after verifying every byte of their segments.

    Their locks are released then, so that they can be built again without a wait.
    """
    with contextlib.ExitStack() as reading:
        for path in target.views:
            reading.enter_context(chroma.views.lock_for_reading(path))
            revision = path.name.removesuffix(f"-{SUFFIX}")
            if problem := view.find_index_problem(path, revision=revision) or view.find_mismatch(path):
                raise _ViewUnusable(f"the index does not verify: {problem}")
        return OpenIndex(*target.views)


# -- for a waiting caller --------------------------------------------------------------------------


def provide_store(
    chroma: ChromaStores, target: WantedStore, *, vectors: VectorSource, progress: Progress, lend: bool = False
) -> Path:
    """Return the store of bound views as soon as it exists. It is built here, or by the process
    that is running.

    An earlier failure is ignored. `lend`: the caller hands the store out. Raises why it cannot be
    built.
    """
    require_chroma(chroma)
    chroma.forget_failure(target.store.name)
    while not _is_ready(chroma, target, lend=lend):
        if background.is_running(chroma.job):
            _watch_builder(chroma, target, progress)
            continue
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(locks.hold_exclusive(chroma.job.lock, purpose="build Chroma's store", timeout=0))
            except Busy:  # another process was faster, and is watched
                continue
            _make_store_here(chroma, target, vectors=vectors, progress=progress)
    return target.store


def _is_ready(chroma: ChromaStores, target: WantedStore, *, lend: bool) -> bool:
    """Return whether the store exists. If `lend` is set it is also lent, so that no other process
    removes it in between.
    """
    if not chroma.is_usable(target):
        return False
    with chroma.stores.lock_for_reading(target.store):
        if chroma.is_usable(target):
            if lend:
                chroma.stores.write_lease(target.store)
            return True
    return False


def _make_store_here(chroma: ChromaStores, target: WantedStore, *, vectors: VectorSource, progress: Progress) -> None:
    chroma.stores.remove_unfinished()
    try:
        _make_store(chroma, target, vectors=vectors, progress=progress, between=lambda: None)
    except _ViewUnusable as why:
        raise unusable(target.views[0], str(why)) from None
    except VmragError as error:
        chroma.note_failure(target.store.name, error)
        raise


def _watch_builder(chroma: ChromaStores, target: WantedStore, progress: Progress) -> None:
    """Show the progress of the running process until it has ended or the store exists."""
    while background.is_running(chroma.job) and not chroma.is_usable(target):
        report = background.read_report(chroma.job)
        with progress.task(FOLLOWING, report.total if report else 0) as task:
            shown = 0
            while report and background.is_running(chroma.job) and not chroma.is_usable(target):
                now = background.read_report(chroma.job)
                if now is None or now.total != report.total or now.completed < shown:
                    break  # other work has begun
                task.advance(now.completed - shown)
                shown = now.completed
                time.sleep(POLL_SECONDS)
        time.sleep(POLL_SECONDS)


def require_chroma(chroma: ChromaStores) -> None:
    """Raise `UsageInvalid` if the settings disable Chroma's store, and `IndexExtraMissing` if only
    the missing chromadb does.
    """
    if chroma.setting == "auto":
        require_supported()
    elif chroma.setting == "off":
        raise UsageInvalid(
            "Chroma's store is disabled (index.chroma: off).",
            hint="run 'git config vmrag.index.chroma follow'",
        )


# -- stores of uncommitted documents ---------------------------------------------------------------


class HeldIndex(NamedTuple):
    """Views that stay open and unchanged while a store of them is built. `contents` identifies
    their content.
    """

    opened: OpenIndex
    contents: str


@contextlib.contextmanager
def hold_views(folder: Path, *more: Path, leave_out: frozenset[str] = frozenset()) -> Iterator[HeldIndex]:
    """Open views whose locks the caller holds until the block begins, so that writers do not wait
    for the block.

    The arguments are those of `OpenIndex`.
    """
    digest = hashlib.sha256()
    for path in (folder, *more):
        digest.update((path / seal.SEAL).read_bytes())
    digest.update(" ".join(sorted(leave_out)).encode())
    with contextlib.closing(OpenIndex(folder, *more, leave_out=leave_out)) as index:
        yield HeldIndex(index, digest.hexdigest()[:CONTENTS_DIGITS])


def provide_held_store(chroma: ChromaStores, working: HeldIndex, *, vectors: VectorSource, progress: Progress) -> Path:
    """Build a store of open views, lend it, and return it."""
    index = working.opened
    target = chroma.stores.store_path(index.revision, working.contents)
    permissions.make_folder(chroma.stores.root)
    with file_failures():
        while True:
            build_store(chroma.stores, index, target, vectors=vectors, progress=progress)
            with chroma.stores.lock_for_reading(target):
                if not chroma.stores.find_problem(target, lambda: index.stand_ins):
                    chroma.stores.write_lease(target)
                    return target
