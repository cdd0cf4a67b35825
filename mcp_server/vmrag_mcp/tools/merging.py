"""Merge branches and resolve conflicts."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from vmrag_link.errors import plural
from vmrag_link.ops import merge_branches as merging
from vmrag_link.ops.resolve_bulk import BulkReport, resolve_bulk
from vmrag_link.workspace.history import log
from vmrag_link.workspace.merge import conflict_rows
from vmrag_link.workspace.merge.conflict_rows import OpenConflict
from vmrag_mcp.arguments import IF_UNCOMMITTED, MESSAGE, Given, Message
from vmrag_mcp.call import Call
from vmrag_mcp.registry import CLEARING, tool
from vmrag_mcp.results import ToolResult
from vmrag_mcp.tools import outcome
from vmrag_mcp.tools.history_results import CommitWithParent
from vmrag_mcp.tools.outcome import SyncSummary


class MergeBranchResult(ToolResult, frozen=True):
    """A merge.

    `conflicts` are the conflicts that took a side; in a preview, the expected conflicts.
    """

    source: str
    target: str
    merge_type: Literal["fast_forward", "merge", "already_up_to_date"]
    commits_merged: int
    from_commit: str
    to_commit: str
    conflicts: list[OpenConflict]
    sync_summary: SyncSummary
    preview: Annotated[bool | UnsetType, Meta(description="nothing was changed")] = UNSET


class ResolveConflictsResult(ToolResult, frozen=True):
    """Resolved conflicts. `conflicts` are the remaining ones. `commit` closed the merge."""

    table: str
    strategy: Literal["ours", "theirs"]
    resolved: int
    remaining: int
    conflicts: list[OpenConflict]
    commit: CommitWithParent | None


_MERGE_TYPES = {"uncommitted": "merge"}


@tool("WVD", by_argument=CLEARING)
def merge_branch(
    call: Call,
    *,
    source: Annotated[str, Given("branch to merge such as feature/api", aliases=("source_branch",))],
    target: Annotated[
        str | None, Given("branch to merge into; default: the current one", aliases=("target_branch",))
    ] = None,
    message: Annotated[str | None, MESSAGE] = None,
    on_conflict: Annotated[
        Literal["keep", "abort", "ours", "theirs"],
        Given("keep leaves the merge open; abort changes nothing; ours and theirs take a side"),
    ] = "keep",
    if_uncommitted: Annotated[Literal["abort", "commit_first", "reset_first"], Given(IF_UNCOMMITTED)] = "abort",
    preview: Annotated[bool, Given("only report what would change")] = False,
) -> MergeBranchResult:
    """Merge a branch of the knowledge base into another. resolve_conflicts resolves conflicts."""
    if preview:
        planned = merging.preview_merge(call.ws, source, target=target)
        counts = f"{plural(len(planned.conflicts), 'conflict')}, {plural(planned.merge.changes.total, 'other document')} changed"
        summary = f"Merging {source!r} into {planned.target!r} would give {counts}."
        if planned.merge.result == "already_up_to_date":
            summary = _describe_merge(planned, source)
        return _merge_result(planned, source, summary, preview=True)
    result = merging.merge_branch(
        call.ws, source, target=target, message=message, on_conflict=on_conflict, how=if_uncommitted
    )
    report = result.merge
    outcome.warn_unfinished(call, pending=report.pending, staged=report.staged)
    for note in report.notes:
        call.warn("NOTE", note)
    return _merge_result(result, source, _describe_merge(result, source))


def _merge_result(
    result: merging.BranchMerge, source: str, message: str, *, preview: bool | UnsetType = UNSET
) -> MergeBranchResult:
    report = result.merge
    return MergeBranchResult(
        source=source,
        target=result.target,
        merge_type=_MERGE_TYPES.get(report.result, report.result),  # type: ignore[arg-type]  # of a merge that ended well
        commits_merged=result.commits,
        from_commit=report.ours,
        to_commit=report.revision or report.ours,
        conflicts=conflict_rows.list_conflict_rows(result.conflicts),
        sync_summary=SyncSummary.from_report(report.changes),
        preview=preview,
        message=message,
    )


def _describe_merge(result: merging.BranchMerge, source: str) -> str:
    match result.merge.result:
        case "already_up_to_date":
            return f"{result.target!r} already contains {source!r}."
        case "uncommitted":
            return f"Restored {result.merge.changes.total} documents of {source!r}, uncommitted."
    revision = (result.merge.revision or "")[:7]
    return f"Merged {source!r} into {result.target!r}: {plural(result.merge.changes.total, 'document')} changed; {revision} is pinned."


@tool("WO", by_argument={"commit=true": "dolt_commit"})
def resolve_conflicts(
    call: Call,
    *,
    table: Annotated[str, Given("documents, a collection, or all")],
    strategy: Annotated[
        Literal["ours", "theirs"], Given("side to keep", spelled={"--ours": "ours", "--theirs": "theirs"})
    ],
    doc_ids: Annotated[list[str] | None, Given("ids of documents; default: all")] = None,
    commit: Annotated[bool, Given("close the merge if no conflict is left")] = False,
    message: Message = "Resolved merge conflicts",
) -> ResolveConflictsResult:
    """Resolve conflicts with one side; ours is the branch merged into.

    To combine both sides, update the document, then keep ours.
    """
    report = resolve_bulk(call.ws, table, strategy, ids=doc_ids or (), commit=commit, message=message)
    outcome.warn_unfinished(call, pending=report.pending, staged=report.staged)
    return ResolveConflictsResult(
        table=table,
        strategy=strategy,
        resolved=report.decided,
        remaining=len(report.open_conflicts),
        conflicts=list(report.open_conflicts),
        commit=CommitWithParent.from_report(log.read_info(call.ws.engine, report.revision))
        if report.revision
        else None,
        message=_describe_resolution(call, report),
    )


def _describe_resolution(call: Call, report: BulkReport) -> str:
    if report.open_conflicts:
        return f"Resolved {report.decided}; {len(report.open_conflicts)} are still in conflict."
    if report.next:
        pin = "staged" if report.staged else "written, but not staged"
        return f"All conflicts are resolved, and the pin is {pin}. Run '{report.next}'."
    if report.kind == "aside":
        return "All conflicts are resolved; restored the documents, uncommitted."
    if report.revision:
        return f"All conflicts are resolved; the merge is committed as {report.revision[:7]}."
    return f"All conflicts are resolved{call.format_tail('dolt_commit closes the merge')}."
