"""`vmrag merge --repair COMMIT`: merge the documents that a code commit dropped.

A hosting service merges code without vmrag's merge driver, so the merge commit pins the revision of
one parent only. The documents of the other parent, a *side* here, are then missing.
"""

from __future__ import annotations

from typing import NamedTuple

from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.git import history, pin_merge, plumbing
from vmrag_link.ops.merge.merge import MergeReport, merge_revision, require_mergeable
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.history.ranges import find_base, find_pinned_unless_lost


class DroppedSide(NamedTuple):
    """A parent of a code commit whose pinned revision a later revision lacks."""

    parent: str
    """The parent's git commit."""
    base: str
    """The base for a merge of `theirs`."""
    theirs: str
    """The revision that the parent pins."""


def repair_commit(ws: Workspace, commit: str) -> MergeReport:
    """Merge one revision that the commit's parents pin and the present one lacks.

    Call it again for more. The result is `already_up_to_date` if nothing is missing. Raises
    `GitReferenceMissing`, `PinRevisionMissing`, and the errors of `merge.merge`.
    """
    target = require_mergeable(ws)
    ours = target.revision
    side = find_dropped_side(ws, plumbing.resolve_commit(ws.places, commit), ours)
    if side is None:
        return MergeReport(result="already_up_to_date", source=commit, base=ours, ours=ours, theirs=ours, revision=ours)
    source = f"{commit} (its parent {side.parent[:10]})"
    return merge_revision(ws, target, source, base=side.base, theirs=side.theirs)


def find_dropped_side(ws: Workspace, commit: str, revision: str) -> DroppedSide | None:
    """Return the first pin of a commit's parents that a revision lacks; None if it has them all.

    `commit` is a full hash. Raises `PinRevisionMissing` and the errors of `find_base`.
    """
    revisions_by_parent = _read_parents(ws, commit, revision)
    for parent, theirs in revisions_by_parent.items():
        if ws.engine.is_ancestor(theirs, revision):
            continue
        if len(set(revisions_by_parent.values())) > 1:
            other_parent = next(other for other in revisions_by_parent if other != parent)
            base = find_base(ws, revision, theirs, (parent, other_parent))  # the pin at git's merge base
        else:
            base = find_base(ws, _read_committed(ws, commit) or revision, theirs)
        if base != theirs:  # otherwise the side did not move, so there is nothing to merge
            return DroppedSide(parent, base, theirs)
    return None


def _read_parents(ws: Workspace, commit: str, revision: str) -> dict[str, str]:
    """Return the revisions that the parents of a commit pin, by parent.

    Unreadable pins are ignored. A missing revision is included, because it may be the dropped one,
    unless `revision` accepts its loss.
    """
    parents = pin_merge.list_parents(ws.places, commit)
    pins_by_parent = history.read_pins(ws.places, parents)
    revisions = {}
    for parent in parents:
        if try_read_pin(ws.places.kb, pins_by_parent.get(parent)):
            pinned = find_pinned_unless_lost(ws, parent, revision)
            if pinned:
                revisions[parent] = pinned
    return revisions


def _read_committed(ws: Workspace, commit: str) -> str | None:
    """Return the revision that the commit itself pins, if the knowledge base has it."""
    pin = try_read_pin(ws.places.kb, history.read_pins(ws.places, [commit]).get(commit))
    return pin.dolt_commit if pin and ws.engine.has_revision(pin.dolt_commit) else None
