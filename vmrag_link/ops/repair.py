"""`vmrag merge --repair COMMIT`: take in the knowledge that a code commit dropped, because it was made where no driver merges pins."""

from __future__ import annotations

from vmrag_link.errors import PinMissing
from vmrag_link.git import merging, plumbing
from vmrag_link.ops.merge import MergeReport, merge_revision, mergeable, related_base
from vmrag_link.workspace import Workspace


def repair(ws: Workspace, commit: str) -> MergeReport:
    """Merge the pins of the commit's parents that the present knowledge does not contain, one of them in each run.

    A merge commit's base is the pin of git's merge base; that of a squashed branch the engine's. Raises `GitReferenceMissing`,
    `PinRevisionMissing`, and as `merge.merge`.
    """
    target = mergeable(ws)
    full = plumbing.resolve(ws.places, commit)
    parents = merging.parents(ws.places, full)
    for parent in parents:
        theirs = _pinned(ws, parent)
        if theirs is None or ws.engine.is_ancestor(theirs, target.revision):
            continue
        base = _base(ws, parents, theirs, target.revision if len(parents) > 1 else _pinned(ws, full) or target.revision)
        return merge_revision(ws, target, f"{commit} (its parent {parent[:10]})", base=base, theirs=theirs)
    here = target.revision
    return MergeReport("already_up_to_date", commit, here, here, here, here)


def _base(ws: Workspace, parents: list[str], theirs: str, other: str) -> str:
    if len(parents) > 1:
        common = merging.merge_base(ws.places, parents[0], parents[1])
        pinned = _pinned(ws, common) if common else None
        if pinned:
            return pinned
    return related_base(ws, other, theirs)


def _pinned(ws: Workspace, commit: str) -> str | None:
    """None for a commit that pins nothing; a revision that is not here is an error: it may be what was dropped."""
    try:
        return ws.pinned_at(commit)
    except PinMissing:
        return None
