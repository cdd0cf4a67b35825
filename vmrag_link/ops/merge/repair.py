"""`vmrag merge --repair COMMIT`: merge the knowledge that a code commit dropped.

Such a commit is merged where no driver merges pins, for example on a hosting service.
"""

from __future__ import annotations

from typing import NamedTuple

from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.git import history, pin_merge, plumbing
from vmrag_link.ops.merge.merge import MergeReport, merge_revision, require_mergeable
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.history.ranges import find_base, find_pinned_unless_lost


class DroppedSide(NamedTuple):
    """The revision `theirs` that a `parent` of a commit pins and a later revision lacks. It is
    merged from `base`.
    """

    parent: str
    base: str
    theirs: str


def repair_commit(ws: Workspace, commit: str) -> MergeReport:
    """Merge one pin of the commit's parents that the present knowledge base lacks. Call it again
    for more.

    Raises `GitReferenceMissing`, `PinRevisionMissing`, and the errors of `merge.merge`.
    """
    target = require_mergeable(ws)
    present = target.revision
    side = find_dropped_side(ws, plumbing.resolve_commit(ws.places, commit), present)
    if side is None:
        return MergeReport(
            result="already_up_to_date", source=commit, base=present, ours=present, theirs=present, revision=present
        )
    source = f"{commit} (its parent {side.parent[:10]})"
    return merge_revision(ws, target, source, base=side.base, theirs=side.theirs)


def find_dropped_side(ws: Workspace, commit: str, revision: str) -> DroppedSide | None:
    """Return the first pin of a commit's parents that a revision lacks; None if it has them all.

    `commit` is a full hash. Raises `PinRevisionMissing` and the errors of `find_base`.
    """
    sides = _read_sides(ws, pin_merge.list_parents(ws.places, commit), revision)
    for parent, theirs in sides.items():
        if ws.engine.is_ancestor(theirs, revision):
            continue
        base = _find_base(ws, revision, commit, sides, parent)
        if base != theirs:  # otherwise the side did not move, so there is nothing to merge
            return DroppedSide(parent, base, theirs)
    return None


def _read_sides(ws: Workspace, parents: list[str], present: str) -> dict[str, str]:
    """Return the revisions that the parents pin, by commit.

    Unreadable pins are ignored. A missing revision is included, because it may be the dropped one,
    unless the revision `present` accepts its loss.
    """
    pins_by_commit = {
        commit: try_read_pin(ws.places.kb, data) for commit, data in history.read_pins(ws.places, parents).items()
    }
    revisions = (
        (parent, find_pinned_unless_lost(ws, parent, present)) for parent in parents if pins_by_commit.get(parent)
    )
    return {parent: revision for parent, revision in revisions if revision}


def _find_base(ws: Workspace, revision: str, commit: str, sides: dict[str, str], parent: str) -> str:
    """Return the base for a parent's pin, which is the pin at git's merge base.

    If all sides pin the same revision, it is what the commit kept of it.
    """
    theirs = sides[parent]
    if len(set(sides.values())) > 1:
        other = next(side for side in sides if side != parent)
        return find_base(ws, revision, theirs, (parent, other))
    committed_pin = try_read_pin(ws.places.kb, history.read_pins(ws.places, [commit]).get(commit))
    is_known = committed_pin is not None and ws.engine.has_revision(committed_pin.dolt_commit)
    return find_base(ws, committed_pin.dolt_commit if committed_pin and is_known else revision, theirs)
