"""What the results of tools that commit or move a branch say alike."""

from __future__ import annotations

from typing import Any

import msgspec

from vmrag_link.models import ChangeCounts
from vmrag_mcp.results.commits import CommitWithParent
from vmrag_mcp.results.diff import Summary
from vmrag_mcp.session import Call


def summary(changes: ChangeCounts) -> dict[str, int]:
    """Numbers of documents that differ."""
    return msgspec.to_builtins(Summary.of(changes))  # type: ignore[no-any-return]


def sync_summary(changes: ChangeCounts) -> dict[str, int]:
    """Numbers of documents that queries find differently now."""
    return {
        "documents_added": changes.added,
        "documents_modified": changes.modified,
        "documents_deleted": changes.removed,
        "total_changes": changes.total,
    }


def commit(call: Call, revision: str) -> dict[str, Any]:
    engine = call.ws.engine
    made: dict[str, Any] = msgspec.to_builtins(CommitWithParent.at(engine, engine.info(revision)))
    return made


def warn(call: Call, *, pending: str, staged: bool) -> None:
    """What is left to do: the index did not follow; another git command held git's index."""
    call.pending(pending)
    if not staged:
        call.warn("NOTE", "The pin is written, but another git command held the index: git add .dolt-version")
