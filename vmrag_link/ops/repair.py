"""`vmrag merge --repair COMMIT`: take in the knowledge that a code commit dropped, because it was made where no driver merges pins."""

from __future__ import annotations

from vmrag_link.git import merging, plumbing
from vmrag_link.ops.bases import base_of, pinned
from vmrag_link.ops.merge import MergeReport, merge_revision, mergeable
from vmrag_link.workspace import Workspace


def repair(ws: Workspace, commit: str) -> MergeReport:
    """Merge the pins of the commit's parents that the present knowledge does not contain, one of them in each run.

    Raises `GitReferenceMissing`, `PinRevisionMissing`, and as `merge.merge`.
    """
    target = mergeable(ws)
    full = plumbing.resolve(ws.places, commit)
    parents = merging.parents(ws.places, full)
    for parent in parents:
        theirs = pinned(ws, parent)
        if theirs is None or ws.engine.is_ancestor(theirs, target.revision):
            continue
        others = [each for each in parents if each != parent]
        if others:
            base = base_of(ws, target.revision, theirs, (parent, others[0]))
        else:  # a squashed branch took the place of its only parent's knowledge
            base = base_of(ws, pinned(ws, full) or target.revision, theirs)
        return merge_revision(ws, target, f"{commit} (its parent {parent[:10]})", base=base, theirs=theirs)
    here = target.revision
    return MergeReport("already_up_to_date", commit, here, here, here, here)
