"""Results of the tools for chats, learnings and evidence."""

from __future__ import annotations

from vmrag_link.toolsets.learning.chats import ChatLinks
from vmrag_link.toolsets.learning.evidence.junit import RunCounts
from vmrag_link.toolsets.learning.promotion import Validation
from vmrag_link.toolsets.learning.runs import StoredTransition
from vmrag_link.toolsets.learning.validation import EvidenceCounts
from vmrag_mcp.results.base import ToolResult


class ChromaLogChatResult(ToolResult, frozen=True):
    chat_id: str
    bidirectional_links: ChatLinks
    session_id: str


class LearningSetupCollectionsResult(ToolResult, frozen=True):
    created: list[str]
    existing: list[str]


class LearningPromoteResult(ToolResult, frozen=True):
    """`validation`: null where nothing was validated."""

    learning_id: str
    collection_name: str
    validation: Validation | None
    source_chat_updated: bool


class LearningLogErrorResult(ToolResult, frozen=True):
    """`error_id` is `evidence_id`. `affected_files`: as given, else those of the stack trace."""

    evidence_id: str
    error_id: str
    evidence_type: str
    score: float
    affected_files: list[str]


class LearningLogTestResultsResult(ToolResult, frozen=True):
    """`evidence_id` is `run_id`: the run with all of its transitions and regressions."""

    run_id: str
    tests: RunCounts
    transitions: list[StoredTransition]
    regressions: list[str]
    validation_score: float
    meets_threshold: bool
    evidence_id: str


class LearningLogQualityCheckResult(ToolResult, frozen=True):
    """`improvement_percent`: of coverage, in points. Null: nothing before was given."""

    evidence_id: str
    tool: str
    metric_type: str
    before_value: float | None
    after_value: float
    change: float | None
    improvement_percent: float | None
    score: float


class LearningValidateEvidenceResult(ToolResult, frozen=True):
    """`output_file`: the absolute path; null for none."""

    score: float
    threshold: float
    meets_threshold: bool
    evidence_types: list[str]
    counts: EvidenceCounts
    evidence_id: str
    output_file: str | None
