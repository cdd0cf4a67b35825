"""Remove what nothing needs any more: spare views and their segments, old working copies, what
killed processes left.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vmrag_link.errors import Busy
from vmrag_link.index import view, working
from vmrag_link.paths import sweep_temporaries
from vmrag_link.sync import binding as bindings
from vmrag_link.sync import lease
from vmrag_link.sync.context import SyncContext
from vmrag_link.sync.target import Target


def tidy(context: SyncContext) -> None:
    """Remove what killed processes left, spare views, and working copies and leases that nothing
    needs any more.
    """
    context.views.sweep()
    context.chroma.tidy()
    working.sweep(context.places.working_copies, needed=lambda: set(living_copies(context)))
    evict(context)
    sweep_temporaries(context.places.own, context.places.journal)
    lease.sweep(context.places)


def evict(context: SyncContext) -> None:
    """Remove the spare views beyond the limit, but for those that are being read, and the segments
    that no view counts any more.
    """
    from vmrag_link.sync import source_views

    places = context.places
    context.views.evict(bound=lambda: bindings.bound_views(places), keep_bytes=context.keep_bytes)
    source_views.evict(places, keep_bytes=context.keep_bytes)


def living_copies(context: SyncContext) -> Iterator[Path]:
    """The working copies that some code branch's uncommitted documents need, and those with vectors
    of their own.
    """
    for branch in context.engine.branches():
        copy = context.working_copy(branch.name, branch.head)
        if branch.dirty or copy.altered:
            yield copy.path


def throw_away(context: SyncContext, target: Target, revision: str) -> None:
    """Let the view of a revision, whose segments could not be read, be built again, and the working
    copy that stands on it.

    Segments that are not as they were sealed are built again alone. If all are, the view goes.
    Raises `Busy` while somebody reads it.
    """
    if target.kb_branch:
        copy = context.working_copy(target.kb_branch.name, revision)
        with copy.writing():
            copy.drop()
    distrust(context, revision)


def distrust(context: SyncContext, revision: str) -> None:
    """As `throw_away`, of the revision's view alone."""
    path = context.views.path(revision)
    view.distrust(path)
    if not context.views.problem(revision) and not context.views.discard(path):
        raise Busy(
            f"The index of {revision[:7]} cannot be built again now: another process reads it.",
            hint="Run 'vmrag sync --rebuild' again when that has finished.",
            path=str(path),
        )
