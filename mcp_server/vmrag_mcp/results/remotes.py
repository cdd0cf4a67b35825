"""Results of the tools that begin a knowledge base, and bring it from and to remotes."""

from __future__ import annotations

from typing import Literal

from vmrag_link.models import Record
from vmrag_mcp.results.base import ToolResult
from vmrag_mcp.results.summaries import SyncSummary


class FirstCommit(Record, frozen=True):
    hash: str
    message: str


class NewRepository(Record, frozen=True):
    path: str
    branch: str
    commit: FirstCommit


class ConfiguredRemote(Record, frozen=True):
    """`name` and `url` are null where none is configured."""

    configured: bool
    name: str | None
    url: str | None


class ImportSummary(Record, frozen=True):
    documents_imported: int
    collections: list[str]


class DoltInitResult(ToolResult, frozen=True):
    repository: NewRepository
    remote: ConfiguredRemote
    import_summary: ImportSummary


class ClonedRepository(Record, frozen=True):
    path: str
    remote_url: str


class ClonedCommit(Record, frozen=True):
    hash: str
    message: str
    timestamp: str


class ClonedCheckout(Record, frozen=True):
    """`branch` is null where the commit is no branch's head."""

    branch: str | None
    commit: ClonedCommit


class LoadSummary(Record, frozen=True):
    documents_loaded: int
    collections_created: list[str]


class DoltCloneResult(ToolResult, frozen=True):
    repository: ClonedRepository
    checkout: ClonedCheckout
    sync_summary: LoadSummary


class FetchedBranch(Record, frozen=True):
    """`old_commit` is null for a branch that was not known."""

    name: str
    old_commit: str | None
    new_commit: str
    commits_fetched: int


class FetchUpdates(Record, frozen=True):
    branches_updated: list[FetchedBranch]
    new_branches: list[str]
    total_commits_fetched: int


class CurrentBranchStatus(Record, frozen=True):
    """Numbers of commits against the remote's branch."""

    branch: str | None
    behind: int
    ahead: int


class DoltFetchResult(ToolResult, frozen=True):
    remote: str
    updates: FetchUpdates
    current_branch_status: CurrentBranchStatus


class PreCommit(Record, frozen=True):
    """The commit of what was uncommitted before."""

    created: bool
    hash: str | None


class PullAction(Record, frozen=True):
    """What became of uncommitted documents."""

    uncommitted_handling: Literal["none", "commit_first", "reset_first", "stash"]
    pre_commit: PreCommit


class PullSummary(Record, frozen=True):
    merge_type: Literal["fast_forward", "merge", "already_up_to_date"]
    commits_merged: int
    from_commit: str
    to_commit: str


class DoltPullResult(ToolResult, frozen=True):
    action_taken: PullAction
    pull_result: PullSummary
    sync_summary: SyncSummary


class PushSummary(Record, frozen=True):
    """`from_commit`: the local commit that was pushed."""

    remote: str
    branch: str
    commits_pushed: int
    from_commit: str
    to_url: str


class RemoteState(Record, frozen=True):
    remote_branch: str
    remote_commit: str


class DoltPushResult(ToolResult, frozen=True):
    push_result: PushSummary
    remote_state: RemoteState
