"""Provide the snapshot of a revision, and say which indexes it can be made from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

from vmrag_link.index.snapshots import Snapshot
from vmrag_link.index.verify import SUFFIX
from vmrag_link.sync import binding as bindings
from vmrag_link.sync import build
from vmrag_link.sync.build import Base, Built
from vmrag_link.sync.context import SyncContext
from vmrag_link.sync.target import Target


def snapshot(context: SyncContext, revision: str, *, bases: Iterable[Base]) -> Built:
    """A usable snapshot of the revision; where there is none, or a damaged one, it is made from the
    nearest of `bases`.
    """
    problem = context.snapshots.problem(revision)
    if problem and context.snapshots.path(revision).is_dir():
        context.progress.note(f"The index of {revision[:7]} does not verify: {problem}. It is built again.")
    return build.snapshot(
        revision, engine=context.engine, snapshots=context.snapshots, bases=bases, indexer=context.indexer
    )


def rebuilt_snapshot(context: SyncContext, revision: str) -> Built:
    """A snapshot that is built from the documents alone.

    The one that it replaces answers until then. Raises `Busy`.
    """
    return build.snapshot(
        revision,
        engine=context.engine,
        snapshots=context.snapshots,
        bases=[],
        indexer=context.indexer,
        instead=context.lock_timeout,
    )


def bases(context: SyncContext, target: Target | None = None) -> Iterator[Base]:
    """Indexes to start from, the likeliest first. The listing costs nothing unless something has to
    be built.

    With a `target`, the working copy of its KB branch comes first if its documents were committed
    as that revision.
    """

    def holding(each: Snapshot) -> Callable[[], contextlib.AbstractContextManager[str]]:
        @contextlib.contextmanager
        def hold() -> Iterator[str]:
            with context.snapshots.reading(each.path):
                yield context.snapshots.problem(each.revision)

        return hold

    bound = bindings.read(context.places)
    ours = (each for each in context.snapshots.all() if each.format == SUFFIX)
    usable = [each for each in ours if not context.snapshots.problem(each.revision)]
    usable.sort(key=lambda each: bound is None or each.path.name != bound.snapshot)
    if target and (copy := _committed_working_copy(context, target)):
        yield copy
    yield from (Base(each.path, each.revision, holding(each)) for each in usable)


def _committed_working_copy(context: SyncContext, target: Target) -> Base | None:
    """The working copy whose uncommitted documents were committed as the target revision: it has
    its chunks already.
    """
    if target.kb_branch is None or target.attachment != "attached":
        return None
    for parent in context.engine.info(target.revision).parents[:1]:
        copy = context.working_copy(target.kb_branch.name, parent)
        if copy.path.is_dir() and not copy.problem() and not copy.altered:
            return Base(copy.path, parent, copy.reading)
    return None
