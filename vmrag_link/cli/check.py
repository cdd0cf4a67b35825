"""`vmrag check`: run the golden queries and compare the answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from vmrag_link.cli import answering, output
from vmrag_link.cli.answering import format_rankings
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.case_files import CaseFiles, case_options
from vmrag_link.errors import FAILED_CHECK, OK, plural
from vmrag_link.golden.queries import UPDATE
from vmrag_link.ops.case_files import cases
from vmrag_link.ops.check import check_queries as operation
from vmrag_link.ops.check.check_queries import CheckedQuery, GoldenReport
from vmrag_link.ops.check.thresholds import GoldenMetrics, QualityHistory, Thresholds
from vmrag_link.paths import QUERIES_NAME
from vmrag_link.workspace.commits import deepen

if TYPE_CHECKING:
    from vmrag_link.ops.check.trec import TrecFiles

INDENT = "    "
_SHARE = click.FloatRange(0, 1)


@vmrag_command("check")
@click.option("--update", is_flag=True, help="Record the rankings of queries without `expect` and `first`.")
@click.option(
    "--order", "as_order", is_flag=True, help="With --update: record only the order of documents for new queries."
)
@click.option("--at", "ref", metavar="REF", help="Search this git ref, with its settings, for example v1.0.")
@click.option(
    "--min-mrr", type=_SHARE, help="Minimum mean reciprocal rank of the first expected documents (1: all are first)."
)
@click.option("--min-recall", type=_SHARE, help="Minimum share of the expected documents among the first k chunks.")
@click.option("--max-regressions", type=click.IntRange(0), help="Maximum number of queries with another answer.")
@click.option("--base", metavar="REF", help="Count a query as a regression only if REF answers it as expected.")
@click.option(
    "--history",
    "past",
    type=click.IntRange(1),
    metavar="N",
    help="Also show the quality of the last N commits that changed documents or settings.",
)
@click.option(
    "--trec",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write qrels.txt and run.txt for trec_eval, ir_measures and ranx.",
)
@case_options
def command(
    invocation: Invocation,
    *,
    update: bool,
    as_order: bool,
    ref: str | None,
    min_mrr: float | None,
    min_recall: float | None,
    max_regressions: int | None,
    base: str | None,
    past: int | None,
    trec: Path | None,
    files: CaseFiles,
) -> int:
    """Check that golden queries find the expected documents.

    A golden query is a search with a known answer, in .vmrag/queries.yaml. It expects documents
    among its first k chunks (`expect`), a document in the first place (`first`), documents in this
    order (`order`), or the whole recorded answer (`ranking`). The exit code is 1 if a query gets
    another answer. With --min-mrr, --min-recall or --max-regressions (0 with --base), it is 1 only
    if one is missed.
    """
    files.require_writable(invocation)
    with invocation.workspace() as ws:
        if ref is None and operation.has_nothing_to_ask(ws):
            unasked = {"file": QUERIES_NAME, "queries": [], "missed": 0, "recorded": 0}
            files.write_files(invocation, unasked, [operation.NOTHING_TO_ASK], lambda: cases.list_query_cases([]))
            return OK
        thresholds = Thresholds(min_mrr, min_recall, max_regressions, base)
        report = operation.check_queries(ws, ref=ref, update=update, as_order=as_order, thresholds=thresholds)
        if past:
            from vmrag_link.ops.check.check_history import measure_history

            quality = measure_history(ws, ref or "HEAD", limit=past)
            report = msgspec.structs.replace(report, history=quality)
        written = _write_trec(invocation.directory / trec, report) if trec else None
    lines = _report_lines(report, update=update, with_metrics=bool(past or trec), trec=written)
    files.write_files(invocation, report, lines, lambda: cases.list_check_cases(report))
    return 0 if report.passed else FAILED_CHECK


def _write_trec(folder: Path, report: GoldenReport) -> TrecFiles:
    from vmrag_link.ops.check.trec import write_trec

    return write_trec(report, folder)


def _report_lines(
    report: GoldenReport, *, update: bool, with_metrics: bool = False, trec: TrecFiles | None = None
) -> Iterator[str]:
    for query in report.queries:
        if query.misses:
            yield from _format_misses(report, query)
        if query.recorded:
            yield from _format_recorded(report, query)
    if report.outdated:
        yield f"{_format_mark('outdated', 'yellow')}{report.outdated}"
        yield f"{INDENT}To record them again, and see what differs: {UPDATE} && git diff -- {report.file}"
    if update:
        yield _describe_file(report)
    for limit in report.thresholds:
        label, colour = ("holds", "green") if limit.holds else ("below", "red")
        yield f"{_format_mark(label, colour)}{limit.sentence}"
    if report.history:
        yield from _format_history(report.history)
    if with_metrics and report.metrics:
        yield _describe_metrics(report.metrics)
    if trec:
        yield f"Wrote {trec.qrels} and {trec.run} with {plural(trec.judged, 'query')}."
    yield _format_verdict(report)


def _describe_metrics(metrics: GoldenMetrics) -> str:
    """Return the line with the means of all judged queries."""
    shown = [
        f"{name} {mean:.4f} ({low:.2f} to {high:.2f})"
        for name, mean, (low, high) in (
            ("ndcg", metrics.ndcg, metrics.ndcg_interval),
            ("mrr", metrics.mrr, metrics.mrr_interval),
        )
    ]
    count = plural(metrics.judged, "query")
    return f"{', '.join(shown)}, recall {metrics.recall:.4f}, of {count} that name documents, with 95 % confidence"


def _format_history(history: QualityHistory) -> Iterator[str]:
    yield output.style_text(f"{'commit':9}{'date':12}{'mrr':8}{'ndcg':8}{'recall':8}missed", dim=True)
    for commit in history.commits:
        start = f"{commit.commit[:7]:9}{commit.date:12}"
        if commit.problem:
            yield f"{start}{output.style_text('not asked', fg='yellow')}: {commit.problem}"
            continue
        quality = (commit.metrics.mrr, commit.metrics.ndcg, commit.metrics.recall) if commit.metrics else ()
        numbers = "".join(f"{value:<8.4f}" for value in quality) or f"{'-':8}" * 3
        yield f"{start}{numbers}{commit.missed:<8}{commit.subject}"
    if history.shallow:
        yield f"Older commits may be missing: this is a shallow clone. {deepen.HINT}"


def _format_misses(report: GoldenReport, query: CheckedQuery) -> Iterator[str]:
    yield _format_headline(report, query, "miss", "red")
    for miss in query.misses:
        yield f"{INDENT}{miss.kind}: {miss.message}"
        lines = (
            format_rankings(query.ranking or (), query.chunks, report.names) if miss.kind == "ranking" else miss.sides
        )
        yield from (f"{INDENT}{INDENT if miss.kind != 'ranking' else ''}{line}" for line in lines)


def _format_recorded(report: GoldenReport, query: CheckedQuery) -> Iterator[str]:
    yield _format_headline(report, query, "recorded", "green")
    yield from (f"{INDENT}{line}" for line in format_rankings(query.ranking or (), query.chunks, report.names))


def _format_headline(report: GoldenReport, query: CheckedQuery, label: str, colour: str) -> str:
    place = output.style_text(f"{report.file}:{query.line}", dim=True)
    return f"{_format_mark(label, colour)}{' '.join(query.query.split())}  {place}"


def _format_mark(label: str, colour: str) -> str:
    return f"{output.style_text(label, fg=colour, bold=True)}  "


def _describe_file(report: GoldenReport) -> str:
    if not report.recorded:
        return f"{report.file} holds these rankings already."
    new = sum(query.recorded == "new" for query in report.queries)
    return (
        f"Recorded {plural(report.recorded, 'ranking')} in {report.file}: {new} new, {report.recorded - new} changed."
    )


def _format_verdict(report: GoldenReport) -> str:
    number = plural(len(report.queries), "query")
    verdict = (
        f"{report.missed} of {number} not answered as expected" if report.missed else f"{number} answered as expected"
    )
    verdict += ", apart from the recorded rankings" if report.outdated else ""
    if not report.kb.commit or report.kb.empty:
        return f"{verdict}, {answering.describe_position_plainly(report.kb)}."
    state = ", uncommitted documents included" if report.kb.dirty else ""
    return f"{verdict}; asked revision {report.kb.commit[:7]}{state}."
