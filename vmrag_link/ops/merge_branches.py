"""Merges as tools ask for them: into any free KB branch, returning to where the workspace was; and
decisions at once about the conflicts of a table, a collection or documents.

Conflicts are known before anything is changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import structs

from vmrag_link import clock
from vmrag_link.engines.base import Write
from vmrag_link.errors import DocumentMissing, MergeConflict, MergeRefused, NothingSelected, TableMissing, quoted
from vmrag_link.git import plumbing
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
"""`keep` leaves the merge open; `abort` changes nothing; a side is taken, and the merge made."""
ALL = "all"
_TABLES = (ALL, *collections.TABLES, collections.COLLECTIONS)


class BranchMerge(Record, frozen=True):
    """`target`: the branch merged into. `commits`: those of theirs that it lacked.

    `decided`: the conflicts.
    """

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
    """Merge `source` into a KB branch, by default HEAD's.

    `source`: as `revparse.tool_branch_rev` takes it, or a branch `vmrag/wip/…`. `how`: what becomes
    of
    uncommitted documents here. Raises `BranchMissing`, `BranchInUse`, `Uncommitted` before anything
    is changed, and as `merge.mergeable`; `MergeConflict` with `conflicts`: the merge is open then,
    on the target, unless `on_conflict` is `abort`.
    """
    under_way = merge_state.recover_merge(ws)
    if under_way and under_way.kind == "aside" and under_way.source == source:  # a kill came between
        report = merge.continue_merge(ws)
        return BranchMerge(_branch_name(ws.resolve_target()), report, 0, ())
    here = merge.require_mergeable(ws)
    other = None if target is None else _target_branch(ws, here, target)
    left = merge.stash_abandoned(ws, here, source) if other is None and on_conflict != "abort" else None
    found = _source(ws, left.name if left else source)
    name = other.name if other else _branch_name(here)
    if on_conflict == "abort" and (conflicts := found.conflicts(ws, _ours(here, other, how))):
        raise _conflict(source, f"{source} conflicts with {name}; nothing was changed", conflicts, merging=False)
    # What was set aside is merged with what is uncommitted here; anything else would mix the two.
    clean = reset.clean_branch(ws, how, message=f"Before merging {source}")
    with contextlib.nullcontext() if found.aside else clean, _on_branch(ws, other):
        into = merge.require_mergeable(ws)
        done = _merge_here(ws, found, into, name, message=message, on_conflict=on_conflict)
        if done.merge.result == "conflict":
            what = f"{source} conflicts with {name}; the merge is open"
            raise _conflict(source, what, done.decided, merging=True)
    return done


def preview_merge(ws: Workspace, source: str, *, target: str | None = None) -> BranchMerge:
    """What `merge_branch` would do with what is committed; nothing is changed. `decided` are the
    conflicts that there would be. Raises as `merge_branch` before anything is changed.
    """
    here = merge.require_mergeable(ws)
    found = _source(ws, source)
    other = None if target is None else _target_branch(ws, here, target)
    ours, theirs = other.head if other else here.revision, found.revision
    base = found.base(ws, ours)
    report = MergeReport("already_up_to_date", source, base, ours, theirs, None)
    name = other.name if other else _branch_name(here)
    if theirs in (base, ours):
        return BranchMerge(name, report, 0, ())
    merged = three_way(ws.engine, base=base, ours=ours, theirs=theirs, derived=twins.build_derived(ws))
    changes = _count(merged.rows, {header.key for header in ws.engine.read_headers(ours)})
    report = structs.replace(report, result="fast_forward" if ours == base else "merge", changes=changes)
    return BranchMerge(name, report, revisions.count_beyond(ws.engine, [theirs], [ours]), merged.conflicts)


def _count(rows: Write, there: set[tuple[str, str]]) -> ChangeCounts:
    """What storing these rows does to the documents that are `there`."""
    put = {put_document.key for put_document in rows.put_documents}
    gone = {each for each in there if each[0] in rows.remove_collections} | {*rows.remove_documents} & there
    return ChangeCounts(len(put - there), len(put & there), len(gone - put))


class _Source(Record, frozen=True):
    """What is merged.

    `revision` is the head of `aside`, if that holds documents that were set aside.
    """

    name: str
    revision: str
    aside: KbBranch | None

    def base(self, ws: Workspace, ours: str) -> str:
        if self.aside:
            return merge.find_aside_base(ws, self.aside)
        return sides.find_source_base(ws, self.name, ours=ours, theirs=self.revision)

    def conflicts(self, ws: Workspace, ours: At) -> tuple[Conflict, ...]:
        head = ours if isinstance(ours, str) else ws.resolve_target().revision
        base = self.base(ws, head)
        if self.aside is None and self.revision in (base, head):
            return ()
        return three_way(
            ws.engine, base=base, ours=ours, theirs=self.revision, derived=twins.build_derived(ws)
        ).conflicts


def _source(ws: Workspace, name: str) -> _Source:
    aside = merge.find_aside_branch(ws, name)
    return _Source(name, aside.head if aside else revparse.resolve_tool_branch_rev(ws, name), aside)


def _merge_here(
    ws: Workspace, source: _Source, into: Target, name: str, *, message: str | None, on_conflict: OnConflict
) -> BranchMerge:
    """Merge into the KB branch `name`, which the workspace stands on."""
    conflicts = source.conflicts(ws, ws.locate_documents() if source.aside else into.revision)
    decisions = decide_all(conflicts, Choice(on_conflict)) if on_conflict in ("ours", "theirs") else None
    if source.aside:
        return BranchMerge(name, merge.merge_aside(ws, into, source.aside, decisions=decisions), 0, conflicts)
    commits = revisions.count_beyond(ws.engine, [source.revision], [into.revision])
    report = merge.merge_revision(
        ws,
        into,
        source.name,
        base=source.base(ws, into.revision),
        theirs=source.revision,
        decisions=decisions,
        signature=Signature(
            message or f"Merge {source.name} into {name}", plumbing.read_identity(ws.places), clock.now()
        ),
    )
    return BranchMerge(name, report, commits, conflicts)


def _target_branch(ws: Workspace, here: Target, target: str) -> KbBranch | None:
    """The KB branch to merge into, if it is not the one that HEAD is on."""
    if here.kb_branch and target == here.kb_branch.name:
        return None
    found = revparse.find_tool_branch(ws, target)
    if found is None:
        if here.kb_branch is None and target in (here.trigger.branch, _branch_name(here)):
            return None  # it has no branch yet: the first document makes one
        raise revparse.no_branch(ws, target)
    require_free_branch(ws, found.name, here.trigger.branch or "")
    if found.dirty:
        raise reset.build_uncommitted_error(ws, found)
    return found


def _branch_name(here: Target) -> str:
    """What the branch is called that HEAD is on, or will be made under at the first write."""
    if here.kb_branch:
        return here.kb_branch.name
    return here.pin.dolt_branch if here.pin else here.trigger.branch or ""


def _ours(here: Target, other: KbBranch | None, how: Handling) -> At:
    """What would be merged into, judged before uncommitted documents are dealt with."""
    if other:
        return other.head
    branch = here.kb_branch
    return WorkingSet(branch.name) if branch and branch.dirty and how != "reset_first" else here.revision


def _conflict(source: str, what: str, conflicts: tuple[Conflict, ...], *, merging: bool) -> MergeConflict:
    listed = conflict_rows.encode_rows(conflict_rows.list_conflict_rows(conflicts))
    kind = MergeConflict if merging else MergeRefused
    return kind(
        f"{what}: {len(listed)} in conflict.",
        hint="vmrag resolve" if merging else f"vmrag merge {quoted(source)}",
        conflicts=listed,
        merge_in_progress=merging,
    )


@contextlib.contextmanager
def _on_branch(ws: Workspace, other: KbBranch | None) -> Iterator[None]:
    """Stand on another KB branch in the block; stay there if the block leaves a merge open."""
    if other is None:
        yield
        return
    before = ws.find_kb_branch()
    former = before.name if before else ws.require_stored_revision()
    switch(ws, other.name)
    try:
        yield
    finally:
        if not merge_state.recover_merge(ws):
            switch(ws, former)


class BulkReport(Record, frozen=True):
    """`decided`: how many conflicts this call decided about; `left` have no decision.

    `revision`: what was committed. `next`: for a merge of git's, the command that finishes it.
    `staged`, `pending`: see `CommitReport`.
    """

    kind: Kind
    decided: int
    left: tuple[OpenConflict, ...]
    revision: str | None = None
    next: str = ""
    staged: bool = True
    pending: str = ""


def resolve_bulk(
    ws: Workspace, table: str, side: Side, *, ids: Sequence[str] = (), commit: bool = False, message: str = ""
) -> BulkReport:
    """Take a side in what is in conflict of a `table`, or of its documents `ids`.

    `table`: one of `ops.commits.tables`, a collection, or `ALL`. Once nothing is left, git's
    conflict ends by itself, and documents that were set aside become uncommitted; a merge of ours
    waits for a commit, which `commit` makes. Raises `NothingSelected` where nothing is in conflict,
    `TableMissing`, `DocumentMissing`, and `MergeConflict` if a commit is asked for and something is
    left: what was decided stays decided.
    """
    resolve.fetch_sides(ws)
    state = merge_state.recover_merge(ws)
    if state is None:
        raise NothingSelected("No merge is open, so nothing is in conflict.", hint="vmrag merge REF")
    if state.kind != "git":
        writing.require_writable(ws)
    merged = merge_state.apply_decisions(ws, state)
    chosen: list[Conflict] = []
    if merged.conflicts or ids or state.kind == "merge":
        chosen = _select(ws, state, merged, table, ids)
        report = resolve.resolve(ws, [each.id for each in chosen], Decision(side=side))
    else:
        report = resolve.list_conflicts(ws)  # the sides agree, or a kill came after the last decision
    left = tuple(conflict_rows.list_conflict_rows([conflict.conflict for conflict in report.conflicts]))
    if left:
        if commit:
            raise MergeConflict(
                f"{len(left)} of the conflicts are not decided yet; nothing was committed.",
                hint="vmrag resolve",
                conflicts=conflict_rows.encode_rows(left),
            )
        return BulkReport(state.kind, len(chosen), left)
    if state.kind == "git":
        made = report.pin.dolt_commit if report.pin and commit else None
        return BulkReport(state.kind, len(chosen), (), made, report.next, report.staged)
    pending = merge.continue_merge(ws).pending if state.kind == "aside" else ""
    if not commit:
        return BulkReport(state.kind, len(chosen), (), pending=pending)
    done = committing.commit(ws, message)
    return BulkReport(state.kind, len(chosen), (), done.revision, staged=done.staged, pending=done.pending)


def _select(ws: Workspace, state: MergeState, merged: MergeResult, table: str, ids: Sequence[str]) -> list[Conflict]:
    """The conflicts without a decision; by `ids`, decided ones, too: they can be decided again."""
    known = (*merged.conflicts, *merged.decided)
    listed = dict(zip(known, conflict_rows.list_conflict_rows(known), strict=True))
    here = [each for each, row in listed.items() if table in (ALL, row.table, each.collection)]
    if not here and table not in _TABLES and not _is_collection(ws, state, table):
        raise TableMissing(
            f"There is no table or collection {table!r}.",
            hint="vmrag resolve --list",
            table=table,
            tables=list(_TABLES),
        )
    if ids:
        return [each for doc_id in ids for each in _of_document(here, doc_id, table)]
    undecided = [conflict for conflict in merged.conflicts if conflict in here]
    if not undecided:
        then = "" if merged.conflicts else " any more; a commit closes the merge"
        raise NothingSelected(f"Nothing of {table!r} is in conflict{then}.", hint="vmrag resolve --list")
    return undecided


def _is_collection(ws: Workspace, state: MergeState, name: str) -> bool:
    return any(
        collection.name == name
        for at in (ws.locate_documents(), state.theirs)
        for collection in ws.engine.list_collections(at)
    )


def _of_document(conflicts: Sequence[Conflict], doc_id: str, table: str) -> list[Conflict]:
    """A document's id, or that of a chunk of it; several collections may have it."""
    chunk = parse_chunk_id(doc_id)
    for wanted in (doc_id, chunk[0] if chunk else ""):
        if found := [conflict for conflict in conflicts if wanted and conflict.doc_id == wanted]:
            return found
    raise DocumentMissing(
        f"{doc_id!r} is not in conflict in {table!r}.",
        hint="vmrag resolve --list",
        doc_id=doc_id,
        conflicts=[conflict.id for conflict in conflicts],
    )
