"""Merge branches, and decide about what is in conflict."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from vmrag_link.errors import plural
from vmrag_link.ops import merge_branches as merging
from vmrag_link.ops.merge_branches import BulkReport, resolve_bulk
from vmrag_link.workspace.history import log
from vmrag_link.workspace.merge import conflict_rows
from vmrag_link.workspace.merge.conflict_rows import OpenConflict
from vmrag_mcp.arguments import IF_UNCOMMITTED, MESSAGE, Given, Message
from vmrag_mcp.registry import CLEARING, tool
from vmrag_mcp.results import ToolResult
from vmrag_mcp.session import Call
from vmrag_mcp.tools import outcome
from vmrag_mcp.tools.history_results import CommitWithParent
from vmrag_mcp.tools.outcome import SyncSummary


class MergeBranchResult(ToolResult, frozen=True):
    """`conflicts`: what was decided for a side; of a preview, what would be in conflict."""

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
    """`conflicts`: those that are left, `remaining` of them.

    `commit`: the one that closed the merge.
    """

    table: str
    strategy: Literal["ours", "theirs"]
    resolved: int
    remaining: int
    conflicts: list[OpenConflict]
    commit: CommitWithParent | None


_TYPES = {"uncommitted": "merge"}


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
        would = merging.preview_merge(call.ws, source, target=target)
        what = (
            f"{plural(len(would.decided), 'conflict')}, {plural(would.merge.changes.total, 'other document')} changed"
        )
        said = f"Merging {source!r} into {would.target!r} would give {what}."
        nothing = would.merge.result == "already_up_to_date"
        return _merge_result(would, source, _merged(would, source) if nothing else said, preview=True)
    done = merging.merge_branch(
        call.ws, source, target=target, message=message, on_conflict=on_conflict, how=if_uncommitted
    )
    report = done.merge
    outcome.warn_unfinished(call, pending=report.pending, staged=report.staged)
    for note in report.notes:
        call.warn("NOTE", note)
    return _merge_result(done, source, _merged(done, source))


def _merge_result(
    done: merging.BranchMerge, source: str, message: str, *, preview: bool | UnsetType = UNSET
) -> MergeBranchResult:
    report = done.merge
    return MergeBranchResult(
        source=source,
        target=done.target,
        merge_type=_TYPES.get(report.result, report.result),  # type: ignore[arg-type]  # of a merge that ended well
        commits_merged=done.commits,
        from_commit=report.ours,
        to_commit=report.revision or report.ours,
        conflicts=conflict_rows.list_conflict_rows(done.decided),
        sync_summary=SyncSummary.from_report(report.changes),
        preview=preview,
        message=message,
    )


def _merged(done: merging.BranchMerge, source: str) -> str:
    match done.merge.result:
        case "already_up_to_date":
            return f"{done.target!r} holds {source!r} already."
        case "uncommitted":
            return f"{done.merge.changes.total} documents of {source!r} are back, uncommitted."
    revision = (done.merge.revision or "")[:7]
    return f"Merged {source!r} into {done.target!r}: {plural(done.merge.changes.total, 'document')} changed; {revision} is pinned there."


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
        remaining=len(report.left),
        conflicts=list(report.left),
        commit=CommitWithParent.from_report(log.read_info(call.ws.engine, report.revision))
        if report.revision
        else None,
        message=_resolved(call, report),
    )


def _resolved(call: Call, report: BulkReport) -> str:
    if report.left:
        return f"Decided about {report.decided}; {len(report.left)} are still in conflict."
    if report.next:
        return f"Nothing is in conflict any more, and the pin is staged. Next: {report.next}"
    if report.kind == "aside":
        return "Nothing is in conflict any more; the documents are back, uncommitted."
    if report.revision:
        return f"Nothing is in conflict any more; the merge is closed as {report.revision[:7]}."
    return f"Nothing is in conflict any more{call.format_tail('dolt_commit closes the merge')}."
