"""`vmrag merge --repair COMMIT`: merge the knowledge that a code commit dropped.

It was merged where no driver merges pins: on a hosting service, say.
"""

from __future__ import annotations

from typing import NamedTuple

from vmrag_link.engines.migrated import try_read_pin
from vmrag_link.git import history, pin_merge, plumbing
from vmrag_link.ops.merge.merge import MergeReport, merge_revision, require_mergeable
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.history.ranges import find_base, find_pinned_unless_lost


class DroppedSide(NamedTuple):
    """What a `parent` of a commit pins and a later revision lacks; it is merged from `base`."""

    parent: str
    base: str
    theirs: str


def repair_commit(ws: Workspace, commit: str) -> MergeReport:
    """Merge one pin of the commit's parents that the present knowledge lacks; repeat for more.

    Raises `GitReferenceMissing`, `PinRevisionMissing`, and as `merge.merge`.
    """
    target = require_mergeable(ws)
    here = target.revision
    side = find_dropped_side(ws, plumbing.resolve_commit(ws.places, commit), here)
    if side is None:
        return MergeReport("already_up_to_date", commit, here, here, here, here)
    source = f"{commit} (its parent {side.parent[:10]})"
    return merge_revision(ws, target, source, base=side.base, theirs=side.theirs)


def find_dropped_side(ws: Workspace, commit: str, revision: str) -> DroppedSide | None:
    """The first pin of a commit's parents that a revision lacks; None if it has them all.

    `commit`: its full hash. Raises `PinRevisionMissing`, and as `base_of`.
    """
    sides = _sides(ws, pin_merge.list_parents(ws.places, commit), revision)
    for parent, theirs in sides.items():
        if ws.engine.is_ancestor(theirs, revision):
            continue
        base = _base(ws, revision, commit, sides, parent)
        if base != theirs:  # else a side that did not move: there is nothing to take in
            return DroppedSide(parent, base, theirs)
    return None


def _sides(ws: Workspace, parents: list[str], here: str) -> dict[str, str]:
    """What the parents pin, by commit.

    Unreadable pins are ignored; a revision that is missing here is not, for it may be the dropped
    one, unless what is `here` accepts its loss.
    """
    read = {commit: try_read_pin(ws.places.kb, data) for commit, data in history.read_pins(ws.places, parents).items()}
    found = ((parent, find_pinned_unless_lost(ws, parent, here)) for parent in parents if read.get(parent))
    return {parent: revision for parent, revision in found if revision}


def _base(ws: Workspace, revision: str, commit: str, sides: dict[str, str], parent: str) -> str:
    """The base for a parent's pin: the pin at git's merge base.

    Where all sides pin the same, it is what the commit left of that.
    """
    theirs = sides[parent]
    if len(set(sides.values())) > 1:
        other = next(side for side in sides if side != parent)
        return find_base(ws, revision, theirs, (parent, other))
    left = try_read_pin(ws.places.kb, history.read_pins(ws.places, [commit]).get(commit))
    known = left is not None and ws.engine.has_revision(left.dolt_commit)
    return find_base(ws, left.dolt_commit if left and known else revision, theirs)
