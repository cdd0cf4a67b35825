"""Shapes that the results of several tools share: commits, numbers of changes, and what is left to do."""

from __future__ import annotations

from typing import Any

import msgspec

from vmrag_link.models import ChangeCounts, Record, RevisionInfo
from vmrag_link.ops.commits import revisions
from vmrag_mcp.session import Call

SHORT = 7
"""Characters of a short hash."""


class CommitSummary(Record, frozen=True):
    hash: str
    short_hash: str
    message: str
    author: str
    timestamp: str


class CommitWithParent(CommitSummary, frozen=True):
    """`parent_hash`: the first parent; None of the first commit."""

    parent_hash: str | None


class Summary(Record, frozen=True):
    """Numbers of documents."""

    added: int
    modified: int
    deleted: int
    total: int


def commit_summary(info: RevisionInfo) -> CommitSummary:
    return CommitSummary(info.revision, info.revision[:SHORT], info.message, info.author, info.date)


def commit_with_parent(call: Call, info: RevisionInfo) -> CommitWithParent:
    fields = msgspec.structs.asdict(commit_summary(info))
    return CommitWithParent(**fields, parent_hash=revisions.parent(call.ws.engine, info))


def commit(call: Call, revision: str) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(commit_with_parent(call, call.ws.engine.info(revision)))
    return made


def summary(changes: ChangeCounts) -> dict[str, int]:
    """Numbers of documents that differ."""
    numbers: dict[str, int] = msgspec.to_builtins(
        Summary(changes.added, changes.modified, changes.removed, changes.total)
    )
    return numbers


def sync_summary(changes: ChangeCounts) -> dict[str, int]:
    """Numbers of documents that queries find differently now."""
    return {
        "documents_added": changes.added,
        "documents_modified": changes.modified,
        "documents_deleted": changes.removed,
        "total_changes": changes.total,
    }


def warn(call: Call, *, pending: str, staged: bool) -> None:
    """What is left to do: the index did not follow; another git command held git's index."""
    call.pending(pending)
    if not staged:
        call.warn("NOTE", "The pin is written, but another git command held the index: git add .dolt-version")
