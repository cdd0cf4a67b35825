"""Decide the conflicts of the open merge for tools, several at once."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from vmrag_link.errors import DocumentMissing, MergeConflict, NothingSelected, TableMissing, plural
from vmrag_link.index.metadata import parse_chunk_id
from vmrag_link.merging.conflicts import Conflict, Decision, Side
from vmrag_link.merging.threeway import MergeResult
from vmrag_link.models import Record
from vmrag_link.ops.commit import commit as committing
from vmrag_link.ops.merge import merge
from vmrag_link.ops.resolve import resolve
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import collections, writing
from vmrag_link.workspace.merge import conflict_rows, merge_state
from vmrag_link.workspace.merge.conflict_rows import OpenConflict
from vmrag_link.workspace.merge.merge_state import Kind, MergeState

ALL = "all"
"""The table name that means all tables."""
_TABLES = (ALL, *collections.TABLES, collections.COLLECTIONS)


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

    Raises `NothingSelected` without a conflict, `TableMissing`, `DocumentMissing`, and
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
        return BulkReport(kind=state.kind, decided=len(chosen), open_conflicts=undecided)
    finished = BulkReport(kind=state.kind, decided=len(chosen), open_conflicts=())
    if state.kind == "git":
        revision = report.pin.dolt_commit if report.pin and commit else None
        return replace(finished, revision=revision, next=report.next, staged=report.staged)
    if state.kind == "aside":
        finished = replace(finished, pending=merge.continue_merge(ws).pending)
    if not commit:
        return finished
    commit_report = committing.commit(ws, message)
    return replace(
        finished, revision=commit_report.revision, staged=commit_report.staged, pending=commit_report.pending
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


def _select_document(conflicts: Sequence[Conflict], doc_id: str, table: str) -> list[Conflict]:
    """Return the conflicts of a document, by its id or that of a chunk. Several collections may
    have the id.
    """
    chunk = parse_chunk_id(doc_id)
    for name in (doc_id, chunk[0]) if chunk else (doc_id,):
        matching = [conflict for conflict in conflicts if conflict.doc_id == name]
        if name and matching:
            return matching
    raise DocumentMissing(
        f"{doc_id!r} has no conflict in {table!r}.",
        hint="run 'vmrag resolve --list' to list the conflicts",
        doc_id=doc_id,
        conflicts=[conflict.id for conflict in conflicts],
    )


def _is_collection(ws: Workspace, state: MergeState, name: str) -> bool:
    """Return whether one side of the merge has this collection."""
    ours = ws.engine.list_collections(ws.locate_documents())
    theirs = ws.engine.list_collections(state.theirs)
    return any(collection.name == name for collection in (*ours, *theirs))
