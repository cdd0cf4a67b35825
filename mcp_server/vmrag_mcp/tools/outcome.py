"""Common parts of results: what was stored or moved, and what remains to do."""

from __future__ import annotations

from typing import TypeVar

from vmrag_link.models import Record
from vmrag_link.workspace.documents.writing import WriteResult
from vmrag_link.workspace.follow.provenance import find_git_origin, find_origin
from vmrag_mcp.call import Call
from vmrag_mcp.results import DerivedRecord, ToolAnswer

_COUNTS = {"added": "documents_added", "modified": "documents_modified", "removed": "documents_deleted"}


class Stats(DerivedRecord, frozen=True, rename=_COUNTS):
    """Changes of a commit against its first parent (`ChangeCounts`)."""

    added: int
    modified: int
    removed: int


class SyncSummary(Stats, frozen=True, rename={"total": "total_changes"}):
    """Numbers of documents that queries now find differently."""

    total: int


R = TypeVar("R")
Report = TypeVar("Report", bound=Record)


def warn_unfinished(call: Call, *, pending: str, staged: bool) -> None:
    """Warn if the index does not have the change, or if the pin could not be staged."""
    call.warn_pending(pending)
    if not staged:
        call.warn(
            "NOTE", "the pin is written, but not staged, because git's index is locked; run 'git add .dolt-version'"
        )


def warn_pending(call: Call, result: WriteResult[R]) -> None:
    """Warn if the index, or git's index for notes, does not have the change.

    Notes are Markdown files, which git commits. So an answer about notes has the origin of git.
    """
    if result.notes is None:
        call.warn_pending(result.pending)
        return
    if result.pending:
        call.warn("NOTE", result.pending)
    call.set_origin(find_git_origin(call.ws))


def describe_commit(call: Call, result: WriteResult[R], what: str) -> str:
    """Return the end of a sentence: how to commit what was written."""
    return f"; git commit keeps {what}" if result.notes else call.format_tail(f"dolt_commit keeps {what}")


def stored_report(call: Call, result: WriteResult[R]) -> R:
    """Return the report of a write. The answer's `kb` shows where it was written, and its warnings
    what remains to do.
    """
    if not result.versioned:
        call.set_origin(find_origin(call.ws.local))
    warn_pending(call, result)
    return result.report


def kept_answer(call: Call, result: WriteResult[Report], summary: str) -> ToolAnswer[Report]:
    """Return the answer about a stored thought, chat or evidence.

    The message begins with `summary`, and ends with how to commit the document.
    """
    advice = (
        call.format_tail("dolt_commit keeps it") if result.versioned else "; it stays on this machine, not versioned"
    )
    return ToolAnswer(stored_report(call, result), message=f"{summary}{advice}.")
