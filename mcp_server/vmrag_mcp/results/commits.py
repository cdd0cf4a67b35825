"""How tools show a commit of the knowledge base."""

from __future__ import annotations

from msgspec import structs

from vmrag_link.engines.base import Engine
from vmrag_link.models import Record, RevisionInfo
from vmrag_link.ops.commits import revisions
from vmrag_link.ops.commits.revisions import FoundCommit, Match
from vmrag_link.ops.history.log import LogEntry

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
