"""What tools of several topics say alike: what was stored or moved, and what is left to do."""

from __future__ import annotations

from typing import Any, TypeVar

from vmrag_link.ops.documents.writing import Landed
from vmrag_link.ops.follow.provenance import standing
from vmrag_mcp.results import DerivedRecord
from vmrag_mcp.session import Call

_COUNTS = {"added": "documents_added", "modified": "documents_modified", "removed": "documents_deleted"}


class Stats(DerivedRecord, frozen=True, rename=_COUNTS):
    """What a commit changed, against its first parent (`ChangeCounts`)."""

    added: int
    modified: int
    removed: int


class SyncSummary(Stats, frozen=True, rename={"total": "total_changes"}):
    """Numbers of documents that queries find differently now."""

    total: int


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
