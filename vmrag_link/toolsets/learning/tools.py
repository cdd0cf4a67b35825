"""Tools for chats, what was learnt in them, and the evidence for it; and their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from vmrag_link.errors import UsageInvalid, plural
from vmrag_link.models import LEARNINGS, Record
from vmrag_link.ops.documents import named_files as files
from vmrag_link.ops.system import collections
from vmrag_link.toolsets.learning import evidence_records
from vmrag_link.toolsets.learning.chats import ChatLinks, ChatRequest, FileChange, ToolUse, log_chat
from vmrag_link.toolsets.learning.junit import RunCounts
from vmrag_link.toolsets.learning.promotion import PromotionRequest, Validation, promote
from vmrag_link.toolsets.learning.quality_checks import QualityRequest, log_quality_check
from vmrag_link.toolsets.learning.quality_output import Metric
from vmrag_link.toolsets.learning.runs import RunRequest, StoredTransition, log_test_results
from vmrag_link.toolsets.learning.runtime_errors import ErrorRequest, log_error
from vmrag_link.toolsets.learning.setup_collections import setup_collections
from vmrag_link.toolsets.learning.validation import (
    EvidenceCounts,
    ValidationRequest,
    find_output_file,
    validate_evidence,
)
from vmrag_mcp.arguments import Given
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ToolResult
from vmrag_mcp.session import Call
from vmrag_mcp.tools import outcome


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


Names = Annotated[list[str] | None, Given("or one text with commas")]
EvidenceIds = Annotated[list[str] | None, Given("ids of evidence, or one text with commas")]
Share = Annotated[float | None, Given(low=0, high=1)]
Threshold = Annotated[float, Given(low=0, high=1)]
Path = Annotated[str, Given("from the working directory, or the top of the work tree")]

R = TypeVar("R", bound=Record)


@tool("W")
def chroma_log_chat(
    call: Call,
    *,
    prompt_summary: str,
    response_summary: str,
    raw_prompt: str = "",
    raw_response: str = "",
    tool_usage: Annotated[list[dict[str, Any]] | None, Given("of {name, args}")] = None,
    file_changes: Annotated[list[dict[str, Any]] | None, Given("of {file_path, before_content, after_content}")] = None,
    involved_entities: Annotated[str, Given("with commas between")] = "",
    session_id: str = "",
    collection_name: str = collections.CHATS,
    modification_type: str = "",
    confidence_score: Share = None,
    code_context: dict[str, Any] | None = None,
    diff_summary: str = "",
    tool_sequence: Annotated[str, Given("a→b")] = "",
    related_code_chunks: list[str] | None = None,
) -> ChromaLogChatResult:
    """Write down what was asked and done in a chat, linked with the code that it changed, when
    the work is done. What is left out is derived.
    """
    request = ChatRequest(
        prompt_summary=prompt_summary,
        response_summary=response_summary,
        raw_prompt=raw_prompt,
        raw_response=raw_response,
        tool_usage=_records(tool_usage, ToolUse, "tool_usage"),
        file_changes=_records(file_changes, FileChange, "file_changes"),
        involved_entities=involved_entities,
        session_id=session_id,
        collection_name=collection_name,
        modification_type=modification_type,
        confidence_score=confidence_score,
        code_context=code_context,
        diff_summary=diff_summary,
        tool_sequence=tool_sequence,
        related_code_chunks=related_code_chunks or (),
    )
    done = log_chat(call.ws, request)
    report = outcome.stored_report(call, done)
    linked = plural(len(report.bidirectional_links.chunk_ids), "chunk")
    return ChromaLogChatResult(
        **msgspec.structs.asdict(report),
        message=f"The chat is written down, linked with {linked} of code{outcome.keeping_sentence(call, done)}",
    )


@tool("W", idempotent=True)
def learning_setup_collections(call: Call) -> LearningSetupCollectionsResult:
    """Make the collections for code, chats, learnings, thoughts and evidence that are missing."""
    done = setup_collections(call.ws)
    report = outcome.stored_report(call, done)
    return LearningSetupCollectionsResult(
        **msgspec.structs.asdict(report),
        message=f"{plural(len(report.created), 'collection')} made, {len(report.existing)} were there.",
    )


@tool("W")
def learning_promote(
    call: Call,
    *,
    description: str,
    pattern: str = "",
    code_ref: Annotated[str, Given("path:commit:line")] = "",
    tags: Names = None,
    confidence: Annotated[float, Given(low=0, high=1)] = 0.5,
    source_chat_id: str = "",
    collection_name: str = LEARNINGS,
    chat_collection_name: str = collections.CHATS,
    include_chat_context: bool = False,
    require_validation: bool = False,
    validation_evidence_id: str = "",
    validation_score: Share = None,
    validation_threshold: Threshold = evidence_records.THRESHOLD,
) -> LearningPromoteResult:
    """Write down a learning that will help next time, on evidence if there is any, and mark its
    chat as promoted.
    """
    request = PromotionRequest(
        description=description,
        pattern=pattern,
        code_ref=code_ref,
        tags=tags or (),
        confidence=confidence,
        source_chat_id=source_chat_id,
        collection_name=collection_name,
        chat_collection_name=chat_collection_name,
        include_chat_context=include_chat_context,
        require_validation=require_validation,
        validation_evidence_id=validation_evidence_id,
        validation_score=validation_score,
        validation_threshold=validation_threshold,
    )
    done = promote(call.ws, request)
    report = outcome.stored_report(call, done)
    if report.validation and not report.validation.meets_threshold:
        least = f"{validation_threshold:g}"
        call.warn("BELOW_THRESHOLD", f"The validation's score is {report.validation.score:g}, below {least}.")
    return LearningPromoteResult(
        **msgspec.structs.asdict(report), message=f"The learning is written down{outcome.keeping_sentence(call, done)}"
    )


@tool("W")
def learning_log_error(
    call: Call,
    *,
    error_type: str,
    error_message: str,
    stacktrace: str = "",
    affected_files: Names = None,
    resolution: str = "",
    resolution_verified: bool = False,
    collection_name: str = collections.EVIDENCE,
) -> LearningLogErrorResult:
    """Write down an error and how it was resolved, as evidence, once it is."""
    request = ErrorRequest(
        error_type=error_type,
        error_message=error_message,
        stacktrace=stacktrace,
        affected_files=affected_files or (),
        resolution=resolution,
        resolution_verified=resolution_verified,
        collection_name=collection_name,
    )
    done = log_error(call.ws, request)
    report = outcome.stored_report(call, done)
    return LearningLogErrorResult(
        **msgspec.structs.asdict(report),
        message=f"The error is written down as evidence with the score {report.score:g}{outcome.keeping_sentence(call, done)}",
    )


@tool("W")
def learning_log_test_results(
    call: Call,
    *,
    xml_path: Path,
    before_xml: Annotated[str, Given("the same of the run before")] = "",
    commit_before: str = "",
    commit_after: str = "",
    collection_name: str = collections.TEST_RESULTS,
) -> LearningLogTestResultsResult:
    """Write down the results of a test run (JUnit XML), and as evidence which tests it fixed."""
    request = RunRequest(
        xml=files.find(call.ws, xml_path),
        before=files.find(call.ws, before_xml) if before_xml else None,
        commit_before=commit_before,
        commit_after=commit_after,
        collection_name=collection_name,
    )
    done = log_test_results(call.ws, request)
    report = outcome.stored_report(call, done)
    changed = f"{len(report.transitions)} fixed, {plural(len(report.regressions), 'regression')}"
    return LearningLogTestResultsResult(
        **msgspec.structs.asdict(report),
        message=f"{plural(report.tests.total, 'test')}, {changed}; the score is {report.validation_score:g}"
        f"{outcome.keeping_sentence(call, done)}",
    )


@tool("W")
def learning_log_quality_check(
    call: Call,
    *,
    tool: Annotated[str, Given("ruff, flake8, pylint, mypy, coverage; of others the lines count")],
    after_output: Path,
    before_output: Annotated[str, Given("the same before the change")] = "",
    metric_type: Metric = "error_count",
    collection_name: str = collections.EVIDENCE,
) -> LearningLogQualityCheckResult:
    """Write down what a linter, a type checker or coverage printed, as evidence."""
    request = QualityRequest(
        tool=tool,
        after=files.find(call.ws, after_output),
        before=files.find(call.ws, before_output) if before_output else None,
        metric_type=metric_type,
        collection_name=collection_name,
    )
    done = log_quality_check(call.ws, request)
    report = outcome.stored_report(call, done)
    return LearningLogQualityCheckResult(
        **msgspec.structs.asdict(report),
        message=f"The check is written down as evidence with the score {report.score:g}{outcome.keeping_sentence(call, done)}",
    )


@tool("WF")
def learning_validate_evidence(
    call: Call,
    *,
    evidence_file: Annotated[str, Given("JSON, as docs/toolsets/learning.md shows")] = "",
    test_transitions: EvidenceIds = None,
    runtime_errors: EvidenceIds = None,
    code_quality: EvidenceIds = None,
    threshold: Threshold = evidence_records.THRESHOLD,
    output_file: Annotated[str, Given("a path ending in evidence.json")] = "",
) -> LearningValidateEvidenceResult:
    """Put evidence together into one score; its id is what learning_promote takes."""
    request = ValidationRequest(
        evidence_file=files.find(call.ws, evidence_file) if evidence_file else None,
        test_transitions=test_transitions or (),
        runtime_errors=runtime_errors or (),
        code_quality=code_quality or (),
        threshold=threshold,
        output=find_output_file(call.ws, output_file) if output_file else None,
    )
    done = validate_evidence(call.ws, request)
    report = outcome.stored_report(call, done)
    enough = "is enough" if report.meets_threshold else f"is below {report.threshold:g}"
    return LearningValidateEvidenceResult(
        **msgspec.structs.asdict(report),
        message=f"The score {report.score:g} {enough}{outcome.keeping_sentence(call, done)}",
    )


def _records(given: Sequence[dict[str, Any]] | None, kind: type[R], parameter: str) -> list[R]:
    """Raises `UsageInvalid`. Keys that are not known are left out."""
    found = []
    for at, each in enumerate(given or ()):
        try:
            found.append(msgspec.convert(each, type=kind))
        except msgspec.ValidationError as error:
            raise UsageInvalid(f"{parameter}[{at}] cannot be used: {error}.", parameter=parameter) from None
    return found
