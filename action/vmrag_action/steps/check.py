"""`mode: check`: compare the answers to the golden queries with the expected ones."""

from __future__ import annotations

from collections.abc import Iterator

from vmrag_action import findings, inputs, work_tree
from vmrag_action.findings import ActionFinding
from vmrag_action.runner import Runner, SourceLine, WorkflowJob
from vmrag_link.errors import OK
from vmrag_link.golden.queries import UPDATE
from vmrag_link.ops.case_files import cases
from vmrag_link.ops.check.check_queries import NOTHING_TO_ASK, GoldenReport, check_queries, has_nothing_to_ask
from vmrag_link.terminal_text import escape_line


def run(runner: Runner, job: WorkflowJob) -> int:
    with work_tree.open_workspace(runner, job) as ws:
        if has_nothing_to_ask(ws):
            runner.set_output("findings", inputs.count_earlier_findings())
            runner.log_line(NOTHING_TO_ASK)
            return OK
        report = check_queries(ws)
    findings.keep_results(job, cases.list_check_cases(report))
    reported = [*_find_outdated(report), *_find_missed(report)]
    verdict = f"{report.missed} missed something" if report.missed else "all as expected"
    return findings.report_findings(
        runner, "Golden queries", reported, f"Golden queries: {len(report.queries)}; {verdict}."
    )


def _find_outdated(report: GoldenReport) -> Iterator[ActionFinding]:
    if report.outdated:
        yield ActionFinding(
            severity="error",
            code="RANKINGS_OUTDATED",
            where=report.file,
            message=report.outdated,
            hint=UPDATE,
            place=SourceLine(report.file),
        )


def _find_missed(report: GoldenReport) -> Iterator[ActionFinding]:
    """Yield a finding for each failed query of `vmrag check`, with the expected and the actual
    documents.
    """
    for query in report.queries:
        if query.misses:
            message = f"{query.query!r}: {'; '.join(miss.message for miss in query.misses)}"
            sides = dict.fromkeys(side for miss in query.misses for side in miss.sides)
            message_lines = "\n".join(map(escape_line, (message, *sides)))
            at = SourceLine(report.file, query.line)
            yield ActionFinding(
                severity="error",
                code="QUERY_MISSED",
                where=f"{report.file}:{query.line}",
                message=message_lines,
                hint="run 'vmrag check' to repeat the query",
                place=at,
            )
