"""Provide the view of a revision: the existing one, one derived from a similar one, or one built
from the documents.
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
    """Return a usable view of the revision. If it is missing or damaged, it is derived from the
    nearest of `bases`.
    """
    problem = context.views.find_problem(revision)
    if problem and context.views.view_path(revision).is_dir():
        context.progress.note(f"rebuilding the damaged index of {revision[:7]}: {problem}")
    with context.views.hold_turn(revision, timeout=context.lock_timeout):
        return build_view(revision, engine=context.engine, existing=context.views, bases=bases, indexer=context.indexer)


def rebuild_view(context: SyncContext, revision: str) -> Built:
    """Return a view that is built from the documents alone.

    The view that it replaces answers until then. Other views with its segments are removed if no
    work tree is bound to them. Raises `Busy`.
    """
    replaced = list_segments(context.views.view_path(revision)).keys()
    built = build_view(
        revision,
        engine=context.engine,
        existing=context.views,
        bases=[],
        indexer=context.indexer,
        replace_within=context.lock_timeout,
    )
    for path in context.views.list_newest_first():
        if not replaced.isdisjoint(list_segments(path)):
            context.views.remove_if_unused(path, unless=lambda: bindings.list_bound_views(context.places))
    return built


def list_bases(context: SyncContext, target: Target | None = None) -> Iterator[Base]:
    """Yield views to derive from, the likeliest first. They are listed only if a view must be
    built.

    With a `target`, the working copy of its KB branch comes first if its documents were committed
    as that revision.
    """

    def build_holder(view: RevisionView) -> Callable[[], contextlib.AbstractContextManager[str]]:
        @contextlib.contextmanager
        def hold_view() -> Iterator[str]:
            with context.views.lock_for_reading(view.path):
                yield find_view_problem(view.path, revision=view.revision)

        return hold_view

    bound = bindings.read_binding(context.places)
    usable = context.views.list_views()
    usable.sort(key=lambda view: bound is None or view.path.name != bound.view)
    if target and (copy := _find_committed_copy(context, target)):
        yield copy
    yield from (Base(view.path, view.revision, build_holder(view)) for view in usable)


def _find_committed_copy(context: SyncContext, target: Target) -> Base | None:
    """Return the working copy whose uncommitted documents were committed as the target revision,
    because it already has their chunks. Otherwise None.
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
    """A view to derive another one from, and its revision.

    `holding` locks the view, and yields why it cannot be used, or an empty value. It may have been
    removed since it was listed. Damaged segments do not matter, because they are left out.
    """

    path: Path
    revision: str
    holding: Callable[[], contextlib.AbstractContextManager[str | None]]


class Stopwatch:
    """Measure seconds by step and in total."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self._steps: dict[str, float] = {}

    def lap(self, step: str) -> None:
        """Record the time since the last step under this name."""
        now = time.perf_counter()
        self._steps[step] = round(now - self._last, 4)
        self._last = now

    def seconds(self) -> dict[str, float]:
        """Return the seconds by step, with their total."""
        return {**self._steps, "total": round(time.perf_counter() - self._start, 4)}


def build_view(
    revision: str,
    *,
    engine: Engine,
    existing: Views,
    bases: Iterable[Base],
    indexer: Callable[[], Indexer],
    replace_within: float | None = None,
) -> Built:
    """Return a usable view of the revision. `indexer` is called only if something must be indexed.

    `replace_within`: build a view in any case, and replace the existing one, which answers until
    then. Waits at most this many seconds for its readers, then raises `Busy`.
    """
    watch = Stopwatch()
    path = existing.view_path(revision)
    if replace_within is None and not existing.find_problem(revision):
        existing.mark_used(path)
        return Built(path, "reused", ChangeCounts(), ChunkCounts(), watch.seconds())
    with existing.segments.pause_collection(), existing.temporary_folder() as folder:
        base, update = _fill_view(
            existing.segments, folder, revision, engine=engine, bases=bases, indexer=indexer, watch=watch
        )
        watch.lap("apply")
        path = (
            existing.publish(folder, revision)
            if replace_within is None
            else existing.replace_view(folder, revision, timeout=replace_within)
        )
        watch.lap("publish")
    return Built(path, "delta" if base else "fresh", update.plan.changes, update.chunks, watch.seconds())


def _fill_view(
    segments: Segments,
    folder: Path,
    revision: str,
    *,
    engine: Engine,
    bases: Iterable[Base],
    indexer: Callable[[], Indexer],
    watch: Stopwatch,
) -> tuple[Base | None, IndexUpdate]:
    """Make `folder` a sealed view of the revision: from the nearest base that is intact, or from
    the documents.
    """
    candidates = list(bases)
    while base := _find_nearest(engine, revision, candidates):
        watch.lap("diff")
        candidates.remove(base)
        # Reused segments of a base are read whole, which may reveal damage. The second attempt
        # leaves damaged segments out.
        for _ in range(2):
            with contextlib.suppress(IndexFailed, MassDeletion), base.holding() as problem:
                if not problem:
                    return base, _derive_view(segments, folder, revision, base, indexer=indexer())
    watch.lap("diff")
    return None, _derive_view(segments, folder, revision, None, indexer=indexer())


def _derive_view(
    segments: Segments, folder: Path, revision: str, base: Base | None, *, indexer: Indexer
) -> IndexUpdate:
    # An expensive import, which is not needed to return to an existing view.
    from vmrag_link.index.draft import Draft

    base_view, damaged = (views.read_view(base.path), find_damaged_segments(base.path)) if base else (None, {})
    # The documents of damaged segments must be found again.
    base_revision = base.revision if base and not damaged else None
    with Draft(segments, base_view, without=damaged.keys()) as draft:
        update = indexer.update_index(draft, revision, base=base_revision)
        draft.clear_touched()
        draft.publish(folder, revision=revision)
    return update


def _find_nearest(engine: Engine, revision: str, bases: Sequence[Base]) -> Base | None:
    """Return the base with the fewest changes, or None."""
    best: tuple[int, Base] | None = None
    for base in bases:
        view = _read_base(base) if is_readable(engine, base.revision) else None
        if view is None:
            continue
        changes = engine.count_changes(base.revision, revision)
        distance = max(0, changes.total - len(view.touched))
        if best is None or distance < best[0]:
            best = (distance, base)
        if distance <= max(NEAR, view.count_totals()[0] // 10):
            break  # near enough: each further base costs a diff
    return best[1] if best else None


def _read_base(base: Base) -> IndexView | None:
    """Return the view of a base, or None if it cannot be used."""
    with base.holding() as problem, contextlib.suppress(IndexFailed):  # damaged since it was verified
        return None if problem else views.read_view(base.path)
    return None
