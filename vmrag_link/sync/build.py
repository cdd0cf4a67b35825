"""Get the snapshot of a revision: the one that is there, one made from the nearest other, or one built from nothing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vmrag_link.engines.base import Engine
from vmrag_link.index import snapshots
from vmrag_link.index.manifest import Manifest
from vmrag_link.index.snapshots import Snapshots
from vmrag_link.models import Changes, Record
from vmrag_link.sync.counts import ChunkCounts

if TYPE_CHECKING:
    from vmrag_link.sync.bring import Bringer

How = Literal["reused", "delta", "fresh"]
NEAR = 100


class Base(Record, frozen=True):
    """An index to start from: a directory that nobody changes while `holding` it, and the revision that it stands at."""

    path: Path
    revision: str
    holding: Callable[[], contextlib.AbstractContextManager[None]]


class Built(Record, frozen=True):
    """`changes` and `chunks` count what the base did not have; `seconds` by step."""

    path: Path
    how: How
    changes: Changes
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
    shelf: Snapshots,
    bases: Sequence[Base],
    bringer: Callable[[], Bringer],
) -> Built:
    """A usable snapshot of the revision. `bringer` is called only if something has to be indexed."""
    watch = Stopwatch()
    path = shelf.path(revision)
    if not shelf.problem(revision):
        shelf.touch(path)
        return Built(path, "reused", Changes(), ChunkCounts(), watch.seconds())
    from vmrag_link.index.store import (
        IndexStore,  # heavier than all the rest, and not needed on the way back to a snapshot
    )

    with shelf.building() as folder:
        base = _nearest(engine, revision, bases)
        watch.lap("diff")
        if base:
            with base.holding():
                snapshots.copy(base.path, folder)
            watch.lap("copy")
        with IndexStore(folder, store_documents=shelf.store_documents, create=base is None) as store:
            brought = bringer().bring(store, revision, base=base.revision if base else None)
            watch.lap("apply")
            store.manifest.forget_touched()
            store.seal(revision=revision, settings=shelf.settings, added=brought.plan.add)
        path = shelf.publish(folder, revision)
        watch.lap("verify")
    return Built(path, "delta" if base else "fresh", brought.plan.changes, brought.chunks, watch.seconds())


def _nearest(engine: Engine, revision: str, bases: Sequence[Base]) -> Base | None:
    """The base from which least has to change; None where building from nothing costs no more."""
    best: tuple[int, Base] | None = None
    for base in bases:
        if not engine.has_revision(base.revision):
            continue
        with _manifest(base) as manifest:
            documents, live = manifest.counts()
            dead = sum(held.dead for held in manifest.collections().values())
            touched = len(manifest.touched())
        changes = engine.diff(base.revision, revision).counts()
        leaving = changes.modified + changes.removed
        if dead + leaving >= max(1, live - leaving + changes.added):
            continue  # tombstones are never reused: with as many of them as rows, a new index is smaller and faster
        distance = max(0, changes.total - touched)
        if best is None or distance < best[0]:
            best = (distance, base)
        if distance <= max(NEAR, documents // 10):
            break  # near enough: looking at the others costs a diff each
    return best[1] if best else None


@contextlib.contextmanager
def _manifest(base: Base) -> Iterator[Manifest]:
    with base.holding():
        manifest = Manifest(base.path, frozen=True)
        try:
            yield manifest
        finally:
            manifest.close()
