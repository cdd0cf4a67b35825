"""Remove indexes that nothing needs any more, and what killed processes left."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from vmrag_link.errors import Busy, IndexFailed, first_of
from vmrag_link.index import working
from vmrag_link.index.snapshots import Snapshots
from vmrag_link.paths import Places, sweep_temporaries
from vmrag_link.sync import binding as bindings
from vmrag_link.sync import lease
from vmrag_link.sync.context import SyncContext
from vmrag_link.sync.target import Target

SHOWN = 10
"""Documents that a note names."""


def tidy(context: SyncContext) -> None:
    """Remove what killed processes left, spare snapshots, and working copies and leases that
    nothing needs any more.
    """
    context.snapshots.sweep()
    evict(context)
    context.chroma.tidy()
    working.sweep(
        context.places.working_copies,
        needed=lambda: set(living_copies(context)),
        before=lambda copy: _note_given_vectors(context, copy),
    )
    sweep_temporaries(context.places.own, context.places.journal)
    lease.sweep(context.places)


def _note_given_vectors(context: SyncContext, copy: Path) -> None:
    """Say which vectors that clients gave go with a working copy of format 1: only Chroma held them
    there.

    Those of the present format go when their branch moves on, which their client was told.
    """
    from vmrag_link.index.contents import given_before  # opens SQLite

    revision = given_before(copy)
    if revision is None or all(branch.head != revision for branch in context.engine.branches()):
        return
    names = []
    with contextlib.suppress(IndexFailed, LookupError, OSError):  # it may be damaged, and no seal of ours says so
        names = [f"{collection}/{doc_id}" for collection, doc_id in context.indexer().embedded_otherwise(copy)]
    context.progress.note(
        f"Embeddings that a client gave on {revision[:7]} are not taken over from the index of an earlier version; "
        f"their documents have those of their texts again: {first_of(names, SHOWN) or 'unknown'}. To have them back, give them again."
    )


def evict(context: SyncContext) -> None:
    """Remove the spare snapshots beyond the limit, but for those that are being read."""
    context.snapshots.evict(bound=lambda: bound_snapshots(context.places, context.snapshots), keep=context.keep)


def bound_snapshots(places: Places, snapshots: Snapshots) -> set[Path]:
    """Those that some work tree answers from."""
    return {snapshots.root / binding.snapshot for binding in bindings.bound_everywhere(places)}


def living_copies(context: SyncContext) -> Iterator[Path]:
    """The working copies that some code branch's uncommitted documents need, and those with vectors
    of their own.
    """
    for branch in context.engine.branches():
        copy = context.working_copy(branch.name, branch.head)
        if branch.dirty or copy.altered:
            yield copy.path


def throw_away(context: SyncContext, target: Target, revision: str) -> None:
    """Remove the snapshot of a revision, and the working copy that stands on it.

    Raises `Busy` while somebody reads them.
    """
    if target.kb_branch:
        copy = context.working_copy(target.kb_branch.name, revision)
        with copy.writing():
            copy.drop()
    path = context.snapshots.path(revision)
    if not context.snapshots.discard(path):
        raise Busy(
            f"The index of {revision[:7]} cannot be built again now: another process reads it.",
            hint="Run 'vmrag sync --rebuild' again when that has finished.",
            path=str(path),
        )
