"""Tools for chats, lessons and evidence."""

from __future__ import annotations

from typing import Annotated

from vmrag_link.errors import plural
from vmrag_link.ops.stores import stores
from vmrag_link.ops.stores.relocation import SetupReport, setup_collections
from vmrag_link.toolsets.learning import evidence_records
from vmrag_link.toolsets.learning.chats import ChatReport, ChatRequest, log_chat
from vmrag_link.toolsets.learning.promotion import PromotionReport, PromotionRequest, store_learning
from vmrag_link.toolsets.learning.quality_checks import QualityReport, QualityRequest, log_quality_check
from vmrag_link.toolsets.learning.runs import RunReport, RunRequest, log_test_results
from vmrag_link.toolsets.learning.runtime_errors import ErrorReport, ErrorRequest, log_error
from vmrag_link.toolsets.learning.tool_output import Metric
from vmrag_link.toolsets.learning.validation import (
    ValidationReport,
    ValidationRequest,
    find_output_file,
    validate_evidence,
)
from vmrag_link.workspace.documents import named_files as files
from vmrag_mcp.arguments import EXISTING_FILE, Given, fields_as_keywords
from vmrag_mcp.call import Call
from vmrag_mcp.registry import tool
from vmrag_mcp.results import ToolAnswer
from vmrag_mcp.tools import outcome

EvidenceIds = Annotated[list[str] | None, Given("ids of evidence, or one text with commas")]
Path = Annotated[str, Given(EXISTING_FILE)]


@tool("W")
@fields_as_keywords
def chroma_log_chat(call: Call, request: ChatRequest) -> ToolAnswer[ChatReport]:
    """Store the summary of a chat and link it with the code that it changed. Call it when the
    work is done. Missing values are derived.
    """
    result = log_chat(call.ws, request)
    linked = plural(len(result.report.bidirectional_links.chunk_ids), "chunk")
    return outcome.kept_answer(call, result, f"The chat is written down, linked with {linked} of code")


@tool("W", title="Set up collections", idempotent=True)
def learning_setup_collections(call: Call) -> ToolAnswer[SetupReport]:
    """Create the missing collections for code, chats, learnings, thoughts and evidence."""
    report = outcome.stored_report(call, setup_collections(call.ws))
    return ToolAnswer(
        report, message=f"{plural(len(report.created), 'collection')} created, {len(report.existing)} already existed."
    )


@tool("W", title="Promote learning")
@fields_as_keywords
def learning_promote(call: Call, request: PromotionRequest) -> ToolAnswer[PromotionReport]:
    """Store a learning for later work with its evidence, and mark its chat as promoted."""
    result = store_learning(call.ws, request)
    checked = result.report.validation
    if checked and not checked.meets_threshold:
        threshold = f"{request.validation_threshold:g}"
        call.warn("BELOW_THRESHOLD", f"The validation's score is {checked.score:g}, below {threshold}.")
    return outcome.kept_answer(call, result, "The learning is written down")


@tool("W")
@fields_as_keywords
def learning_log_error(call: Call, request: ErrorRequest) -> ToolAnswer[ErrorReport]:
    """Store an error and its resolution as evidence."""
    result = log_error(call.ws, request)
    return outcome.kept_answer(
        call, result, f"The error is written down as evidence with the score {result.report.score:g}"
    )


@tool("W")
def learning_log_test_results(
    call: Call,
    *,
    xml_path: Path,
    before_xml: Annotated[str, Given("report of the earlier run")] = "",
    commit_before: Annotated[str, Given("git commit of the earlier run", ref=True)] = "",
    commit_after: Annotated[str, Given("git commit of this run", ref=True)] = "",
    collection_name: evidence_records.StoredIn = stores.TEST_RESULTS,
) -> ToolAnswer[RunReport]:
    """Store the results of a test run (JUnit XML) and, as evidence, the tests that it fixed."""
    request = RunRequest(
        xml=files.find_file(call.ws, xml_path),
        before=files.find_file(call.ws, before_xml) if before_xml else None,
        commit_before=commit_before,
        commit_after=commit_after,
        collection_name=collection_name,
    )
    result = log_test_results(call.ws, request)
    report = result.report
    changed = f"{len(report.transitions)} fixed, {plural(len(report.regressions), 'regression')}"
    sentence = f"{plural(report.tests.total, 'test')}, {changed}; the score is {report.validation_score:g}"
    return outcome.kept_answer(call, result, sentence)


@tool("W")
def learning_log_quality_check(
    call: Call,
    *,
    tool: Annotated[str, Given("ruff, flake8, pylint, mypy or coverage; others by number of lines")],
    after_output: Path,
    before_output: Annotated[str, Given("output before the change")] = "",
    metric_type: Annotated[Metric, Given("metric")] = "error_count",
    collection_name: evidence_records.StoredIn = stores.EVIDENCE,
) -> ToolAnswer[QualityReport]:
    """Store the output of a linter, type checker or coverage tool as evidence."""
    request = QualityRequest(
        tool=tool,
        after=files.find_file(call.ws, after_output),
        before=files.find_file(call.ws, before_output) if before_output else None,
        metric_type=metric_type,
        collection_name=collection_name,
    )
    result = log_quality_check(call.ws, request)
    return outcome.kept_answer(
        call, result, f"The check is written down as evidence with the score {result.report.score:g}"
    )


@tool("WFO")
def learning_validate_evidence(
    call: Call,
    *,
    evidence_file: Annotated[str, Given("JSON file, see docs/toolsets.md")] = "",
    test_transitions: EvidenceIds = None,
    runtime_errors: EvidenceIds = None,
    code_quality: EvidenceIds = None,
    threshold: evidence_records.Share = evidence_records.THRESHOLD,
    output_file: Annotated[str, Given("path of the result, ending in evidence.json")] = "",
) -> ToolAnswer[ValidationReport]:
    """Combine evidence into one score. learning_promote accepts its id."""
    request = ValidationRequest(
        evidence_file=files.find_file(call.ws, evidence_file) if evidence_file else None,
        test_transitions=test_transitions or (),
        runtime_errors=runtime_errors or (),
        code_quality=code_quality or (),
        threshold=threshold,
        output=find_output_file(call.ws, output_file) if output_file else None,
    )
    result = validate_evidence(call.ws, request)
    report = result.report
    enough = "is enough" if report.meets_threshold else f"is below {report.threshold:g}"
    return outcome.kept_answer(call, result, f"The score {report.score:g} {enough}")
