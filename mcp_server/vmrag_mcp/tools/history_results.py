"""Results of the tools that show the state and commits of the knowledge base."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from vmrag_link.models import Record
from vmrag_link.ops.status.kb_status import IndexBlock, PinStatus
from vmrag_link.workspace.commits.revisions import Match
from vmrag_link.workspace.merge.conflict_rows import OpenConflict
from vmrag_mcp.results import DerivedRecord, ToolResult
from vmrag_mcp.tools.diff import ChangeEntry, Collections, DocumentInCommit, Summary
from vmrag_mcp.tools.outcome import Stats

_COMMIT = {"revision": "hash", "short": "short_hash", "date": "timestamp"}


class CommitSummary(DerivedRecord, frozen=True, rename=_COMMIT):
    """A `RevisionInfo`."""

    revision: str
    short: str
    message: str
    author: str
    date: str


class CommitWithParent(CommitSummary, frozen=True, rename={"parent": "parent_hash"}):
    """A commit with its first parent; None for the first commit."""

    parent: str | None


class CommitWithStats(CommitWithParent, frozen=True, rename={"changes": "stats"}):
    """A `LogEntry`."""

    changes: Stats


class CommitMatch(CommitSummary, frozen=True, rename={"match": "match_type"}):
    """A `FoundCommit`."""

    branch: str
    match: Match


class RemoteStatus(Record, frozen=True):
    """A remote. `connected`: whether it answered, or null if it was not contacted."""

    name: str
    url: str
    connected: bool | None


class LocalChangesSummary(Record, frozen=True):
    """Uncommitted changes. `has_changes` is also true if only a collection itself was changed."""

    has_changes: bool
    summary: Summary


class UncommittedDocuments(LocalChangesSummary, frozen=True):
    documents: Annotated[list[str] | UnsetType, Meta(description="verbose")] = UNSET
    changes: Annotated[list[ChangeEntry] | UnsetType, Meta(description="verbose")] = UNSET


class SyncState(DerivedRecord, frozen=True):
    """Numbers of commits against the remote, as of the last fetch."""

    ahead: int
    behind: int
    diverged: bool


class StatusResult(ToolResult, frozen=True):
    """The status of the knowledge base.

    `branch` is null at a revision without a branch. `engine` is the engine that stores the
    knowledge base, doltlite or dolt.
    """

    whole_kb = True

    engine: str
    branch: str | None
    commit: CommitSummary
    remote: RemoteStatus | None
    local_changes: LocalChangesSummary
    sync_state: SyncState
    merge_in_progress: bool
    conflicts: list[OpenConflict]
    index: IndexBlock
    link: PinStatus


class DoltStatusResult(StatusResult, frozen=True):
    local_changes: UncommittedDocuments


class LatestCommit(DerivedRecord, frozen=True, rename=_COMMIT):
    revision: str
    short: str
    message: str
    date: str


_BRANCH = {"current": "is_current", "local": "is_local", "remote": "is_remote", "head": "latest_commit"}


class ListedBranch(DerivedRecord, frozen=True, omit_defaults=True, rename=_BRANCH):
    """A branch. A local branch and the remote's branch with the same name are one entry."""

    name: str
    current: bool
    local: bool
    remote: bool
    head: LatestCommit
    ahead: Annotated[int | None, Meta(description="the branch is local and remote")] = None
    behind: Annotated[int | None, Meta(description="the branch is local and remote")] = None


class DoltBranchesResult(ToolResult, frozen=True):
    current_branch: str | None
    branches: list[ListedBranch]
    total_count: int


class DoltCommitsResult(ToolResult, frozen=True):
    branch: str | None
    commits: list[CommitWithStats]
    total_commits: int
    has_more: bool


class CommitChanges(Record, frozen=True):
    """The changes of a commit.

    `diff_truncated`: more documents changed than are shown with texts.
    """

    summary: Summary
    documents: list[DocumentInCommit]
    diff_truncated: Annotated[bool | UnsetType, Meta(description="include_diff")] = UNSET
    collections: Collections = UNSET


class DoltShowResult(ToolResult, frozen=True):
    """A commit. `branches` contain it."""

    commit: CommitWithParent
    changes: CommitChanges
    branches: list[str]


class DoltFindResult(ToolResult, frozen=True):
    """Matching commits. `total_found` also counts matches above the limit."""

    query: str
    results: list[CommitMatch]
    total_found: int
