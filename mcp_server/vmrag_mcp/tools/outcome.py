"""What tools of several topics say alike: what was stored or moved, and what is left to do."""

from __future__ import annotations

from typing import TypeVar

from vmrag_link.models import Record
from vmrag_link.workspace.documents.writing import WriteResult
from vmrag_link.workspace.follow.provenance import find_git_origin, find_origin
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


def warn_unfinished(call: Call, *, pending: str, staged: bool) -> None:
    """What is left to do: the index did not follow; another git command held git's index."""
    call.warn_pending(pending)
    if not staged:
        call.warn("NOTE", "The pin is written, but another git command held the index: git add .dolt-version")


def warn_pending(call: Call, result: WriteResult[R]) -> None:
    """Warn if the index, or git's index, does not have the change, and name the file."""
    if result.notes is None:
        call.warn_pending(result.pending)
        return
    call.warn_pending_note(result.pending)
    call.set_origin(find_git_origin(call.ws))


def describe_commit(call: Call, result: WriteResult[R], what: str) -> str:
    """Return the end of a sentence: how what was written becomes part of a commit."""
    return f"; git commit keeps {what}" if result.notes else call.format_tail(f"dolt_commit keeps {what}")


def stored_report(call: Call, done: WriteResult[R]) -> R:
    """The report of what was stored; the answer's `kb` and warnings say where that is."""
    if not done.versioned:
        call.set_origin(find_origin(call.ws.local))
    warn_pending(call, done)
    return done.report


def kept_answer(call: Call, done: WriteResult[Report], said: str) -> ToolAnswer[Report]:
    """The answer about a thought, a chat or evidence that was stored. `said` begins its message,
    whose end is what becomes of that.
    """
    kept = call.format_tail("dolt_commit keeps it") if done.versioned else "; it stays on this machine, not versioned"
    return ToolAnswer(stored_report(call, done), message=f"{said}{kept}.")
