"""Tools for thoughts, step by step: to write them down, and to find earlier ones; their results."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import structs

from vmrag_link.errors import plural
from vmrag_link.models import Record
from vmrag_link.toolsets.thinking import similar
from vmrag_link.toolsets.thinking.think import NewThought, Thought, think
from vmrag_mcp.arguments import Given
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ToolResult
from vmrag_mcp.session import Call
from vmrag_mcp.tools import outcome


class PreviousThought(Record, frozen=True):
    """`content`: its first 300 characters."""

    id: str
    thought_number: int
    branch_id: str
    content: str


class ChromaSequentialThinkingResult(ToolResult, frozen=True):
    """`previous_thoughts`: the last five of those that lead to this one, `previous_thoughts_count`
    of which there are. `replaced`: it took the place of an earlier one.
    """

    session_id: str
    thought_id: str
    thought_number: int
    total_thoughts: int
    branch_id: str
    next_thought_needed: bool
    previous_thoughts_count: int
    previous_thoughts: list[PreviousThought]
    replaced: bool


class ThoughtMetadata(Record, frozen=True):
    """`branch_id` is empty on the trunk, and `branch_from_thought` 0."""

    session_id: str
    thought_number: int
    total_thoughts: int
    next_thought_needed: bool
    branch_id: str
    branch_from_thought: int
    timestamp: str
    custom_data: dict[str, Any]


class SessionThought(Record, frozen=True):
    id: str
    content: str
    metadata: ThoughtMetadata


class FoundThought(Record, frozen=True):
    id: str
    content: str
    metadata: ThoughtMetadata
    similarity: float


class ChromaFindSimilarThoughtsResult(ToolResult, frozen=True):
    """`best_similarity`: of any thought that was asked, similar enough or not; null: of none."""

    similar_thoughts: list[FoundThought]
    total_found: int
    threshold_used: float
    best_similarity: float | None


class ChromaGetSessionSummaryResult(ToolResult, frozen=True):
    session_id: str
    session_thoughts: list[SessionThought]
    total_thoughts_in_session: int


class FoundSession(Record, frozen=True):
    session_id: str
    summary: str
    similarity_score: float
    thought_count: int


class ChromaFindSimilarSessionsResult(ToolResult, frozen=True):
    """`best_similarity`: of any session, similar enough or not; null: of none."""

    similar_sessions: list[FoundSession]
    total_found: int
    threshold_used: float
    best_similarity: float | None


SHOWN, SHOWN_CHARACTERS = 5, 300
"""How many of the previous thoughts are shown, and how much of each."""

Number = Annotated[int, Given(low=1)]
Results = Annotated[int, Given(low=1, high=100, clamped=True)]
Threshold = Annotated[float | None, Given("least similarity; left out: what suits the model", low=0, high=1, unset=-1)]


@tool("W")
def chroma_sequential_thinking(
    call: Call,
    *,
    thought: str,
    thought_number: Number,
    total_thoughts: Annotated[int, Given("an estimate", low=1)],
    session_id: Annotated[str, Given("left out: a new session")] = "",
    branch_from_thought: Annotated[int, Given("where a branch begins", low=0)] = 0,
    branch_id: str = "",
    next_thought_needed: bool = False,
    custom_data: dict[str, Any] | None = None,
) -> ChromaSequentialThinkingResult:
    """Write down a thought of a session, and see those that led to it: for problems of many
    steps. The same number again replaces the thought.
    """
    done = think(
        call.ws,
        NewThought(
            text=thought,
            number=thought_number,
            total=total_thoughts,
            session=session_id,
            branch_from=branch_from_thought,
            branch=branch_id,
            next_needed=next_thought_needed,
            custom=custom_data or {},
        ),
    )
    report = outcome.stored_report(call, done)
    stored, previous = report.thought, report.previous
    return ChromaSequentialThinkingResult(
        session_id=stored.place.session_id,
        thought_id=stored.id,
        thought_number=stored.place.thought_number,
        total_thoughts=stored.place.total_thoughts,
        branch_id=stored.place.branch_id,
        next_thought_needed=stored.place.next_thought_needed,
        previous_thoughts_count=len(previous),
        previous_thoughts=[
            PreviousThought(each.id, each.place.thought_number, each.place.branch_id, each.content[:SHOWN_CHARACTERS])
            for each in previous[-SHOWN:]
        ],
        replaced=report.replaced,
        message=f"Thought {thought_number} of session {stored.place.session_id!r} is written down{outcome.keeping_sentence(call, done)}",
    )


@tool("R")
def chroma_find_similar_thoughts(
    call: Call,
    *,
    query: str,
    n_results: Results = 5,
    threshold: Threshold = None,
    session_id: Annotated[str, Given("left out: all sessions")] = "",
    include_branches: bool = True,
) -> ChromaFindSimilarThoughtsResult:
    """Find earlier thoughts by what they are about: has this been thought through before?"""
    found = similar.similar_thoughts(
        call.ws, query, k=n_results, threshold=threshold, session=session_id, branches=include_branches
    )
    call.stands(found.standing)
    rows = [
        FoundThought(each.thought.id, each.thought.content, _metadata(each.thought), each.similarity)
        for each in found.found
    ]
    return ChromaFindSimilarThoughtsResult(
        similar_thoughts=rows,
        total_found=len(rows),
        threshold_used=found.threshold,
        best_similarity=found.best,
        message=_similar_sentence(plural(len(rows), "thought"), found.threshold, found.best),
    )


@tool("R")
def chroma_get_session_summary(
    call: Call, *, session_id: str, include_branches: bool = True
) -> ChromaGetSessionSummaryResult:
    """Read the thoughts of a session in their order."""
    found = similar.session_thoughts(call.ws, session_id, branches=include_branches)
    call.stands(found.standing)
    rows = [SessionThought(each.id, each.content, _metadata(each)) for each in found.thoughts]
    return ChromaGetSessionSummaryResult(
        session_id=session_id,
        session_thoughts=rows,
        total_thoughts_in_session=len(rows),
        message=f"{plural(len(rows), 'thought')} in session {session_id!r}.",
    )


@tool("R")
def chroma_find_similar_sessions(
    call: Call, *, query: str, n_results: Results = 5, threshold: Threshold = None
) -> ChromaFindSimilarSessionsResult:
    """Find earlier sessions by what they are about as a whole."""
    found = similar.similar_sessions(call.ws, query, k=n_results, threshold=threshold)
    call.stands(found.standing)
    rows = [FoundSession(each.session, each.summary, each.similarity, each.thoughts) for each in found.found]
    return ChromaFindSimilarSessionsResult(
        similar_sessions=rows,
        total_found=len(rows),
        threshold_used=found.threshold,
        best_similarity=found.best,
        message=_similar_sentence(plural(len(rows), "session"), found.threshold, found.best),
    )


def _metadata(thought: Thought) -> ThoughtMetadata:
    return ThoughtMetadata(**structs.asdict(thought.place), custom_data=thought.custom)


def _similar_sentence(found: str, threshold: float, best: float | None) -> str:
    if best is None:
        return "Nothing is written down yet that could be found."
    nearest = f"; the nearest has {best}, so threshold={best} finds it" if best < threshold else ""
    return f"{found} with a similarity of at least {threshold}{nearest}."
