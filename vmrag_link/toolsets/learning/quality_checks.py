"""What linters, type checkers and coverage found, before a change and after it."""

from __future__ import annotations

from vmrag_link.errors import UsageInvalid
from vmrag_link.models import Document, Record
from vmrag_link.ops.documents import named_files as files
from vmrag_link.ops.documents.named_files import NamedFile
from vmrag_link.ops.documents.writing import Landed
from vmrag_link.ops.system import collections
from vmrag_link.toolsets.learning import evidence_records as evidence
from vmrag_link.toolsets.learning import quality_output as quality
from vmrag_link.toolsets.learning.evidence_records import Evidence, EvidenceItem
from vmrag_link.toolsets.learning.junit import OutputUnreadable
from vmrag_link.toolsets.learning.quality_output import COVERAGE, Measure, Metric
from vmrag_link.workspace import Workspace

TYPE: evidence.EvidenceType = "code_quality_improvement"


class QualityRequest(Record, frozen=True):
    """`after`, `before`: files with the tool's output."""

    tool: str
    after: NamedFile
    before: NamedFile | None = None
    metric_type: Metric = "error_count"
    collection_name: str = collections.EVIDENCE


class QualityReport(Record, frozen=True):
    """Values are messages, or percent of coverage. `improvement_percent`: of coverage, in points.

    None where nothing before is known.
    """

    evidence_id: str
    tool: str
    metric_type: Metric
    before_value: float | None
    after_value: float
    change: float | None
    improvement_percent: float | None
    score: float


def log_quality_check(ws: Workspace, request: QualityRequest) -> Landed[QualityReport]:
    """Store a check, whether anything got better or not.

    Raises `UsageInvalid` for what is no output of the tool, as `files.read` and
    `evidence_records.write_down`.
    """
    tool = request.tool.strip().lower()
    metric: Metric = "coverage" if tool == COVERAGE else request.metric_type
    if metric == COVERAGE != tool:
        raise UsageInvalid(
            f"{request.tool} does not measure coverage.",
            hint="--tool coverage takes the output of `coverage report`, `coverage json` and `coverage xml`.",
            parameter="metric_type",
            value=metric,
        )
    after = _measured(ws, tool, metric, request.after, "after_output")
    before = _measured(ws, tool, metric, request.before, "before_output") if request.before else None
    if not after.known:
        ws.progress.note(f"The output of {request.tool} is not known here; its lines were counted.")
    points = quality.higher_is_better(tool)
    better = None if before is None else evidence.improvement(before.value, after.value, points=points)
    doc_id = evidence.new_id()
    found = Evidence((EvidenceItem(doc_id, TYPE, evidence.quality_weight(better, points=points)),))
    report = QualityReport(
        evidence_id=doc_id,
        tool=tool,
        metric_type=metric,
        before_value=before.value if before else None,
        after_value=after.value,
        change=round(after.value - before.value, 2) if before else None,
        improvement_percent=better,
        score=found.score,
    )
    numbers = {
        "tool": tool,
        "metric_type": metric,
        "before_value": report.before_value,
        "after_value": report.after_value,
        "improvement_percent": better,
    }

    def rows(collection: str) -> list[Document]:
        return [evidence.record(collection, doc_id, _report_text(report), TYPE, found, **numbers)]

    return evidence.write_down(ws, request.collection_name, rows, report, "write down a quality check")


def _measured(ws: Workspace, tool: str, metric: Metric, file: NamedFile, parameter: str) -> Measure:
    source = files.read(ws, file)
    try:
        return quality.measured(tool, metric, source.data.decode(errors="replace"))
    except OutputUnreadable as why:
        raise UsageInvalid(
            f"{source.name} {why}.",
            hint=f"Name a file with what {tool} printed.",
            parameter=parameter,
            value=source.key,
        ) from None


def _report_text(report: QualityReport) -> str:
    unit = " %" if report.tool == COVERAGE else ""
    before = "" if report.before_value is None else f", {report.before_value:g}{unit} before"
    return f"Quality check by {report.tool} ({report.metric_type}): {report.after_value:g}{unit}{before}"
