"""`vmrag report`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
from msgspec.structs import replace

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import UsageInvalid, plural
from vmrag_link.golden.queries import ranking_changes
from vmrag_link.ops.history.revparse import HEAD
from vmrag_link.ops.history.word_diff import hidden_suffix
from vmrag_link.ops.report import html as jinja_page
from vmrag_link.ops.report.ends import NamedEnd
from vmrag_link.ops.report.files import require_place, write_text
from vmrag_link.ops.report.gather import gather
from vmrag_link.ops.report.markdown import markdown
from vmrag_link.ops.report.rankings import answers_by_line, listed, ranked_name, text_that_differs
from vmrag_link.ops.report.records import ComparedQueries, DocumentLine, QueryChange, ReportSummary, RevisionList
from vmrag_link.ops.report.wording import basis, documents_name, grown, pinned_by, told, verdict

_MARKS = {"added": ("A", "green"), "changed": ("M", "yellow"), "moved": ("R", "cyan"), "removed": ("D", "red")}
_INDENT = "    "
_REVISIONS = 10
"""Of each list; all that a report has are in its files."""

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

    Like 'git diff BASE...HEAD', it compares HEAD with the merge base: documents that were
    added, changed, moved or removed, revisions, and golden queries with other answers. BASE
    and HEAD are git refs, revisions or KB branches. Without arguments, it reports HEAD's pull
    request.

    Redirect the output to get Markdown. The command builds the indexes of both sides if
    needed. It never fails because of what it reports; use 'vmrag verify' and 'vmrag check'
    for that.

    --gitlab-note needs a token with the scope 'api' in GITLAB_TOKEN. It edits its own note
    and creates none if nothing changes.
    """
    if gitlab_note:
        from vmrag_link.ops.report import comment, comment_data, gitlab

        request = gitlab.MergeRequest.of()
    written = html or summary or gitlab_note or invocation.as_json
    printed = summary == _STDOUT or (output.goes_to_file() and not written)
    if printed and invocation.as_json:
        raise UsageInvalid("Standard output takes one format.", hint="Name a file instead of `-`.")
    page_file, summary_file = (each and invocation.directory / each for each in (html, None if printed else summary))
    for file in filter(None, (page_file, summary_file)):
        require_place(file, invocation.directory)
    if page_file:
        jinja_page.require()
    with (
        invocation.workspace() as ws,
        gather(ws, NamedEnd(base), NamedEnd(head), past=past) as report,
    ):
        if page_file:
            write_text(page_file, jinja_page.page(report))
        if summary_file:
            write_text(summary_file, [markdown(report)])
        if gitlab_note:
            data = comment_data.data_of(request.number, report.summary, report.summary.head.hash)
            text = comment.comment(data, request.job_page, request="merge request")
            outcome = request.settle(text, speaks=data.speaks)
            output.complain(f"The note on the merge request: {outcome}.")
        if printed and invocation.verbosity >= 0:
            output.print_exactly(markdown(report))
        elif invocation.as_json:
            invocation.emit(report.full())
        else:
            invocation.page(ws, _lines(report.summary))


def _lines(report: ReportSummary) -> Iterator[str]:
    yield from (output.style(sentence, bold=True) for sentence in verdict(report).sentences)
    yield output.style(basis(report), dim=True)
    yield from _queries(report.queries)
    yield from _documents(report)
    yield from _revisions("+", report.gained)
    yield from _revisions("-", report.lost)
    for finding in report.findings:
        colour = "red" if finding.level == "error" else "cyan"
        yield f"{output.style(finding.code, fg=colour)}  {finding.message}"
        yield from [f"{_INDENT}{finding.hint}"] if finding.hint else []


def _revisions(sign: str, found: RevisionList) -> Iterator[str]:
    for each in found.shown[:_REVISIONS]:
        by = f"  ({pinned_by(each)})" if each.commits else ""
        yield f"{sign} {output.style(each.revision[:7], fg='yellow')} {' '.join(told(each, found).split())}{output.style(by, dim=True)}"
    if more := found.total - len(found.shown[:_REVISIONS]):
        yield f"{sign} {plural(more, 'more revision')}"


def _documents(report: ReportSummary) -> Iterator[str]:
    for collection in report.collections:
        letter, colour = ("M", "yellow") if collection.kind == "modified" else (collection.kind[0].upper(), "cyan")
        yield f" {output.style(letter, fg=colour)}  {collection.name}/ (the collection's settings)"
    width = max((len(_names(document)) for document in report.documents), default=0)
    for line in report.documents:
        letter, colour = _MARKS[line.kind]
        words = f"+{line.words.inserted} -{line.words.deleted}{hidden_suffix(line.words)}"
        yield f" {output.style(letter, fg=colour)}  {_names(line).ljust(min(width, _WIDTH))} | {words}"
    for files in report.files:
        yield f"    {files.collection}: {plural(files.total, 'file')} of code"
    if report.documents:
        size = report.size
        chunks = f"; chunks {grown(size.chunks)}" if size.chunks else ""
        words = f"{plural(report.words.inserted, 'word')} inserted(+), {report.words.deleted} deleted(-){hidden_suffix(report.words)}"
        yield f"{words}; documents {grown(size.documents)}; {size.characters.grown:+,} characters{chunks}"


def _names(line: DocumentLine) -> str:
    name = documents_name(line)
    return f"{line.shown_old_name} -> {name}" if line.shown_old_name else name


def _queries(queries: ComparedQueries) -> Iterator[str]:
    answers = answers_by_line(queries)
    for each in listed(queries):
        yield from _describe_query(each, text_that_differs(answers.get(each.line), queries), queries)
    for letter, colour, some in (("A", "green", queries.added), ("D", "red", queries.removed)):
        for query in some:
            yield f" {output.style(letter, fg=colour)}  golden query: {' '.join(query.query.split())}"
            yield from (f"{_INDENT}{each}" for each in query.missed)


def _describe_query(query: QueryChange, differs: str, queries: ComparedQueries) -> Iterator[str]:
    yield f"{output.style('?', fg='magenta')} {' '.join(query.query.split())}"
    for said in (query.problem_before, query.problem_after, *query.missed_after, differs):
        if said:
            yield f"{_INDENT}{said}"
    for ranking_change in ranking_changes(query.before, query.after):
        if ranking_change.rank_before != ranking_change.rank_after:
            yield f"{_INDENT}{replace(ranking_change, document=ranked_name(ranking_change.document, queries))}"


_WIDTH = 60
"""Columns of a name; longer ones shift only their own numbers."""
