"""Merge into any KB branch that is free, and leave the workspace where it was; conflicts are known before anything is changed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

from vmrag_link import clock
from vmrag_link.errors import MergeConflict, quoted
from vmrag_link.git import plumbing
from vmrag_link.merging.conflicts import Choice, Conflict, all_taken
from vmrag_link.merging.revisions import Signature
from vmrag_link.merging.threeway import merge as three_way
from vmrag_link.models import At, KbBranch, Record, Working
from vmrag_link.ops.branches import uncommitted
from vmrag_link.ops.branches.switch import require_free, switch
from vmrag_link.ops.branches.uncommitted import Handling
from vmrag_link.ops.commits import ahead_behind
from vmrag_link.ops.history import revparse
from vmrag_link.ops.merge import conflict_rows, merge, merge_state
from vmrag_link.ops.merge.merge import MergeReport
from vmrag_link.sync.target import Target
from vmrag_link.workspace import Workspace

OnConflict = Literal["keep", "abort", "ours", "theirs"]
"""`keep`: the merge stays open; `abort`: nothing is changed; a side: it is taken, and the merge is made."""


class BranchMerge(Record, frozen=True):
    """`target`: the branch that was merged into; `commits`: how many of theirs it did not have; `decided`: what was in conflict."""

    target: str
    merge: MergeReport
    commits: int
    decided: tuple[Conflict, ...]


def merge_branch(
    ws: Workspace,
    source: str,
    *,
    target: str | None = None,
    message: str | None = None,
    on_conflict: OnConflict = "keep",
    how: Handling = "abort",
) -> BranchMerge:
    """Merge what `source` names (`revparse.tool_rev`, or a branch `vmrag/wip/…`) into a KB branch, by default HEAD's.

    `how`: what becomes of uncommitted documents here. Raises `BranchMissing`, `BranchInUse`, `Uncommitted` before anything is changed, and
    as `merge.mergeable`; `MergeConflict` with `conflicts`: the merge is open then, on the target, unless `on_conflict` is `abort`.
    """
    under_way = merge_state.opened(ws)
    if under_way and under_way.kind == "aside" and under_way.source == source:  # a kill came between
        report = merge.proceed(ws)
        return BranchMerge(_name(ws.target()), report, 0, ())
    here = merge.mergeable(ws)
    aside = merge.aside_branch(ws, source)
    theirs = aside.head if aside else revparse.tool_branch_rev(ws, source)
    other = None if target is None else _other(ws, here, target)
    name = other.name if other else _name(here)
    ours = _ours(here, other, how)
    if on_conflict == "abort" and (conflicts := _conflicts(ws, source, aside, ours=ours, theirs=theirs)):
        raise _conflict(ws, source, f"{source} conflicts with {name}; nothing was changed", conflicts, merging=False)
    # What was set aside is merged with what is uncommitted here; anything else would mix the two.
    clean = contextlib.nullcontext() if aside else uncommitted.cleared(ws, how, message=f"Before merging {source}")
    with clean, _standing_on(ws, other):
        into = merge.mergeable(ws)
        ours = into.revision if aside is None else ws.at()
        conflicts = _conflicts(ws, source, aside, ours=ours, theirs=theirs)
        side = Choice(on_conflict) if on_conflict in ("ours", "theirs") else None
        decisions = all_taken(conflicts, side) if side else None
        commits = 0 if aside else ahead_behind.beyond(ws.engine, [theirs], [into.revision])
        if aside:
            report = merge.merge_aside(ws, into, aside, decisions=decisions)
        else:
            signature = Signature(message or f"Merge {source} into {name}", plumbing.identity(ws.places), clock.now())
            base = merge.merge_base(ws, source, ours=into.revision, theirs=theirs)
            report = merge.merge_revision(
                ws, into, source, base=base, theirs=theirs, decisions=decisions, signature=signature
            )
        if report.result == "conflict":
            raise _conflict(ws, source, f"{source} conflicts with {name}; the merge is open", conflicts, merging=True)
    return BranchMerge(name, report, commits, conflicts)


def _other(ws: Workspace, here: Target, target: str) -> KbBranch | None:
    """The KB branch to merge into, if it is not the one that HEAD is on."""
    if here.kb_branch and target == here.kb_branch.name:
        return None
    found = ws.engine.branch(target) if ws.engine.legal_branch_name(target) else None
    if found is None:
        if here.kb_branch is None and target in (here.trigger.branch, _name(here)):
            return None  # it has no branch yet: the first document makes one
        raise revparse.no_branch(ws, target)
    require_free(ws, found.name, here.trigger.branch or "")
    if found.dirty:
        raise uncommitted.refusal(ws, found)
    return found


def _name(here: Target) -> str:
    """What the branch is called that HEAD is on, or will be made under at the first write."""
    if here.kb_branch:
        return here.kb_branch.name
    return here.pin.dolt_branch if here.pin else here.trigger.branch or ""


def _ours(here: Target, other: KbBranch | None, how: Handling) -> At:
    """What would be merged into, as far as that can be known before uncommitted documents are seen to."""
    if other:
        return other.head
    branch = here.kb_branch
    return Working(branch.name) if branch and branch.dirty and how != "reset_first" else here.revision


def _conflicts(ws: Workspace, source: str, aside: KbBranch | None, *, ours: At, theirs: str) -> tuple[Conflict, ...]:
    if aside:
        base = merge.aside_base(ws, aside)
    else:
        head = ours if isinstance(ours, str) else ws.target().revision
        base = merge.merge_base(ws, source, ours=head, theirs=theirs)
        if theirs in (base, head):
            return ()
    return three_way(ws.engine, base=base, ours=ours, theirs=theirs).conflicts


def _conflict(
    ws: Workspace, source: str, what: str, conflicts: tuple[Conflict, ...], *, merging: bool
) -> MergeConflict:
    listed = conflict_rows.as_json(conflict_rows.rows(ws, conflicts))
    return MergeConflict(
        f"{what}: {len(listed)} in conflict.",
        hint="vmrag resolve" if merging else f"vmrag merge {quoted(source)}",
        conflicts=listed,
        merge_in_progress=merging,
    )


@contextlib.contextmanager
def _standing_on(ws: Workspace, other: KbBranch | None) -> Iterator[None]:
    """Be on another KB branch for a while; and go on to be if the block leaves a merge open there."""
    if other is None:
        yield
        return
    before = ws.kb_branch()
    former = before.name if before else ws.revision_here()
    switch(ws, other.name)
    try:
        yield
    finally:
        if not merge_state.opened(ws):
            switch(ws, former)
