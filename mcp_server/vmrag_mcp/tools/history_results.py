"""Commits as tools show them, and the results of tools that show where knowledge stands."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType, structs

from vmrag_link.engines.base import Engine
from vmrag_link.models import Record, RevisionInfo
from vmrag_link.ops.commits import revisions
from vmrag_link.ops.commits.revisions import FoundCommit, Match
from vmrag_link.ops.history.log import LogEntry
from vmrag_link.ops.merge.conflict_rows import OpenConflict
from vmrag_link.ops.status.kb_status import IndexBlock, PinStatus
from vmrag_mcp.results import ToolResult
from vmrag_mcp.tools.diff import ChangeEntry, Collections, DocumentInCommit, Summary

SHORT = 7
"""Characters of a short hash."""


class CommitSummary(Record, frozen=True):
    hash: str
    short_hash: str
    message: str
    author: str
    timestamp: str

    @classmethod
    def of(cls, info: RevisionInfo) -> CommitSummary:
        return CommitSummary(info.revision, info.revision[:SHORT], info.message, info.author, info.date)


class CommitWithParent(CommitSummary, frozen=True):
    """`parent_hash`: the first parent; None of the first commit."""

    parent_hash: str | None

    @classmethod
    def at(cls, engine: Engine, info: RevisionInfo) -> CommitWithParent:
        fields = structs.asdict(CommitSummary.of(info))
        return CommitWithParent(**fields, parent_hash=revisions.parent(engine, info))


class Stats(Record, frozen=True):
    """Against the first parent."""

    documents_added: int
    documents_modified: int
    documents_deleted: int


class CommitWithStats(CommitWithParent, frozen=True):
    stats: Stats

    @classmethod
    def entry(cls, engine: Engine, entry: LogEntry) -> CommitWithStats:
        stats = Stats(entry.changes.added, entry.changes.modified, entry.changes.removed)
        return cls(**structs.asdict(CommitWithParent.at(engine, entry)), stats=stats)


class CommitMatch(CommitSummary, frozen=True):
    """`branch`: one that holds it."""

    branch: str
    match_type: Match

    @classmethod
    def found(cls, found: FoundCommit) -> CommitMatch:
        return cls(**structs.asdict(CommitSummary.of(found.info)), branch=found.branch, match_type=found.match)


class RemoteStatus(Record, frozen=True):
    """`connected`: whether it answered; null where it was not asked."""

    name: str
    url: str
    connected: bool | None


class LocalChangesSummary(Record, frozen=True):
    """`has_changes` also where a collection alone was changed, which counts as no document."""

    has_changes: bool
    summary: Summary


class UncommittedDocuments(LocalChangesSummary, frozen=True):
    documents: Annotated[list[str] | UnsetType, Meta(description="verbose")] = UNSET
    changes: Annotated[list[ChangeEntry] | UnsetType, Meta(description="verbose")] = UNSET


class SyncState(Record, frozen=True):
    """Numbers of commits against the remote, as of the last fetch."""

    ahead: int
    behind: int
    diverged: bool


class StatusResult(ToolResult, frozen=True):
    """`branch` is null while a revision is read that no branch was made for. `engine`: what stores
    the knowledge base, doltlite or dolt.
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


class LatestCommit(Record, frozen=True):
    hash: str
    short_hash: str
    message: str
    timestamp: str


class ListedBranch(Record, frozen=True):
    """A local branch and the remote's of that name are one."""

    name: str
    is_current: bool
    is_local: bool
    is_remote: bool
    latest_commit: LatestCommit
    ahead: Annotated[int | UnsetType, Meta(description="the branch is local and remote")] = UNSET
    behind: Annotated[int | UnsetType, Meta(description="the branch is local and remote")] = UNSET


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
    """`diff_truncated`: more documents changed than are shown with their texts."""

    summary: Summary
    documents: list[DocumentInCommit]
    diff_truncated: Annotated[bool | UnsetType, Meta(description="include_diff")] = UNSET
    collections: Collections = UNSET


class DoltShowResult(ToolResult, frozen=True):
    """`branches`: those that hold the commit."""

    commit: CommitWithParent
    changes: CommitChanges
    branches: list[str]


class DoltFindResult(ToolResult, frozen=True):
    """`total_found` counts beyond the limit."""

    query: str
    results: list[CommitMatch]
    total_found: int
