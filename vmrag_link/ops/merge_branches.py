"""Merge for tools: into any free KB branch, with a return to the former branch, and resolve
conflicts in bulk.

Conflicts are found before anything is changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import structs

from vmrag_link import clock
from vmrag_link.engines.base import Write
from vmrag_link.errors import (
    DocumentMissing,
    MergeConflict,
    MergeRefused,
    NothingSelected,
    TableMissing,
    plural,
    quoted,
)
from vmrag_link.git import identity
from vmrag_link.index.metadata import parse_chunk_id
from vmrag_link.merging.choices import Choice
from vmrag_link.merging.conflicts import Conflict, Decision, Side, decide_all
from vmrag_link.merging.revisions import Signature
from vmrag_link.merging.threeway import MergeResult
from vmrag_link.merging.threeway import merge as three_way
from vmrag_link.models import At, ChangeCounts, KbBranch, Record, WorkingSet
from vmrag_link.ops import reset
from vmrag_link.ops.branch.switch import require_free_branch, switch
from vmrag_link.ops.commit import commit as committing
from vmrag_link.ops.merge import merge
from vmrag_link.ops.merge.merge import MergeReport
from vmrag_link.ops.reset import Handling
from vmrag_link.ops.resolve import resolve
from vmrag_link.sync.target import Target
from vmrag_link.workspace import Workspace, twins
from vmrag_link.workspace.commits import revisions
from vmrag_link.workspace.documents import collections, writing
from vmrag_link.workspace.history import revparse
from vmrag_link.workspace.merge import conflict_rows, merge_state, sides
from vmrag_link.workspace.merge.conflict_rows import OpenConflict
from vmrag_link.workspace.merge.merge_state import Kind, MergeState

OnConflict = Literal["keep", "abort", "ours", "theirs"]
"""The reaction to conflicts.

`keep` leaves the merge open, `abort` changes nothing, and `ours` or `theirs` decides all conflicts.
"""
ALL = "all"
"""The table name that means all tables."""
_TABLES = (ALL, *collections.TABLES, collections.COLLECTIONS)


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
    under_way = merge_state.recover_merge(ws)
    if under_way and under_way.kind == "aside" and under_way.source == source:  # a killed call left it
        report = merge.continue_merge(ws)
        return BranchMerge(_name_branch(ws.resolve_target()), report, 0, ())
    state = merge.require_mergeable(ws)
    other_branch = None if target is None else _find_target(ws, state, target)
    abandoned = merge.stash_abandoned(ws, state, source) if other_branch is None and on_conflict != "abort" else None
    merge_source = _open_source(ws, abandoned.name if abandoned else source)
    name = other_branch.name if other_branch else _name_branch(state)
    if on_conflict == "abort" and (conflicts := merge_source.list_conflicts(ws, _find_ours(state, other_branch, how))):
        raise _conflict_error(source, f"{source} conflicts with {name}; nothing was changed", conflicts, merging=False)
    # Stashed documents are merged with the uncommitted ones. Any other source would mix the two.
    clean = reset.clean_branch(ws, how, message=f"Before merging {source}")
    with contextlib.nullcontext() if merge_source.aside else clean, _on_branch(ws, other_branch):
        into = merge.require_mergeable(ws)
        outcome = _merge_source(ws, merge_source, into, name, message=message, on_conflict=on_conflict)
        if outcome.merge.result == "conflict":
            statement = f"{source} conflicts with {name}; the merge is open"
            raise _conflict_error(source, statement, outcome.conflicts, merging=True)
    return outcome


def preview_merge(ws: Workspace, source: str, *, target: str | None = None) -> BranchMerge:
    """Return what `merge_branch` would do with the committed documents. Nothing is changed.

    `conflicts` contains the expected conflicts. Raises the errors that `merge_branch` raises before
    it changes anything.
    """
    state = merge.require_mergeable(ws)
    merge_source = _open_source(ws, source)
    other = None if target is None else _find_target(ws, state, target)
    ours, theirs = other.head if other else state.revision, merge_source.revision
    base = merge_source.find_base(ws, ours)
    report = MergeReport(result="already_up_to_date", source=source, base=base, ours=ours, theirs=theirs, revision=None)
    name = other.name if other else _name_branch(state)
    if theirs in (base, ours):
        return BranchMerge(name, report, 0, ())
    merged = three_way(ws.engine, base=base, ours=ours, theirs=theirs, derived=twins.build_derived(ws))
    changes = _count_changes(merged.rows, {header.key for header in ws.engine.read_headers(ours)})
    report = structs.replace(report, result="fast_forward" if ours == base else "merge", changes=changes)
    return BranchMerge(name, report, revisions.count_beyond(ws.engine, [theirs], [ours]), merged.conflicts)


def _count_changes(rows: Write, present: set[tuple[str, str]]) -> ChangeCounts:
    """Count what storing these rows does to the documents with the keys `present`."""
    put_keys = {put_document.key for put_document in rows.put_documents}
    removed = {key for key in present if key[0] in rows.remove_collections} | {*rows.remove_documents} & present
    return ChangeCounts(len(put_keys - present), len(put_keys & present), len(removed - put_keys))


class _Source(Record, frozen=True):
    """The source of a merge."""

    name: str
    revision: str
    """The head of `aside`, if that is a branch with stashed documents."""
    aside: KbBranch | None

    def find_base(self, ws: Workspace, ours: str) -> str:
        if self.aside:
            return merge.find_aside_base(ws, self.aside)
        return sides.find_source_base(ws, self.name, ours=ours, theirs=self.revision)

    def list_conflicts(self, ws: Workspace, ours: At) -> tuple[Conflict, ...]:
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


def _merge_source(
    ws: Workspace, source: _Source, into: Target, name: str, *, message: str | None, on_conflict: OnConflict
) -> BranchMerge:
    """Merge into the KB branch `name`, which is checked out."""
    conflicts = source.list_conflicts(ws, ws.locate_documents() if source.aside else into.revision)
    decisions = decide_all(conflicts, Choice(on_conflict)) if on_conflict in ("ours", "theirs") else None
    if source.aside:
        return BranchMerge(name, merge.merge_aside(ws, into, source.aside, decisions=decisions), 0, conflicts)
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
    return BranchMerge(name, report, commits, conflicts)


def _find_target(ws: Workspace, state: Target, target: str) -> KbBranch | None:
    """Return the KB branch to merge into; None if it is HEAD's."""
    if state.kb_branch and target == state.kb_branch.name:
        return None
    branch = revparse.find_tool_branch(ws, target)
    if branch is None:
        if state.kb_branch is None and target in (state.trigger.branch, _name_branch(state)):
            return None  # the first document creates the branch
        raise revparse.no_branch(ws, target)
    require_free_branch(ws, branch.name, state.trigger.branch or "")
    if branch.dirty:
        raise reset.build_uncommitted_error(ws, branch)
    return branch


def _name_branch(state: Target) -> str:
    """Return the name of HEAD's KB branch, or the name that the first write will give it."""
    if state.kb_branch:
        return state.kb_branch.name
    return state.pin.dolt_branch if state.pin else state.trigger.branch or ""


def _find_ours(state: Target, other_branch: KbBranch | None, how: Handling) -> At:
    """Return what will be merged into, before uncommitted documents are handled."""
    if other_branch:
        return other_branch.head
    branch = state.kb_branch
    return WorkingSet(branch.name) if branch and branch.dirty and how != "reset_first" else state.revision


def _conflict_error(source: str, statement: str, conflicts: tuple[Conflict, ...], *, merging: bool) -> MergeConflict:
    listed = conflict_rows.encode_rows(conflict_rows.list_conflict_rows(conflicts))
    kind = MergeConflict if merging else MergeRefused
    return kind(
        f"{statement}: {plural(len(listed), 'conflict')}.",
        hint="run 'vmrag resolve' to resolve the conflicts"
        if merging
        else f"run 'vmrag merge {quoted(source)}' to merge it",
        conflicts=listed,
        merge_in_progress=merging,
    )


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


class BulkReport(Record, frozen=True):
    """The result of `resolve_bulk`."""

    kind: Kind
    decided: int
    """Number of conflicts that this call decided."""
    open_conflicts: tuple[OpenConflict, ...]
    """Conflicts without a decision."""
    revision: str | None = None
    """The committed revision."""
    next: str = ""
    """For git's merge, the command without quotes that finishes it."""
    staged: bool = True
    """See `CommitReport`."""
    pending: str = ""
    """See `CommitReport`."""


def resolve_bulk(
    ws: Workspace, table: str, side: Side, *, ids: Sequence[str] = (), commit: bool = False, message: str = ""
) -> BulkReport:
    """Take a side for the conflicts of a `table`, or of its documents `ids`.

    `table` is one of `collections.TABLES`, a collection, or `ALL`. After the last conflict, git's
    conflict ends automatically, and stashed documents become uncommitted. vmrag's own merge waits
    for a commit, which `commit` makes.

    Raises `NothingSelected` if there is no conflict, `TableMissing`, `DocumentMissing`, and
    `MergeConflict` if a commit is requested and conflicts are left. Decisions are kept then.
    """
    resolve.fetch_sides(ws)
    state = merge_state.recover_merge(ws)
    if state is None:
        raise NothingSelected(
            "no merge is open, so no document is in conflict.", hint="run 'vmrag merge REF' to start a merge"
        )
    if state.kind != "git":
        writing.require_writable(ws)
    merged = merge_state.apply_decisions(ws, state)
    chosen: list[Conflict] = []
    if merged.conflicts or ids or state.kind == "merge":
        chosen = _select_conflicts(ws, state, merged, table, ids)
        report = resolve.resolve(ws, [conflict.id for conflict in chosen], Decision(side=side))
    else:
        report = resolve.list_conflicts(ws)  # the sides agree, or a call was killed after the last decision
    undecided = tuple(conflict_rows.list_conflict_rows([conflict.conflict for conflict in report.conflicts]))
    if undecided:
        if commit:
            raise MergeConflict(
                f"{plural(len(undecided), 'conflict')} without a decision; nothing was committed.",
                hint="run 'vmrag resolve' to resolve the conflicts",
                conflicts=conflict_rows.encode_rows(undecided),
            )
        return BulkReport(state.kind, len(chosen), undecided)
    if state.kind == "git":
        revision = report.pin.dolt_commit if report.pin and commit else None
        return BulkReport(
            kind=state.kind,
            decided=len(chosen),
            open_conflicts=(),
            revision=revision,
            next=report.next,
            staged=report.staged,
        )
    pending = merge.continue_merge(ws).pending if state.kind == "aside" else ""
    if not commit:
        return BulkReport(state.kind, len(chosen), (), pending=pending)
    commit_report = committing.commit(ws, message)
    return BulkReport(
        state.kind, len(chosen), (), commit_report.revision, staged=commit_report.staged, pending=commit_report.pending
    )


def _select_conflicts(
    ws: Workspace, state: MergeState, merged: MergeResult, table: str, ids: Sequence[str]
) -> list[Conflict]:
    """Return the conflicts without a decision.

    With `ids`, decided conflicts are also returned, because they can be decided again.
    """
    all_conflicts = (*merged.conflicts, *merged.decided)
    rows = dict(zip(all_conflicts, conflict_rows.list_conflict_rows(all_conflicts), strict=True))
    matching = [conflict for conflict, row in rows.items() if table in (ALL, row.table, conflict.collection)]
    if not matching and table not in _TABLES and not _is_collection(ws, state, table):
        raise TableMissing(
            f"no such table or collection: {table!r}.",
            hint="run 'vmrag resolve --list' to list the conflicts",
            table=table,
            tables=list(_TABLES),
        )
    if ids:
        return [conflict for doc_id in ids for conflict in _select_document(matching, doc_id, table)]
    undecided = [conflict for conflict in merged.conflicts if conflict in matching]
    if not undecided:
        more = "" if merged.conflicts else "; commit to close the merge"
        raise NothingSelected(
            f"{table!r} has no open conflicts{more}.", hint="run 'vmrag resolve --list' to list the conflicts"
        )
    return undecided


def _is_collection(ws: Workspace, state: MergeState, name: str) -> bool:
    return any(
        collection.name == name
        for at in (ws.locate_documents(), state.theirs)
        for collection in ws.engine.list_collections(at)
    )


def _select_document(conflicts: Sequence[Conflict], doc_id: str, table: str) -> list[Conflict]:
    """Return the conflicts of a document, by its id or that of a chunk. Several collections may
    have the id.
    """
    chunk = parse_chunk_id(doc_id)
    for name in (doc_id, chunk[0] if chunk else ""):
        if matching := [conflict for conflict in conflicts if name and conflict.doc_id == name]:
            return matching
    raise DocumentMissing(
        f"{doc_id!r} has no conflict in {table!r}.",
        hint="run 'vmrag resolve --list' to list the conflicts",
        doc_id=doc_id,
        conflicts=[conflict.id for conflict in conflicts],
    )
