"""Get the snapshot of a revision: the one that is there, one made from the nearest other, or one
built from nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vmrag_link.engines.base import Engine, readable
from vmrag_link.errors import IndexFailed
from vmrag_link.index import directories
from vmrag_link.index import snapshots as folders
from vmrag_link.index.snapshots import Snapshots
from vmrag_link.models import ChangeCounts, Record
from vmrag_link.sync.counts import ChunkCounts

if TYPE_CHECKING:
    from vmrag_link.index.contents import IndexSize
    from vmrag_link.sync.indexer import Indexer, IndexUpdate

How = Literal["reused", "delta", "fresh"]
NEAR = 100


class Base(Record, frozen=True):
    """An index to start from: a directory, and the revision that it stands at.

    `holding` locks it against changes, and yields why it cannot be used, if so: it may have gone
    since it was listed.
    """

    path: Path
    revision: str
    holding: Callable[[], contextlib.AbstractContextManager[str | None]]


class Built(Record, frozen=True):
    """`changes` and `chunks` count what the base did not have; `seconds` by step."""

    path: Path
    how: How
    changes: ChangeCounts
    chunks: ChunkCounts
    seconds: dict[str, float]


class Stopwatch:
    """Seconds by step, and in all."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self._steps: dict[str, float] = {}

    def lap(self, step: str) -> None:
        now = time.perf_counter()
        self._steps[step] = round(now - self._last, 4)
        self._last = now

    def seconds(self) -> dict[str, float]:
        return {**self._steps, "total": round(time.perf_counter() - self._start, 4)}


def snapshot(
    revision: str,
    *,
    engine: Engine,
    snapshots: Snapshots,
    bases: Iterable[Base],
    indexer: Callable[[], Indexer],
    instead: float | None = None,
) -> Built:
    """A usable snapshot of the revision. `indexer` is called only if something has to be indexed.

    `instead`: build one in any case, and put it in the place of what is there, which goes on
    answering until then. Wait at most this many seconds for its readers; raises `Busy` when they
    pass.
    """
    watch = Stopwatch()
    path = snapshots.path(revision)
    if instead is None and not snapshots.problem(revision):
        snapshots.touch(path)
        return Built(path, "reused", ChangeCounts(), ChunkCounts(), watch.seconds())
    with snapshots.building() as folder:
        base, brought = _build(folder, revision, engine=engine, bases=bases, indexer=indexer, watch=watch)
        watch.lap("apply")
        path = (
            snapshots.publish(folder, revision)
            if instead is None
            else snapshots.replace(folder, revision, timeout=instead)
        )
        watch.lap("publish")
    return Built(path, "delta" if base else "fresh", brought.plan.changes, brought.chunks, watch.seconds())


def _build(
    folder: Path,
    revision: str,
    *,
    engine: Engine,
    bases: Iterable[Base],
    indexer: Callable[[], Indexer],
    watch: Stopwatch,
) -> tuple[Base | None, IndexUpdate]:
    """Make `folder` a sealed index of the revision: from the nearest base that is sound, or from
    nothing where that costs no more.
    """
    left = list(bases)
    while base := _nearest(engine, revision, left):
        watch.lap("diff")
        left.remove(base)
        with contextlib.suppress(IndexFailed), base.holding() as problem:
            if not problem:
                with folders.copied(base.path, folder, meanwhile=indexer):  # which imports what it needs
                    watch.lap("copy")
                    return base, _update(folder, revision, base, indexer())
        directories.remove(folder)
    watch.lap("diff")
    return None, _update(folder, revision, None, indexer())


def _update(folder: Path, revision: str, base: Base | None, indexer: Indexer) -> IndexUpdate:
    """As `_build`, in a folder that holds a copy of the base, or is missing without one."""
    # Heavier than all the rest, and not needed on the way back to a snapshot.
    from vmrag_link.index.store import IndexStore

    with IndexStore(folder, create=base is None) as store:
        brought = indexer.update(store, revision, base=base.revision if base else None)
        store.manifest.forget_touched()
        store.seal(revision=revision, added=brought.plan.add)
    return brought


def _nearest(engine: Engine, revision: str, bases: Sequence[Base]) -> Base | None:
    """The base from which least has to change; None where building from nothing costs no more."""
    best: tuple[int, Base] | None = None
    for base in bases:
        size = _size(base) if readable(engine, base.revision) else None
        if size is None:
            continue
        changes = engine.count_changes(base.revision, revision)
        leaving = changes.modified + changes.removed
        if size.dead + leaving >= max(1, size.live - leaving + changes.added):
            continue  # tombstones are never reused: with as many of them as rows, a new index is smaller and faster
        distance = max(0, changes.total - size.touched)
        if best is None or distance < best[0]:
            best = (distance, base)
        if distance <= max(NEAR, size.documents // 10):
            break  # near enough: looking at the others costs a diff each
    return best[1] if best else None


def _size(base: Base) -> IndexSize | None:
    """The size of a base; None if it cannot be used."""
    from vmrag_link.index.contents import size  # opens SQLite

    with base.holding() as problem:
        if problem:
            return None
        try:
            return size(base.path)
        except IndexFailed:
            return None  # damaged since it was proven
