"""Get the view of a revision: the one that is there, one derived from a near one, or one that is
built from nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vmrag_link.engines.base import Engine, is_readable
from vmrag_link.errors import IndexFailed, MassDeletion
from vmrag_link.index import view as views
from vmrag_link.index.view import IndexView, find_damaged_segments, find_view_problem
from vmrag_link.index.views import RevisionView, Segments, Views, list_segments
from vmrag_link.models import ChangeCounts, ChunkCounts, Record
from vmrag_link.sync import binding as bindings
from vmrag_link.sync.context import Built, SyncContext
from vmrag_link.sync.target import Target

if TYPE_CHECKING:
    from vmrag_link.sync.indexer import Indexer, IndexUpdate


def provide_view(context: SyncContext, revision: str, *, bases: Iterable[Base]) -> Built:
    """A usable view of the revision; where there is none, or a damaged one, it is derived from the
    nearest of `bases`.
    """
    problem = context.views.find_problem(revision)
    if problem and context.views.view_path(revision).is_dir():
        context.progress.note(f"The index of {revision[:7]} does not verify: {problem}. It is built again.")
    return build_view(revision, engine=context.engine, kept=context.views, bases=bases, indexer=context.indexer)


def rebuild_view(context: SyncContext, revision: str) -> Built:
    """A view that is built from the documents alone.

    The one that it replaces answers until then; others that no work tree is bound to and that count
    its segments go, too. Raises `Busy`.
    """
    replaced = list_segments(context.views.view_path(revision)).keys()
    built = build_view(
        revision,
        engine=context.engine,
        kept=context.views,
        bases=[],
        indexer=context.indexer,
        instead=context.lock_timeout,
    )
    for path in context.views.list_newest_first():
        if not replaced.isdisjoint(list_segments(path)):
            context.views.remove_if_unused(path, unless=lambda: bindings.list_bound_views(context.places))
    return built


def list_bases(context: SyncContext, target: Target | None = None) -> Iterator[Base]:
    """Views to start from, the likeliest first. The listing costs nothing unless something has to
    be built.

    With a `target`, the working copy of its KB branch comes first if its documents were committed
    as that revision.
    """

    def holding(each: RevisionView) -> Callable[[], contextlib.AbstractContextManager[str]]:
        @contextlib.contextmanager
        def hold() -> Iterator[str]:
            with context.views.lock_for_reading(each.path):
                yield find_view_problem(each.path, revision=each.revision)

        return hold

    bound = bindings.read_binding(context.places)
    usable = context.views.list_views()
    usable.sort(key=lambda each: bound is None or each.path.name != bound.view)
    if target and (copy := _committed_working_copy(context, target)):
        yield copy
    yield from (Base(each.path, each.revision, holding(each)) for each in usable)


def _committed_working_copy(context: SyncContext, target: Target) -> Base | None:
    """The working copy whose uncommitted documents were committed as the target revision: it has
    its chunks already.
    """
    if target.kb_branch is None or target.attachment != "attached":
        return None
    for parent in context.engine.read_revision(target.revision).parents[:1]:
        copy = context.working_copy(target.kb_branch.name, parent)
        if copy.path.is_dir() and not copy.find_problem() and not copy.holds_given_vectors:
            return Base(copy.path, parent, copy.lock_for_reading)
    return None


NEAR = 100


class Base(Record, frozen=True):
    """A view to derive another one from, and the revision that it stands at.

    `holding` locks it against changes, and yields why it cannot be used, if so: it may have gone
    since it was listed. Damaged segments are no such reason: they are left out.
    """

    path: Path
    revision: str
    holding: Callable[[], contextlib.AbstractContextManager[str | None]]


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


def build_view(
    revision: str,
    *,
    engine: Engine,
    kept: Views,
    bases: Iterable[Base],
    indexer: Callable[[], Indexer],
    instead: float | None = None,
) -> Built:
    """A usable view of the revision. `indexer` is called only if something has to be indexed.

    `instead`: build one in any case, and put it in the place of what is there, which goes on
    answering until then. Wait at most this many seconds for its readers; raises `Busy` when they
    pass.
    """
    watch = Stopwatch()
    path = kept.view_path(revision)
    if instead is None and not kept.find_problem(revision):
        kept.mark_used(path)
        return Built(path, "reused", ChangeCounts(), ChunkCounts(), watch.seconds())
    with kept.segments.pause_collection(), kept.temporary_folder() as folder:
        base, brought = _build(
            kept.segments, folder, revision, engine=engine, bases=bases, indexer=indexer, watch=watch
        )
        watch.lap("apply")
        path = (
            kept.publish(folder, revision) if instead is None else kept.replace_view(folder, revision, timeout=instead)
        )
        watch.lap("publish")
    return Built(path, "delta" if base else "fresh", brought.plan.changes, brought.chunks, watch.seconds())


def _build(
    segments: Segments,
    folder: Path,
    revision: str,
    *,
    engine: Engine,
    bases: Iterable[Base],
    indexer: Callable[[], Indexer],
    watch: Stopwatch,
) -> tuple[Base | None, IndexUpdate]:
    """Make `folder` a sealed view of the revision: from the nearest base that is sound, or from
    nothing.
    """
    left = list(bases)
    while base := _nearest(engine, revision, left):
        watch.lap("diff")
        left.remove(base)
        # What is taken over of a base is read whole, and damage may show only then: the second
        # attempt leaves it out.
        for _ in range(2):
            with contextlib.suppress(IndexFailed, MassDeletion), base.holding() as problem:
                if not problem:
                    return base, _derive(segments, folder, revision, base, indexer=indexer())
    watch.lap("diff")
    return None, _derive(segments, folder, revision, None, indexer=indexer())


def _derive(segments: Segments, folder: Path, revision: str, base: Base | None, *, indexer: Indexer) -> IndexUpdate:
    # Heavier than all the rest, and not needed on the way back to a view.
    from vmrag_link.index.draft import Draft

    found, damaged = (views.read_view(base.path), find_damaged_segments(base.path)) if base else (None, {})
    at = base.revision if base and not damaged else None  # what damaged segments held has to be looked for
    with Draft(segments, found, without=damaged.keys()) as draft:
        brought = indexer.update_index(draft, revision, base=at)
        draft.clear_touched()
        draft.publish(folder, revision=revision)
    return brought


def _nearest(engine: Engine, revision: str, bases: Sequence[Base]) -> Base | None:
    """The base from which least has to change."""
    best: tuple[int, Base] | None = None
    for base in bases:
        found = _read(base) if is_readable(engine, base.revision) else None
        if found is None:
            continue
        changes = engine.count_changes(base.revision, revision)
        distance = max(0, changes.total - len(found.touched))
        if best is None or distance < best[0]:
            best = (distance, base)
        if distance <= max(NEAR, found.count_totals()[0] // 10):
            break  # near enough: looking at the others costs a diff each
    return best[1] if best else None


def _read(base: Base) -> IndexView | None:
    """A base; None if it cannot be used."""
    with base.holding() as problem, contextlib.suppress(IndexFailed):  # damaged since it was proven
        return None if problem else views.read_view(base.path)
    return None
