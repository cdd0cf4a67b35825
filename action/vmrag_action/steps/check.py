"""`mode: check`: the golden queries still get the answers that they expect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vmrag_action import findings, inputs
from vmrag_action.findings import ActionFinding
from vmrag_action.runner import Runner, SourceLine, WorkflowJob
from vmrag_link.errors import OK
from vmrag_link.golden.queries import UPDATE, Miss
from vmrag_link.ops.case_files import cases
from vmrag_link.ops.check.check_queries import NOTHING_TO_ASK, GoldenReport, check_queries, has_nothing_to_ask
from vmrag_link.terminal_text import escape_line


def run(runner: Runner, job: WorkflowJob) -> int:
    with findings.open_workspace(runner, job) as ws:
        if has_nothing_to_ask(ws):
            runner.set_output("findings", inputs.count_earlier_findings())
            runner.log_line(NOTHING_TO_ASK)
            return OK
        report = check_queries(ws)
    findings.keep_results(job, cases.list_check_cases(report))
    found = [*_outdated(report), *_missed(report)]
    verdict = f"{report.missed} missed something" if report.missed else "all as expected"
    return findings.report_findings(
        runner, "Golden queries", found, f"Golden queries: {len(report.queries)}; {verdict}."
    )


def _outdated(report: GoldenReport) -> Iterator[ActionFinding]:
    if report.outdated:
        yield ActionFinding("error", "RANKINGS_OUTDATED", report.file, report.outdated, UPDATE, SourceLine(report.file))


def _missed(report: GoldenReport) -> Iterator[ActionFinding]:
    """One for each query, as `vmrag check` counts them, with what was wanted and what came."""
    for query in report.queries:
        if query.misses:
            message = f"{query.query!r}: {'; '.join(miss.message for miss in query.misses)}"
            told = "\n".join(map(escape_line, (message, *dict.fromkeys(_sides(query.misses)))))
            at = SourceLine(report.file, query.line)
            yield ActionFinding("error", "QUERY_MISSED", f"{report.file}:{query.line}", told, "vmrag check", at)


def _sides(missed: Iterable[Miss]) -> Iterator[str]:
    return (side for each in missed for side in each.sides)
