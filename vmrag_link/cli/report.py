"""`vmrag report`: report what a pull request changes in the documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
from msgspec.structs import replace

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import UsageInvalid, plural
from vmrag_link.golden.queries import compare_rankings
from vmrag_link.ops.report import html as jinja_page
from vmrag_link.ops.report.ends import NamedEnd
from vmrag_link.ops.report.files import require_writable_path, write_text
from vmrag_link.ops.report.gather import gather_report
from vmrag_link.ops.report.markdown import format_markdown
from vmrag_link.ops.report.rankings import index_answers, list_changed_rankings, name_differing_text, shorten_name
from vmrag_link.ops.report.records import ComparedQueries, DocumentLine, QueryChange, ReportSummary, RevisionList
from vmrag_link.ops.report.wording import (
    describe_basis,
    describe_pinning,
    describe_revision,
    format_growth,
    judge_report,
    name_document,
)
from vmrag_link.workspace.history.revparse import HEAD
from vmrag_link.workspace.history.word_diff import hidden_suffix

_MARKS = {"added": ("A", "green"), "changed": ("M", "yellow"), "moved": ("R", "cyan"), "removed": ("D", "red")}
_INDENT = "    "
_REVISIONS = 10
"""Maximum number of entries of each list. The files of a report have all."""

_STDOUT = Path("-")
_FILE = click.Path(path_type=Path)


@vmrag_command("report")
@click.argument("base", metavar="BASE")
@click.argument("head", metavar="[HEAD]", default=HEAD)
@click.option("--html", type=_FILE, metavar="FILE", help="Write a self-contained HTML page with all differences.")
@click.option(
    "--markdown",
    "summary",
    type=_FILE,
    metavar="FILE",
    help="Write Markdown below 1 MiB, for example for a job summary. - prints it.",
)
@click.option(
    "--history",
    "past",
    type=click.IntRange(1, 200),
    metavar="N",
    help="Also measure the quality of the last N commits, and plot it in the page.",
)
@click.option("--gitlab-note", is_flag=True, help="Write the report as a note on the GitLab merge request of this job.")
def command(
    invocation: Invocation,
    *,
    base: str,
    head: str,
    html: Path | None,
    summary: Path | None,
    past: int | None,
    gitlab_note: bool,
) -> None:
    """Report what a pull request changes in the documents.

    Like 'git diff BASE...HEAD', it compares HEAD with the merge base: documents that were added,
    changed, moved or removed, revisions, and golden queries with other answers. BASE and HEAD are
    git refs, revisions or KB branches. Without HEAD, it reports the checked-out commit.

    Redirect the output to get Markdown. The command builds the indexes of both sides if
    needed. It never fails because of what it reports; use 'vmrag verify' and 'vmrag check'
    for that.

    --gitlab-note needs a token with the scope 'api' in GITLAB_TOKEN. It edits its own note
    and creates none if nothing changes.
    """
    if gitlab_note:
        from vmrag_link.ops.report import comment, comment_data, gitlab

        request = gitlab.MergeRequest.from_environment()
    written = html or summary or gitlab_note or invocation.as_json
    printed = summary == _STDOUT or (output.is_output_file() and not written)
    if printed and invocation.as_json:
        raise UsageInvalid("only one format can go to standard output.", hint="use a file name instead of `-`")
    page_file, summary_file = (path and invocation.directory / path for path in (html, None if printed else summary))
    for file in filter(None, (page_file, summary_file)):
        require_writable_path(file, invocation.directory)
    if page_file:
        jinja_page.require_jinja()
    with (
        invocation.workspace() as ws,
        gather_report(ws, NamedEnd(base), NamedEnd(head), past=past) as report,
    ):
        if page_file:
            write_text(page_file, jinja_page.render_page(report))
        if summary_file:
            write_text(summary_file, [format_markdown(report)])
        if gitlab_note:
            data = comment_data.build_comment_data(request.number, report.summary, report.summary.head.hash)
            text = comment.format_comment(data, request.job_page, request="merge request")
            outcome = request.update_note(text, speaks=data.has_news)
            output.print_warning(f"The note on the merge request: {outcome}.")
        if printed and not invocation.is_quiet:
            output.print_exactly(format_markdown(report))
        elif invocation.as_json:
            invocation.emit_report(report.load_full())
        else:
            invocation.print_paged(ws, _format_report(report.summary))


def _format_report(report: ReportSummary) -> Iterator[str]:
    yield from (output.style_text(sentence, bold=True) for sentence in judge_report(report).sentences)
    yield output.style_text(describe_basis(report), dim=True)
    yield from _format_queries(report.queries)
    yield from _format_documents(report)
    yield from _format_revisions("+", report.gained)
    yield from _format_revisions("-", report.lost)
    for finding in report.findings:
        colour = "red" if finding.level == "error" else "cyan"
        yield f"{output.style_text(finding.code, fg=colour)}  {finding.message}"
        yield from [f"{_INDENT}{finding.hint}"] if finding.hint else []


def _format_revisions(sign: str, revisions: RevisionList) -> Iterator[str]:
    for revision in revisions.shown[:_REVISIONS]:
        by = f"  ({describe_pinning(revision)})" if revision.commits else ""
        name = output.style_text(revision.revision[:7], fg="yellow")
        yield f"{sign} {name} {' '.join(describe_revision(revision, revisions).split())}{output.style_text(by, dim=True)}"
    if more := revisions.total - len(revisions.shown[:_REVISIONS]):
        yield f"{sign} {plural(more, 'more revision')}"


def _format_documents(report: ReportSummary) -> Iterator[str]:
    for collection in report.collections:
        letter, colour = ("M", "yellow") if collection.kind == "modified" else (collection.kind[0].upper(), "cyan")
        yield f" {output.style_text(letter, fg=colour)}  {collection.name}/ (the collection's settings)"
    width = max((len(_format_names(document)) for document in report.documents), default=0)
    for line in report.documents:
        letter, colour = _MARKS[line.kind]
        words = f"+{line.words.inserted} -{line.words.deleted}{hidden_suffix(line.words)}"
        yield f" {output.style_text(letter, fg=colour)}  {_format_names(line).ljust(min(width, _WIDTH))} | {words}"
    for files in report.files:
        yield f"    {files.collection}: {plural(files.total, 'file')} of code"
    if report.documents:
        size = report.size
        chunks = f"; chunks {format_growth(size.chunks)}" if size.chunks else ""
        words = f"{plural(report.words.inserted, 'word')} inserted(+), {report.words.deleted} deleted(-){hidden_suffix(report.words)}"
        yield f"{words}; documents {format_growth(size.documents)}; {size.characters.grown:+,} characters{chunks}"


def _format_names(line: DocumentLine) -> str:
    name = name_document(line)
    return f"{line.shown_old_name} -> {name}" if line.shown_old_name else name


def _format_queries(queries: ComparedQueries) -> Iterator[str]:
    answers = index_answers(queries)
    for change in list_changed_rankings(queries):
        yield from _describe_query(change, name_differing_text(answers.get(change.line), queries), queries)
    for letter, colour, listed in (("A", "green", queries.added), ("D", "red", queries.removed)):
        for query in listed:
            yield f" {output.style_text(letter, fg=colour)}  golden query: {' '.join(query.query.split())}"
            yield from (f"{_INDENT}{change}" for change in query.missed)


def _describe_query(query: QueryChange, differs: str, queries: ComparedQueries) -> Iterator[str]:
    yield f"{output.style_text('?', fg='magenta')} {' '.join(query.query.split())}"
    for sentence in (query.problem_before, query.problem_after, *query.missed_after, differs):
        if sentence:
            yield f"{_INDENT}{sentence}"
    for ranking_change in compare_rankings(query.before, query.after):
        if ranking_change.rank_before != ranking_change.rank_after:
            yield f"{_INDENT}{replace(ranking_change, document=shorten_name(ranking_change.document, queries))}"


_WIDTH = 60
"""Columns of a name. A longer name only shifts its own numbers."""
