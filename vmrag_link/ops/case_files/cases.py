"""Test cases of `vmrag verify` and `vmrag check`, for programs that compare two runs.

A case has the same name in every run. Texts in cases are untrusted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from vmrag_link.golden.queries import UPDATE, Miss
from vmrag_link.models import Record
from vmrag_link.ops.check.check_queries import CheckedQuery, GoldenReport
from vmrag_link.ops.verify.verify import VerifyReport
from vmrag_link.ops.verify.verify_commits import Level, PinFinding
from vmrag_link.paths import PIN_NAME

PIN_RULES: dict[str, str] = {
    "KNOWLEDGE_DROPPED": "no commit drops documents",
    "PIN_REMOVED": "no commit removes the pin",
    "PIN_MALFORMED": "every pin can be read",
    "PIN_REVISION_MISSING": "every pinned revision is in the knowledge base",
    "NOT_ON_REMOTE": "the remote has every pinned revision",
    "NOT_COMPARABLE": "the clone has the history to compare",
    "MOVED_BACK": "no pin moves back",
    "LOSS_ACCEPTED": "no revision accepts the loss of another one",
}
"""The rules of `vmrag verify`, with the statement that is true if the rule has no problem."""

QUERY_MISSED = "QUERY_MISSED"
RANKINGS_OUTDATED = "RANKINGS_OUTDATED"
THRESHOLD_MISSED = "THRESHOLD_MISSED"
QUERY_RULES = {
    QUERY_MISSED: "golden queries are answered as expected",
    RANKINGS_OUTDATED: "recorded rankings can be compared",
    THRESHOLD_MISSED: "the answers reach the thresholds",
}


class CaseProblem(Record, frozen=True):
    """A problem of a case."""

    rule: str
    level: Level
    message: str
    key: tuple[str, ...]
    """Identifies the problem in the next run, in which lines, scores and the last commit may
    differ.
    """
    notes: tuple[str, ...] = ()
    """Lines to print below the message."""


class CheckCase(Record, frozen=True):
    """A case with its problems, which are displayed at `file` and `line`."""

    name: str
    file: str
    line: int
    problems: tuple[CaseProblem, ...] = ()
    skipped: str = ""
    """Why the case was not checked; empty if it was."""

    @property
    def failed(self) -> bool:
        return any(problem.level == "error" for problem in self.problems)


class CaseList(Record, frozen=True):
    """All cases of a run."""

    command: Literal["check", "verify"]
    rules: Mapping[str, str]
    """Name of a rule → the statement that is true if the rule has no problem."""
    cases: tuple[CheckCase, ...]


def list_verify_cases(report: VerifyReport, *, asked_remote: bool) -> CaseList:
    """Return a case for each rule, because commits have other names in every run."""
    by_rule: dict[str, list[PinFinding]] = {rule: [] for rule in PIN_RULES}
    for finding in report.findings:
        by_rule[finding.code].append(finding)
    skipped: dict[str, str] = {} if asked_remote else {"NOT_ON_REMOTE": "use '--remote REMOTE' to check this"}
    if by_rule["NOT_COMPARABLE"]:
        skipped["KNOWLEDGE_DROPPED"] = "the clone lacks the history"
    cases = [
        CheckCase(
            name=f"{PIN_RULES[rule]} ({rule})",
            file=PIN_NAME,
            line=1,
            problems=tuple(map(_build_pin_problem, findings)),
            skipped="" if findings else skipped.get(rule, ""),
        )
        for rule, findings in by_rule.items()
    ]
    return CaseList("verify", PIN_RULES, tuple(cases))


def _build_pin_problem(finding: PinFinding) -> CaseProblem:
    restored = f"Restored by {finding.mended_by[:12]}." if finding.mended_by else ""
    notes = tuple(note for note in (restored, finding.hint) if note)
    return CaseProblem(finding.code, finding.level, finding.message, key=(finding.message,), notes=notes)


def list_check_cases(report: GoldenReport) -> CaseList:
    """Return a case for each golden query, each threshold, and the comparison of rankings."""
    return list_query_cases(_generate_cases(report))


def list_query_cases(cases: Iterable[CheckCase]) -> CaseList:
    return CaseList("check", QUERY_RULES, tuple(cases))


def _generate_cases(report: GoldenReport) -> Iterator[CheckCase]:
    level: Level = "information" if report.thresholds else "error"  # the thresholds decide
    for query in report.queries:
        problems = tuple(_build_miss_problem(query, miss, level) for miss in query.misses)
        yield CheckCase(query.name, report.file, query.line, problems)
    for threshold in report.thresholds:
        missed = CaseProblem(THRESHOLD_MISSED, "error", threshold.sentence, key=(threshold.name,))
        yield CheckCase(f"threshold: {threshold.name}", report.file, 1, () if threshold.holds else (missed,))
    if any(query.ranking is not None for query in report.queries):
        outdated = CaseProblem(RANKINGS_OUTDATED, "error", report.outdated, key=(), notes=(UPDATE,))
        yield CheckCase(QUERY_RULES[RANKINGS_OUTDATED], report.file, 1, (outdated,) if report.outdated else ())


def _build_miss_problem(query: CheckedQuery, miss: Miss, level: Level) -> CaseProblem:
    key = (query.name, miss.kind, miss.document or "")
    return CaseProblem(QUERY_MISSED, level, f"{miss.kind}: {miss.message}", key, tuple(miss.sides))
