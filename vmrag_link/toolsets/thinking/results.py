"""Results of the tools for thoughts."""

from __future__ import annotations

from typing import Any

from vmrag_link.models import Record
from vmrag_mcp.results.base import ToolResult


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
