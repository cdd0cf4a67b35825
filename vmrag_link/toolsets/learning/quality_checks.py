"""Store a check of code quality as evidence: the output of a tool before and after a change."""

from __future__ import annotations

from vmrag_link.errors import UsageInvalid
from vmrag_link.models import Document, Record
from vmrag_link.ops.stores import stores
from vmrag_link.toolsets.learning import evidence_records as evidence
from vmrag_link.toolsets.learning.evidence_records import Evidence, EvidenceItem
from vmrag_link.toolsets.learning.junit import OutputUnreadable
from vmrag_link.toolsets.learning.tool_output import COVERAGE, Measure, Metric, higher_is_better, parse_measure
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import named_files as files
from vmrag_link.workspace.documents.named_files import NamedFile
from vmrag_link.workspace.documents.writing import WriteResult

TYPE: evidence.EvidenceType = "code_quality_improvement"


class QualityRequest(Record, frozen=True):
    """A check. `after` and `before` are files with the tool's output."""

    tool: str
    after: NamedFile
    before: NamedFile | None = None
    metric_type: Metric = "error_count"
    collection_name: str = stores.EVIDENCE


class QualityReport(Record, frozen=True):
    """A stored check.

    Values are messages, or percent of coverage. `improvement_percent` is in points for coverage.
    Values are None if there is no output from before.
    """

    evidence_id: str
    tool: str
    metric_type: Metric
    before_value: float | None
    after_value: float
    change: float | None
    improvement_percent: float | None
    score: float


def log_quality_check(ws: Workspace, request: QualityRequest) -> WriteResult[QualityReport]:
    """Store a check, even without an improvement.

    Raises `UsageInvalid` for an unreadable output, and the errors of `named_files.read_file` and
    `evidence_records.store_records`.
    """
    tool = request.tool.strip().lower()
    metric: Metric = "coverage" if tool == COVERAGE else request.metric_type
    if metric == COVERAGE != tool:
        raise UsageInvalid(
            f"{request.tool} does not measure coverage.",
            hint="use the output of 'coverage report', 'coverage json' or 'coverage xml' for --tool coverage",
            parameter="metric_type",
            value=metric,
        )
    after = _read_measure(ws, tool, metric, request.after, "after_output")
    before = _read_measure(ws, tool, metric, request.before, "before_output") if request.before else None
    if not after.is_understood:
        ws.progress.note(f"The output of {request.tool} is not known here; its lines were counted.")
    points = higher_is_better(tool)
    better = None if before is None else evidence.compute_improvement(before.value, after.value, points=points)
    doc_id = evidence.create_id()
    evidence_of_check = Evidence((EvidenceItem(doc_id, TYPE, evidence.weigh_check(better, points=points)),))
    report = QualityReport(
        evidence_id=doc_id,
        tool=tool,
        metric_type=metric,
        before_value=before.value if before else None,
        after_value=after.value,
        change=round(after.value - before.value, 2) if before else None,
        improvement_percent=better,
        score=evidence_of_check.score,
    )
    numbers = {
        "tool": tool,
        "metric_type": metric,
        "before_value": report.before_value,
        "after_value": report.after_value,
        "improvement_percent": better,
    }

    def build_rows(collection: str) -> list[Document]:
        return [evidence.build_record(collection, doc_id, _format_report(report), TYPE, evidence_of_check, **numbers)]

    return evidence.store_records(ws, request.collection_name, build_rows, report, "write down a quality check")


def _read_measure(ws: Workspace, tool: str, metric: Metric, file: NamedFile, parameter: str) -> Measure:
    source = files.read_file(ws, file)
    try:
        return parse_measure(tool, metric, source.data.decode(errors="replace"))
    except OutputUnreadable as why:
        raise UsageInvalid(
            f"{source.name} {why}.",
            hint=f"name a file with the output of {tool}",
            parameter=parameter,
            value=source.key,
        ) from None


def _format_report(report: QualityReport) -> str:
    unit = " %" if report.tool == COVERAGE else ""
    before = "" if report.before_value is None else f", {report.before_value:g}{unit} before"
    return f"Quality check by {report.tool} ({report.metric_type}): {report.after_value:g}{unit}{before}"
