"""Results of the tools that commit the working set, and go from one branch or commit to another."""

from __future__ import annotations

from typing import Literal

from vmrag_link.models import Record
from vmrag_link.ops.links.link import Bidirectional, LinkBlock
from vmrag_mcp.results.base import ToolResult
from vmrag_mcp.results.commits import CommitSummary, CommitWithParent
from vmrag_mcp.results.diff import Summary
from vmrag_mcp.results.summaries import SyncSummary


class LinkedCommit(Record, frozen=True):
    link: LinkBlock
    bidirectional: Bidirectional


class CommitResult(ToolResult, frozen=True):
    """Of all tools that commit."""

    commit: CommitWithParent
    changes_committed: Summary


class DoltCommitResult(CommitResult, frozen=True):
    """`linked`: to git's HEAD, if that was asked for and could be done."""

    linked: LinkedCommit | None


class CheckoutAction(Record, frozen=True):
    """What became of uncommitted documents, and whether the branch was made."""

    uncommitted_handling: Literal["none", "commit_first", "reset_first", "carry"]
    branch_created: bool


class CheckoutSummary(Record, frozen=True):
    """A branch is null where a revision is read that no branch was made for."""

    from_branch: str | None
    from_commit: str
    to_branch: str | None
    to_commit: str


class DoltCheckoutResult(ToolResult, frozen=True):
    action_taken: CheckoutAction
    checkout_result: CheckoutSummary
    sync_summary: SyncSummary
    detached: bool


class ResetSummary(Record, frozen=True):
    from_commit: str
    to_commit: str
    discarded_changes: Summary


class RestoreSummary(Record, frozen=True):
    """Numbers of documents that queries find again, or no more."""

    documents_restored: int
    documents_removed: int


class DoltResetResult(ToolResult, frozen=True):
    """`orphaned_commits` are on no branch any more."""

    reset_result: ResetSummary
    sync_summary: RestoreSummary
    orphaned_commits: list[CommitSummary]
