"""Results of the shorter names for tools of `dolt`, where they are not those tools' own."""

from __future__ import annotations

from vmrag_link.models import Record
from vmrag_mcp.results.base import ToolResult
from vmrag_mcp.results.commits import CommitWithStats
from vmrag_mcp.results.history import StatusResult
from vmrag_mcp.results.sync import SyncTotals
from vmrag_mcp.results.working import CommitResult


class CommitAliasResult(CommitResult, frozen=True):
    """`sync`: the commit's own numbers; the chunks are those of what it added and modified."""

    linked: None
    sync: SyncTotals


class CreateBranchResult(ToolResult, frozen=True):
    """`commit`: where the new branch stands."""

    branch: str
    commit: str


class DeleteBranchResult(ToolResult, frozen=True):
    """`commit`: where the branch stood, which can still be read by that hash."""

    branch: str
    commit: str


class BranchHead(Record, frozen=True):
    name: str
    is_current: bool
    short_hash: str


class GetBranchStatusResult(StatusResult, frozen=True):
    """`branches`: the local ones."""

    branches: list[BranchHead]


class GetLogResult(ToolResult, frozen=True):
    commits: list[CommitWithStats]
