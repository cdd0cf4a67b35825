"""Results of the tools that merge, and decide about conflicts."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from vmrag_link.ops.merge.conflict_rows import OpenConflict
from vmrag_mcp.results.base import ToolResult
from vmrag_mcp.results.commits import CommitWithParent
from vmrag_mcp.results.summaries import SyncSummary


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
