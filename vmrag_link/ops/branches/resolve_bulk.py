"""Decide at once about the conflicts of a table, a collection or documents; close the merge."""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.errors import DocumentMissing, MergeConflict, NothingSelected, TableMissing
from vmrag_link.index.metadata import parse_chunk_id
from vmrag_link.merging.conflicts import Conflict, Decision, Side
from vmrag_link.merging.threeway import Merged
from vmrag_link.models import Record
from vmrag_link.ops.branches import commit as committing
from vmrag_link.ops.commits import tables
from vmrag_link.ops.documents import writing
from vmrag_link.ops.merge import conflict_rows, merge, merge_state, resolve
from vmrag_link.ops.merge.conflict_rows import OpenConflict
from vmrag_link.ops.merge.merge_state import Kind, MergeState
from vmrag_link.workspace import Workspace

ALL = "all"
_TABLES = (ALL, *tables.TABLES, tables.COLLECTIONS)


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
    resolve.prepare(ws)
    state = merge_state.opened(ws)
    if state is None:
        raise NothingSelected("No merge is open, so nothing is in conflict.", hint="vmrag merge REF")
    if state.kind != "git":
        writing.writable(ws)
    merged = merge_state.merged(ws, state)
    chosen: list[Conflict] = []
    if merged.conflicts or ids or state.kind == "merge":
        chosen = _select(ws, state, merged, table, ids)
        report = resolve.resolve(ws, [each.id for each in chosen], Decision(side=side))
    else:
        report = resolve.conflicts(ws)  # the sides agree, or a kill came after the last decision
    left = tuple(conflict_rows.rows([each.conflict for each in report.conflicts]))
    if left:
        if commit:
            raise MergeConflict(
                f"{len(left)} of the conflicts are not decided yet; nothing was committed.",
                hint="vmrag resolve",
                conflicts=conflict_rows.as_json(left),
            )
        return BulkReport(state.kind, len(chosen), left)
    if state.kind == "git":
        made = report.pin.dolt_commit if report.pin and commit else None
        return BulkReport(state.kind, len(chosen), (), made, report.next, report.staged)
    pending = merge.proceed(ws).pending if state.kind == "aside" else ""
    if not commit:
        return BulkReport(state.kind, len(chosen), (), pending=pending)
    done = committing.commit(ws, message)
    return BulkReport(state.kind, len(chosen), (), done.revision, staged=done.staged, pending=done.pending)


def _select(ws: Workspace, state: MergeState, merged: Merged, table: str, ids: Sequence[str]) -> list[Conflict]:
    """The conflicts without a decision; by `ids`, decided ones, too: they can be decided again."""
    known = (*merged.conflicts, *merged.decided)
    listed = dict(zip(known, conflict_rows.rows(known), strict=True))
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
    undecided = [each for each in merged.conflicts if each in here]
    if not undecided:
        then = "" if merged.conflicts else " any more; a commit closes the merge"
        raise NothingSelected(f"Nothing of {table!r} is in conflict{then}.", hint="vmrag resolve --list")
    return undecided


def _is_collection(ws: Workspace, state: MergeState, name: str) -> bool:
    return any(each.name == name for at in (ws.at(), state.theirs) for each in ws.engine.collections(at))


def _of_document(conflicts: Sequence[Conflict], doc_id: str, table: str) -> list[Conflict]:
    """A document's id, or that of a chunk of it; several collections may have it."""
    chunk = parse_chunk_id(doc_id)
    for wanted in (doc_id, chunk[0] if chunk else ""):
        if found := [each for each in conflicts if wanted and each.doc_id == wanted]:
            return found
    raise DocumentMissing(
        f"{doc_id!r} is not in conflict in {table!r}.",
        hint="vmrag resolve --list",
        doc_id=doc_id,
        conflicts=[each.id for each in conflicts],
    )
