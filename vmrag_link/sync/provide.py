"""Provide the view of a revision, and say which views it can be derived from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from vmrag_link.index.verify import problem_of_view
from vmrag_link.index.views import RevisionView, segments_of
from vmrag_link.sync import binding as bindings
from vmrag_link.sync.context import SyncContext
from vmrag_link.sync.target import Target

if TYPE_CHECKING:
    from vmrag_link.sync.build import Base, Built


def view(context: SyncContext, revision: str, *, bases: Iterable[Base]) -> Built:
    """A usable view of the revision; where there is none, or a damaged one, it is derived from the
    nearest of `bases`.
    """
    from vmrag_link.sync import build

    problem = context.views.problem(revision)
    if problem and context.views.path(revision).is_dir():
        context.progress.note(f"The index of {revision[:7]} does not verify: {problem}. It is built again.")
    return build.view(revision, engine=context.engine, kept=context.views, bases=bases, indexer=context.indexer)


def rebuilt_view(context: SyncContext, revision: str) -> Built:
    """A view that is built from the documents alone.

    The one that it replaces answers until then; others that no work tree is bound to and that count
    its segments go, too. Raises `Busy`.
    """
    from vmrag_link.sync import build

    replaced = segments_of(context.views.path(revision)).keys()
    built = build.view(
        revision,
        engine=context.engine,
        kept=context.views,
        bases=[],
        indexer=context.indexer,
        instead=context.lock_timeout,
    )
    for path in context.views.newest():
        if not replaced.isdisjoint(segments_of(path)):
            context.views.discard(path, unless=lambda: bindings.bound_views(context.places))
    return built


def bases(context: SyncContext, target: Target | None = None) -> Iterator[Base]:
    """Views to start from, the likeliest first. The listing costs nothing unless something has to
    be built.

    With a `target`, the working copy of its KB branch comes first if its documents were committed
    as that revision.
    """
    from vmrag_link.sync.build import Base

    def holding(each: RevisionView) -> Callable[[], contextlib.AbstractContextManager[str]]:
        @contextlib.contextmanager
        def hold() -> Iterator[str]:
            with context.views.reading(each.path):
                yield problem_of_view(each.path, revision=each.revision)

        return hold

    bound = bindings.read(context.places)
    usable = context.views.all()
    usable.sort(key=lambda each: bound is None or each.path.name != bound.view)
    if target and (copy := _committed_working_copy(context, target)):
        yield copy
    yield from (Base(each.path, each.revision, holding(each)) for each in usable)


def _committed_working_copy(context: SyncContext, target: Target) -> Base | None:
    """The working copy whose uncommitted documents were committed as the target revision: it has
    its chunks already.
    """
    from vmrag_link.sync.build import Base

    if target.kb_branch is None or target.attachment != "attached":
        return None
    for parent in context.engine.info(target.revision).parents[:1]:
        copy = context.working_copy(target.kb_branch.name, parent)
        if copy.path.is_dir() and not copy.problem() and not copy.altered:
            return Base(copy.path, parent, copy.reading)
    return None
