"""Make the stores of Chroma that are wanted: one process at a time for a knowledge base."""

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
from vmrag_link.chroma.check import OpenIndex, VectorSource
from vmrag_link.errors import Busy, UsageInvalid, VmragError, file_failures, unusable
from vmrag_link.index import seal, view
from vmrag_link.index.view import SUFFIX
from vmrag_link.progress import FOLLOWING, Progress
from vmrag_link.sync import background
from vmrag_link.sync.chroma_state import ChromaStores, WantedStore

POLL_SECONDS = 0.05
CONTENTS_DIGITS = 12


class _Dropped(Exception):
    """No work tree is bound to the view any more, or it does not verify: reading builds it
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
    """Make what is lacking, the newest first, until nothing is; then remove what nobody needs.

    A target that no work tree is bound to any more is dropped. What makes one impossible is
    remembered, and the next one follows. `bind_files` brings the files of each worktree to HEAD.
    Hold the job's lock.
    """
    permissions.make_folder(chroma.stores.root)
    chroma.stores.remove_unfinished()
    bind_files()
    while lacking := chroma.list_lacking():
        _build(chroma, lacking[0], vectors=vectors, progress=progress, log=log)
    chroma.remove_leftovers()


def _build(
    chroma: ChromaStores, wanted: WantedStore, *, vectors: VectorSource, progress: Progress, log: Callable[[str], None]
) -> None:
    def still_wanted() -> None:
        if wanted not in chroma.list_wanted():
            raise _Dropped("no work tree is bound to it any more")

    chroma.note_start(wanted.store.name)
    try:
        made = _make(chroma, wanted, vectors=vectors, progress=progress, between=still_wanted)
    except _Dropped as why:
        log(f"dropped {wanted.store.name}: {why}")
    except VmragError as error:
        log(f"failed: {error.message}")
        chroma.note_failure(wanted.store.name, error)
        return
    else:
        log(f"{made.how}: {wanted.store.name}, {made.added} chunks added, {made.removed} removed")
    chroma.forget_failure(wanted.store.name)


def _make(
    chroma: ChromaStores, wanted: WantedStore, *, vectors: VectorSource, progress: Progress, between: Callable[[], None]
) -> BuiltStore:
    """The store of bound views."""
    with file_failures(), contextlib.closing(_open(chroma, wanted)) as index:
        return build_store(chroma.stores, index, wanted.store, vectors=vectors, progress=progress, between=between)


def _open(chroma: ChromaStores, wanted: WantedStore) -> OpenIndex:
    """The views, of whose segments every byte is as it was sealed.

    Their locks are released then, so that they can be built again without a wait.
    """
    with contextlib.ExitStack() as reading:
        for path in wanted.views:
            reading.enter_context(chroma.views.lock_for_reading(path))
            revision = path.name.removesuffix(f"-{SUFFIX}")
            if problem := view.find_index_problem(path, revision=revision) or view.find_mismatch(path):
                raise _Dropped(f"the index does not verify: {problem}")
        return OpenIndex(*wanted.views)


# -- for somebody who waits ------------------------------------------------------------------------


def provide_store(
    chroma: ChromaStores, wanted: WantedStore, *, vectors: VectorSource, progress: Progress, lend: bool = False
) -> Path:
    """The store of a bound view, as soon as it is there: made here, or by the process that is
    at work.

    What failed before is tried again. `lend`: the caller hands it out. Raises why it cannot be
    made.
    """
    require_chroma(chroma)
    chroma.forget_failure(wanted.store.name)
    while not _handed_out(chroma, wanted, lend=lend):
        if background.is_running(chroma.job):
            _watch(chroma, wanted, progress)
            continue
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(locks.hold_exclusive(chroma.job.lock, purpose="build Chroma's store", timeout=0))
            except Busy:  # another process was faster, and is watched
                continue
            _make_here(chroma, wanted, vectors=vectors, progress=progress)
    return wanted.store


def _handed_out(chroma: ChromaStores, wanted: WantedStore, *, lend: bool) -> bool:
    """Whether the store is there, and lent if it is to be: nobody removes it in between."""
    if not chroma.is_usable(wanted):
        return False
    with chroma.stores.lock_for_reading(wanted.store):
        if chroma.is_usable(wanted):
            if lend:
                chroma.stores.write_lease(wanted.store)
            return True
    return False


def _make_here(chroma: ChromaStores, wanted: WantedStore, *, vectors: VectorSource, progress: Progress) -> None:
    chroma.stores.remove_unfinished()
    try:
        _make(chroma, wanted, vectors=vectors, progress=progress, between=lambda: None)
    except _Dropped as why:
        raise unusable(wanted.views[0], str(why)) from None
    except VmragError as error:
        chroma.note_failure(wanted.store.name, error)
        raise


def _watch(chroma: ChromaStores, wanted: WantedStore, progress: Progress) -> None:
    """Show what the process does that is at work, until it has ended or the store is there."""
    while background.is_running(chroma.job) and not chroma.is_usable(wanted):
        report = background.read_report(chroma.job)
        with progress.task(FOLLOWING, report.total if report else 0) as task:
            shown = 0
            while report and background.is_running(chroma.job) and not chroma.is_usable(wanted):
                now = background.read_report(chroma.job)
                if now is None or now.total != report.total or now.done < shown:
                    break  # another piece of work
                task.advance(now.done - shown)
                shown = now.done
                time.sleep(POLL_SECONDS)
        time.sleep(POLL_SECONDS)


def require_chroma(chroma: ChromaStores) -> None:
    """Raises `UsageInvalid` where the settings want no store of Chroma, and `IndexExtraMissing`
    where only the lack of chromadb switches it off.
    """
    if chroma.setting == "auto":
        require_supported()
    elif chroma.setting == "off":
        raise UsageInvalid(
            "Chroma's store is switched off (index.chroma: off).",
            hint="git config vmrag.index.chroma follow",
        )


# -- of uncommitted documents ----------------------------------------------------------------------


class HeldIndex(NamedTuple):
    """Views as they were, open for as long as a store of them is made; `contents` names what they
    hold.
    """

    opened: OpenIndex
    contents: str


@contextlib.contextmanager
def hold_views(folder: Path, *more: Path, leave_out: frozenset[str] = frozenset()) -> Iterator[HeldIndex]:
    """Open views, whose locks the caller holds until the block begins: no writer waits for what
    follows. The arguments are those of `OpenIndex`.
    """
    digest = hashlib.sha256()
    for path in (folder, *more):
        digest.update((path / seal.SEAL).read_bytes())
    digest.update(" ".join(sorted(leave_out)).encode())
    with contextlib.closing(OpenIndex(folder, *more, leave_out=leave_out)) as index:
        yield HeldIndex(index, digest.hexdigest()[:CONTENTS_DIGITS])


def provide_held_store(chroma: ChromaStores, working: HeldIndex, *, vectors: VectorSource, progress: Progress) -> Path:
    """A store of open views, which is handed out."""
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
