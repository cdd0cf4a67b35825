"""What tools that commit or move a branch warn about alike."""

from __future__ import annotations

from vmrag_mcp.session import Call


def warn(call: Call, *, pending: str, staged: bool) -> None:
    """What is left to do: the index did not follow; another git command held git's index."""
    call.pending(pending)
    if not staged:
        call.warn("NOTE", "The pin is written, but another git command held the index: git add .dolt-version")
