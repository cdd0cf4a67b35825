"""What tools of several topics say alike: what was stored or moved, and what is left to do."""

from __future__ import annotations

from typing import TypeVar

from vmrag_link.models import Record
from vmrag_link.ops.documents.writing import WriteResult
from vmrag_link.ops.follow.provenance import standing
from vmrag_mcp.results import DerivedRecord, ToolAnswer
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
Report = TypeVar("Report", bound=Record)


def warn(call: Call, *, pending: str, staged: bool) -> None:
    """What is left to do: the index did not follow; another git command held git's index."""
    call.pending(pending)
    if not staged:
        call.warn("NOTE", "The pin is written, but another git command held the index: git add .dolt-version")


def stored_report(call: Call, done: WriteResult[R]) -> R:
    """The report of what was stored; the answer's `kb` and warnings say where that is."""
    if not done.versioned:
        call.stands(standing(call.ws.local))
    return call.stored(done)


def kept_answer(call: Call, done: WriteResult[Report], said: str) -> ToolAnswer[Report]:
    """The answer about a thought, a chat or evidence that was stored. `said` begins its message,
    whose end is what becomes of that.
    """
    kept = call.tail("dolt_commit keeps it") if done.versioned else "; it stays on this machine, not versioned"
    return ToolAnswer(stored_report(call, done), message=f"{said}{kept}.")
