"""Tools for thoughts, step by step: to write them down, and to find earlier ones."""

from __future__ import annotations

from typing import Annotated

from vmrag_link.errors import plural
from vmrag_link.toolsets.thinking import similar
from vmrag_link.toolsets.thinking.similar import SessionThoughts, SimilarSessions, SimilarThoughts
from vmrag_link.toolsets.thinking.think import NewThought, ThoughtReport, think
from vmrag_mcp.arguments import Given, fields_as_keywords
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ToolAnswer
from vmrag_mcp.session import Call
from vmrag_mcp.tools import outcome

Results = Annotated[int, Given(low=1, high=100, clamped=True)]
Threshold = Annotated[float | None, Given("least similarity; left out: what suits the model", low=0, high=1, unset=-1)]


@tool("W")
@fields_as_keywords
def chroma_sequential_thinking(call: Call, request: NewThought) -> ToolAnswer[ThoughtReport]:
    """Write down a thought of a session, and see those that led to it: for problems of many
    steps. The same number again replaces the thought.
    """
    done = think(call.ws, request)
    report = outcome.stored_report(call, done)
    stored = f"Thought {report.thought_number} of session {report.session_id!r} is written down"
    return ToolAnswer(report, message=f"{stored}{outcome.keeping_sentence(call, done)}")


@tool("R")
def chroma_find_similar_thoughts(
    call: Call,
    *,
    query: str,
    n_results: Results = 5,
    threshold: Threshold = None,
    session_id: Annotated[str, Given("left out: all sessions")] = "",
    include_branches: bool = True,
) -> ToolAnswer[SimilarThoughts]:
    """Find earlier thoughts by what they are about: has this been thought through before?"""
    found, here = similar.similar_thoughts(
        call.ws, query, k=n_results, threshold=threshold, session=session_id, branches=include_branches
    )
    call.stands(here)
    count = plural(found.total_found, "thought")
    return ToolAnswer(found, message=_similar_sentence(count, found.threshold_used, found.best_similarity))


@tool("R")
def chroma_get_session_summary(
    call: Call, *, session_id: str, include_branches: bool = True
) -> ToolAnswer[SessionThoughts]:
    """Read the thoughts of a session in their order."""
    found, here = similar.session_thoughts(call.ws, session_id, branches=include_branches)
    call.stands(here)
    count = plural(found.total_thoughts_in_session, "thought")
    return ToolAnswer(found, message=f"{count} in session {session_id!r}.")


@tool("R")
def chroma_find_similar_sessions(
    call: Call, *, query: str, n_results: Results = 5, threshold: Threshold = None
) -> ToolAnswer[SimilarSessions]:
    """Find earlier sessions by what they are about as a whole."""
    found, here = similar.similar_sessions(call.ws, query, k=n_results, threshold=threshold)
    call.stands(here)
    count = plural(found.total_found, "session")
    return ToolAnswer(found, message=_similar_sentence(count, found.threshold_used, found.best_similarity))


def _similar_sentence(found: str, threshold: float, best: float | None) -> str:
    if best is None:
        return "Nothing is written down yet that could be found."
    nearest = f"; the nearest has {best}, so threshold={best} finds it" if best < threshold else ""
    return f"{found} with a similarity of at least {threshold}{nearest}."
