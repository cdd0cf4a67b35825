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
        others = [each for each in parents if each != parent]
        base = _git_base(ws, parent, others[0]) if others else None
        if base is None:
            squashed = None if others else _pinned(ws, full)
            base = related_base(ws, squashed or target.revision, theirs)
        return merge_revision(ws, target, f"{commit} (its parent {parent[:10]})", base=base, theirs=theirs)
    here = target.revision
    return MergeReport("already_up_to_date", commit, here, here, here, here)


def _git_base(ws: Workspace, one: str, other: str) -> str | None:
    common = merging.merge_base(ws.places, one, other)
    return _pinned(ws, common) if common else None


def _pinned(ws: Workspace, commit: str) -> str | None:
    """None for a commit that pins nothing; a revision that is not here is an error: it may be what was dropped."""
    try:
        return ws.pinned_at(commit)
    except PinMissing:
        return None
