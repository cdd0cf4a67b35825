"""Merge for tools: into any KB branch that no worktree uses, with a return to the former branch.

Unlike `vmrag merge`, it can find the conflicts before anything is changed. A `Target` is the
revision that HEAD pins, with HEAD's KB branch. *Stashed* documents are the commit of a branch
`vmrag/wip/…`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

from msgspec import structs

from vmrag_link import clock
from vmrag_link.engines.base import Write
from vmrag_link.errors import (
    MergeConflict,
    MergeRefused,
    plural,
    quoted,
)
from vmrag_link.git import identity
from vmrag_link.merging.choices import Choice
from vmrag_link.merging.conflicts import Conflict, decide_all
from vmrag_link.merging.revisions import Signature
from vmrag_link.merging.threeway import merge as three_way
from vmrag_link.models import At, ChangeCounts, KbBranch, Record, WorkingSet
from vmrag_link.ops import uncommitted
from vmrag_link.ops.branch.switch import require_free_branch, switch
from vmrag_link.ops.merge import merge
from vmrag_link.ops.merge.merge import MergeReport
from vmrag_link.ops.uncommitted import Handling
from vmrag_link.sync.target import Target
from vmrag_link.workspace import Workspace, twins
from vmrag_link.workspace.commits import revisions
from vmrag_link.workspace.history import revparse
from vmrag_link.workspace.merge import conflict_rows, merge_state, sides

OnConflict = Literal["keep", "abort", "ours", "theirs"]
"""The reaction to conflicts.

`keep` leaves the merge open, `abort` changes nothing, and `ours` or `theirs` decides all conflicts.
"""


class BranchMerge(Record, frozen=True):
    """The result of `merge_branch` or `preview_merge`."""

    target: str
    """The branch that is merged into."""
    merge: MergeReport
    commits: int
    """Number of commits of the source that the target lacked."""
    conflicts: tuple[Conflict, ...]
    """The conflicts of the merge, also those that this merge decided."""


def merge_branch(
    ws: Workspace,
    source: str,
    *,
    target: str | None = None,
    message: str | None = None,
    on_conflict: OnConflict = "keep",
    how: Handling = "abort",
) -> BranchMerge:
    """Merge `source` into a KB branch, by default HEAD's.

    `source` is a name of `revparse.resolve_tool_branch_rev`, or a branch `vmrag/wip/…`. `how` is
    what to do with uncommitted documents of the present branch.

    Raises `BranchMissing`, `BranchInUse`, `Uncommitted` and the errors of `merge.require_mergeable`
    before anything is changed. Raises `MergeConflict` with the detail `conflicts`: the merge is
    then open on the target. With `on_conflict` = `abort` it raises `MergeRefused` instead and
    changes nothing.
    """
    open_merge = merge_state.recover_merge(ws)
    if open_merge and open_merge.kind == "aside" and open_merge.source == source:  # a killed call left it
        report = merge.continue_merge(ws)
        return BranchMerge(_name_branch(ws.resolve_target()), report, commits=0, conflicts=())
    current = merge.require_mergeable(ws)
    other_branch = None if target is None else _find_target(ws, current, target)
    abandoned = None
    if other_branch is None and on_conflict != "abort":
        abandoned = merge.stash_abandoned(ws, current, source)
    merge_source = _open_source(ws, abandoned.name if abandoned else source)
    name = other_branch.name if other_branch else _name_branch(current)
    if on_conflict == "abort":
        conflicts = merge_source.list_conflicts(ws, _find_ours(current, other_branch, how))
        if conflicts:
            statement = f"{source} conflicts with {name}; nothing was changed"
            raise _build_conflict_error(source, statement, conflicts, is_open=False)
    # Stashed documents are merged with the uncommitted ones. Any other source would mix the two.
    clean = uncommitted.clean_branch(ws, how, message=f"Before merging {source}")
    with contextlib.nullcontext() if merge_source.aside else clean, _on_branch(ws, other_branch):
        into = merge.require_mergeable(ws)
        outcome = _merge_source(ws, merge_source, into, name, message=message, on_conflict=on_conflict)
        if outcome.merge.result == "conflict":
            statement = f"{source} conflicts with {name}; the merge is open"
            raise _build_conflict_error(source, statement, outcome.conflicts, is_open=True)
    return outcome


def preview_merge(ws: Workspace, source: str, *, target: str | None = None) -> BranchMerge:
    """Return what `merge_branch` would do with the committed documents. Nothing is changed.

    `conflicts` contains the expected conflicts. Raises the errors that `merge_branch` raises before
    it changes anything.
    """
    current = merge.require_mergeable(ws)
    merge_source = _open_source(ws, source)
    other_branch = None if target is None else _find_target(ws, current, target)
    name = other_branch.name if other_branch else _name_branch(current)
    ours = other_branch.head if other_branch else current.revision
    theirs = merge_source.revision
    base = merge_source.find_base(ws, ours)
    report = MergeReport(result="already_up_to_date", source=source, base=base, ours=ours, theirs=theirs, revision=None)
    if theirs in (base, ours):
        return BranchMerge(name, report, commits=0, conflicts=())
    merged = three_way(ws.engine, base=base, ours=ours, theirs=theirs, derived=twins.build_derived(ws))
    changes = _count_changes(merged.rows, {header.key for header in ws.engine.read_headers(ours)})
    report = structs.replace(report, result="fast_forward" if ours == base else "merge", changes=changes)
    commits = revisions.count_beyond(ws.engine, [theirs], [ours])
    return BranchMerge(name, report, commits=commits, conflicts=merged.conflicts)


def _name_branch(current: Target) -> str:
    """Return the name of HEAD's KB branch, or the name that the first write will give it."""
    if current.kb_branch:
        return current.kb_branch.name
    return current.pin.dolt_branch if current.pin else current.trigger.branch or ""


def _find_target(ws: Workspace, current: Target, target: str) -> KbBranch | None:
    """Return the KB branch to merge into; None if it is HEAD's."""
    if current.kb_branch and target == current.kb_branch.name:
        return None
    branch = revparse.find_tool_branch(ws, target)
    if branch is None:
        if current.kb_branch is None and target in (current.trigger.branch, _name_branch(current)):
            return None  # the first document creates the branch
        raise revparse.no_branch(ws, target)
    require_free_branch(ws, branch.name, current.trigger.branch or "")
    if branch.dirty:
        raise uncommitted.build_uncommitted_error(ws, branch)
    return branch


class _Source(Record, frozen=True):
    """The revision that is merged."""

    name: str
    revision: str
    aside: KbBranch | None
    """The branch of stashed documents, if the revision is its head."""

    def find_base(self, ws: Workspace, ours: str) -> str:
        if self.aside:
            return merge.find_aside_base(ws, self.aside)
        return sides.find_source_base(ws, self.name, ours=ours, theirs=self.revision)

    def list_conflicts(self, ws: Workspace, ours: At) -> tuple[Conflict, ...]:
        """Return the conflicts of a merge into the documents at `ours`."""
        head = ours if isinstance(ours, str) else ws.resolve_target().revision
        base = self.find_base(ws, head)
        if self.aside is None and self.revision in (base, head):
            return ()
        return three_way(
            ws.engine, base=base, ours=ours, theirs=self.revision, derived=twins.build_derived(ws)
        ).conflicts


def _open_source(ws: Workspace, name: str) -> _Source:
    aside = merge.find_aside_branch(ws, name)
    return _Source(name, aside.head if aside else revparse.resolve_tool_branch_rev(ws, name), aside)


def _find_ours(current: Target, other_branch: KbBranch | None, how: Handling) -> At:
    """Return what will be merged into, before uncommitted documents are handled."""
    if other_branch:
        return other_branch.head
    branch = current.kb_branch
    return WorkingSet(branch.name) if branch and branch.dirty and how != "reset_first" else current.revision


def _build_conflict_error(
    source: str, statement: str, conflicts: tuple[Conflict, ...], *, is_open: bool
) -> MergeConflict:
    """Return the error that lists the conflicts, of a merge that is open or was refused."""
    rows = conflict_rows.encode_rows(conflict_rows.list_conflict_rows(conflicts))
    kind = MergeConflict if is_open else MergeRefused
    hint = f"run 'vmrag merge {quoted(source)}' to merge it"
    if is_open:
        hint = "run 'vmrag resolve' to resolve the conflicts"
    return kind(f"{statement}: {plural(len(rows), 'conflict')}.", hint=hint, conflicts=rows, merge_in_progress=is_open)


@contextlib.contextmanager
def _on_branch(ws: Workspace, branch: KbBranch | None) -> Iterator[None]:
    """Check out another KB branch in the block. It stays checked out if the block leaves a merge
    open.
    """
    if branch is None:
        yield
        return
    before = ws.find_kb_branch()
    former = before.name if before else ws.require_stored_revision()
    switch(ws, branch.name)
    try:
        yield
    finally:
        if not merge_state.recover_merge(ws):
            switch(ws, former)


def _merge_source(
    ws: Workspace, source: _Source, into: Target, name: str, *, message: str | None, on_conflict: OnConflict
) -> BranchMerge:
    """Merge into the KB branch `name`, which is checked out."""
    conflicts = source.list_conflicts(ws, ws.locate_documents() if source.aside else into.revision)
    decisions = decide_all(conflicts, Choice(on_conflict)) if on_conflict in ("ours", "theirs") else None
    if source.aside:
        report = merge.merge_aside(ws, into, source.aside, decisions=decisions)
        return BranchMerge(name, report, commits=0, conflicts=conflicts)
    commits = revisions.count_beyond(ws.engine, [source.revision], [into.revision])
    report = merge.merge_revision(
        ws,
        into,
        source.name,
        base=source.find_base(ws, into.revision),
        theirs=source.revision,
        decisions=decisions,
        signature=Signature(
            message or f"Merge {source.name} into {name}", identity.read_identity(ws.places), clock.now()
        ),
    )
    return BranchMerge(name, report, commits=commits, conflicts=conflicts)


def _count_changes(rows: Write, present: set[tuple[str, str]]) -> ChangeCounts:
    """Count what storing these rows does to the documents with the keys `present`."""
    put_keys = {document.key for document in rows.put_documents}
    removed = present.intersection(rows.remove_documents)
    removed |= {(collection, doc_id) for collection, doc_id in present if collection in rows.remove_collections}
    return ChangeCounts(len(put_keys - present), len(put_keys & present), len(removed - put_keys))
