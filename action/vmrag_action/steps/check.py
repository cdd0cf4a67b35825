"""`mode: check`: the golden queries still get the answers that they expect."""

from __future__ import annotations

from collections.abc import Iterator

from vmrag_action import findings, work
from vmrag_action.findings import ActionFinding
from vmrag_action.runner import Runner, SourceLine, WorkflowJob
from vmrag_link.golden.queries import UPDATE
from vmrag_link.ops.checks.check_queries import CheckedQuery, GoldenReport, check_queries


def run(runner: Runner, job: WorkflowJob) -> int:
    with work.opened(runner, job) as ws:
        report = check_queries(ws)
    found = [*_outdated(report), *(each for query in report.queries for each in _missed(report, query))]
    verdict = f"{report.missed} missed something" if report.missed else "all as expected"
    return findings.report(runner, "Golden queries", found, f"Golden queries: {len(report.queries)}; {verdict}.")


def _outdated(report: GoldenReport) -> Iterator[ActionFinding]:
    if report.outdated:
        yield ActionFinding("error", "RANKINGS_OUTDATED", report.file, report.outdated, UPDATE, SourceLine(report.file))


def _missed(report: GoldenReport, query: CheckedQuery) -> Iterator[ActionFinding]:
    for miss in query.misses:
        message, at = f"{query.query!r}: {miss.message}", SourceLine(report.file, query.line)
        yield ActionFinding("error", "QUERY_MISSED", f"{report.file}:{query.line}", message, "vmrag check", at)
