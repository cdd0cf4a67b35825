"""Outputs of linters, type checkers and coverage before and after a change, each as one number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple
from xml.parsers import expat

from vmrag_link.errors import UsageInvalid
from vmrag_link.models import Document, Record, parse_user_json
from vmrag_link.ops.stores import stores
from vmrag_link.toolsets.learning import evidence_records as evidence
from vmrag_link.toolsets.learning.evidence_records import Evidence, EvidenceItem
from vmrag_link.toolsets.learning.runs import OutputUnreadable
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import named_files as files
from vmrag_link.workspace.documents.named_files import NamedFile
from vmrag_link.workspace.documents.writing import WriteResult

Metric = Literal["error_count", "linting", "complexity", "coverage", "maintainability"]

COVERAGE = "coverage"

_RULE = r"[A-Z]+[0-9]+"
_CONCISE = re.compile(rf"^\S.*:\d+:\d+:? (?P<rule>{_RULE}|invalid-syntax)\b", re.MULTILINE)
"""`path:line:column: RULE …`, the format of ruff, flake8 and pylint."""

_RUFF_FULL = re.compile(rf"^(?P<rule>{_RULE}|invalid-syntax)(?=:? ).*\n +--> \S", re.MULTILINE)
_RUFF_END = re.compile(r"^(Found \d+ errors?|All checks passed!)", re.MULTILINE)
_PYLINT_END = re.compile(r"^Your code has been rated at ", re.MULTILINE)
_MYPY = re.compile(r"^\S.*:\d+(?::\d+)?(?::\d+:\d+)?: error: ", re.MULTILINE)
_MYPY_END = re.compile(r"^(Found \d+ errors?|Success: no issues found) in ", re.MULTILINE)
_PERCENT = re.compile(r"\d{1,3}(?:\.\d{1,6})?%")

_COMPLEX = re.compile(r"C901|PLR09\d\d|R09\d\d|R1260")
"""The rules about complexity of mccabe and pylint, also under ruff's names."""


class Measure(NamedTuple):
    """A number. If `is_understood` is false, the output was not understood, and its lines were
    counted.
    """

    value: float
    is_understood: bool = True


def parse_measure(tool: str, metric: Metric, text: str) -> Measure:
    """Return the number in a tool's output. Raises `OutputUnreadable`.

    It is percent for `coverage`, and otherwise the number of messages; with the metric
    `complexity`, only of messages about complexity.
    """
    if tool == COVERAGE:
        return Measure(_parse_coverage(text))
    if tool not in _MESSAGES:
        return Measure(sum(1 for line in text.splitlines() if line.strip()), is_understood=False)
    rules = list(_parse_json(tool, text) if text.lstrip()[:1] in ("[", "{") else _MESSAGES[tool](text))
    if not rules and text.strip() and not _reports_nothing(tool, text):
        raise OutputUnreadable(f"is not output of {tool}")
    return Measure(sum(1 for rule in rules if metric != "complexity" or _COMPLEX.fullmatch(rule)))


def higher_is_better(tool: str) -> bool:
    return tool == COVERAGE


def _reports_nothing(tool: str, text: str) -> bool:
    """Return whether the output states that there are no messages."""
    ends = {"ruff": _RUFF_END, "pylint": _PYLINT_END, "mypy": _MYPY_END}
    return (
        text.strip() == "[]"
        or (text.lstrip()[:1] == "{" and tool == "pylint")
        or bool(tool in ends and ends[tool].search(text))
    )


def _parse_concise(text: str) -> Iterator[str]:
    return (match["rule"] for match in _CONCISE.finditer(text))


def _parse_ruff(text: str) -> Iterator[str]:
    yield from _parse_concise(text)
    yield from (match["rule"] for match in _RUFF_FULL.finditer(text))


def _parse_mypy(text: str) -> Iterator[str]:
    return ("error" for _ in _MYPY.finditer(text))


_MESSAGES: Mapping[str, Callable[[str], Iterator[str]]] = {
    "ruff": _parse_ruff,
    "flake8": _parse_concise,
    "pylint": _parse_concise,
    "mypy": _parse_mypy,
}
_RULE_KEYS = ("code", "message-id", "messageId")


def _parse_json(tool: str, text: str) -> Iterator[str]:
    """Return the rules in JSON of ruff, pylint (`json` and `json2`) or `mypy -O json` (one object
    per line).
    """
    lines = text.splitlines() if tool == "mypy" else [text]
    for line in filter(str.strip, lines):
        try:
            parsed = parse_user_json(line)
        except ValueError as error:
            raise OutputUnreadable(str(error)) from None
        rows = parsed.get("messages", [parsed]) if isinstance(parsed, dict) else parsed
        for row in rows if isinstance(rows, list) else ():
            if not isinstance(row, dict) or not any(key in row for key in _RULE_KEYS):
                raise OutputUnreadable(f"is not output of {tool}")
            if row.get("severity") != "note":
                yield next(str(row[key]) for key in _RULE_KEYS if key in row)


# -- coverage


def _parse_coverage(text: str) -> float:
    """Return the percentage of `coverage report`, `coverage json` or `coverage xml`."""
    start = text.lstrip()[:1]
    percent = (
        _parse_json_percent(text)
        if start == "{"
        else _parse_xml_percent(text)
        if start == "<"
        else _parse_percent(text)
    )
    if percent is None or not 0 <= percent <= 100:  # noqa: PLR2004
        raise OutputUnreadable("is not output of coverage: neither its report nor its JSON or XML")
    return round(percent, 2)


def _parse_percent(text: str) -> float | None:
    """Return the percentage of the last report."""
    last = [line.split()[-1] for line in text.splitlines() if line.startswith("TOTAL ")]
    return float(last[-1][:-1]) if last and _PERCENT.fullmatch(last[-1]) else None


def _parse_json_percent(text: str) -> float | None:
    try:
        parsed: Any = parse_user_json(text)
    except ValueError as error:
        raise OutputUnreadable(str(error)) from None
    totals = parsed.get("totals") if isinstance(parsed, dict) else None
    percent = totals.get("percent_covered") if isinstance(totals, dict) else None
    return float(percent) if isinstance(percent, int | float) and not isinstance(percent, bool) else None


def _parse_xml_percent(text: str) -> float | None:
    """Return the rate of the root: lines and, if they were measured, branches."""
    roots: list[tuple[str, Mapping[str, str]]] = []

    def start_element(name: str, attributes: Mapping[str, str]) -> None:
        if not roots:
            roots.append((name, attributes))

    def refuse_entity(*_: Any) -> None:
        raise OutputUnreadable("declares entities, which are not read")

    parser = expat.ParserCreate()
    parser.StartElementHandler = start_element
    parser.EntityDeclHandler = refuse_entity
    try:
        parser.Parse(text.encode(), True)
    except (expat.ExpatError, ValueError) as error:
        raise OutputUnreadable(f"is not valid XML ({error})") from None
    name, attributes = roots[0]
    kinds = ("lines", "branches")
    try:
        covered, valid = (
            sum(int(attributes.get(f"{kind}-{what}", 0)) for kind in kinds) for what in ("covered", "valid")
        )
    except ValueError:
        return None
    return 100 * covered / valid if name == COVERAGE and valid > 0 else None


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
