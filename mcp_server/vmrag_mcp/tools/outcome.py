"""What tools of several topics show alike: commits, what was stored or moved, and what is left to
do.
"""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import structs

from vmrag_link.engines.base import Engine
from vmrag_link.models import ChangeCounts, Record, RevisionInfo
from vmrag_link.ops.commits import revisions
from vmrag_link.ops.commits.revisions import FoundCommit, Match
from vmrag_link.ops.documents.writing import Landed
from vmrag_link.ops.follow.provenance import standing
from vmrag_link.ops.history.log import LogEntry
from vmrag_mcp.session import Call


class SyncSummary(Record, frozen=True):
    """Numbers of documents that queries find differently now."""

    documents_added: int
    documents_modified: int
    documents_deleted: int
    total_changes: int

    @classmethod
    def of(cls, changes: ChangeCounts) -> SyncSummary:
        return cls(changes.added, changes.modified, changes.removed, changes.total)


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


R = TypeVar("R")


def warn(call: Call, *, pending: str, staged: bool) -> None:
    """What is left to do: the index did not follow; another git command held git's index."""
    call.pending(pending)
    if not staged:
        call.warn("NOTE", "The pin is written, but another git command held the index: git add .dolt-version")


def stored_report(call: Call, done: Landed[R]) -> R:
    """The report of what was stored; the answer's `kb` and warnings say where that is."""
    call.pending(done.pending)
    if not done.versioned:
        call.stands(standing(call.ws.local))
    return done.report


def keeping_sentence(call: Call, done: Landed[Any]) -> str:
    """The end of a message: what becomes of a thought, a chat or evidence that was stored."""
    return f"{call.tail('dolt_commit keeps it') if done.versioned else '; it stays on this machine, not versioned'}."
