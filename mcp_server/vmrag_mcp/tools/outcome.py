"""What tools say alike of what they stored, committed or moved."""

from __future__ import annotations

from typing import Any, TypeVar

from vmrag_link.ops.documents.writing import Landed
from vmrag_link.ops.follow.provenance import standing
from vmrag_mcp.session import Call

R = TypeVar("R")


def warn(call: Call, *, pending: str, staged: bool) -> None:
    """What is left to do: the index did not follow; another git command held git's index."""
    call.pending(pending)
    if not staged:
        call.warn("NOTE", "The pin is written, but another git command held the index: git add .dolt-version")


def landed(call: Call, done: Landed[R]) -> R:
    """The report of what was stored; the answer's `kb` and warnings say where that is."""
    call.pending(done.pending)
    if not done.versioned:
        call.stands(standing(call.ws.local))
    return done.report


def kept(call: Call, done: Landed[Any]) -> str:
    """The end of a message: what becomes of a thought, a chat or evidence that was stored."""
    return f"{call.tail('dolt_commit keeps it') if done.versioned else '; it stays on this machine, not versioned'}."
