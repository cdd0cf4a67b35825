"""`vmrag diff`: show the documents that differ between two places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from vmrag_link.cli import diff_view, history_view, output
from vmrag_link.cli.answering import format_side_by_side
from vmrag_link.cli.base import Invocation, name_from_top
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.diff_view import INDENT
from vmrag_link.cli.history_view import Form
from vmrag_link.errors import UsageInvalid, plural

if TYPE_CHECKING:
    from vmrag_link.ops.diff_queries import QueriesDiff


@vmrag_command("diff")
@click.argument("places", nargs=-1, metavar="[OLD [NEW] | OLD..NEW | OLD...NEW] [DOC]")
@history_view.form_options
@click.option("--files", "code", is_flag=True, help="Show the differences of code files too.")
@click.option("--queries", is_flag=True, help="Compare the answers to .vmrag/queries.yaml instead.")
@click.option(
    "--only", multiple=True, metavar="NAME", help="Only this document, folder, collection or pattern. Can be repeated."
)
def command(
    invocation: Invocation,
    *,
    places: tuple[str, ...],
    form: Form | None,
    code: bool,
    queries: bool,
    only: tuple[str, ...],
) -> None:
    """Show the documents that differ between two revisions.

    OLD and NEW are git refs, revisions, KB branches or WORKING. Without arguments, the command
    shows uncommitted documents. OLD..NEW equals OLD NEW. OLD...NEW compares NEW with the
    merge base of both. Add names of documents to compare only those. To compare two documents,
    write REF:DOC DOC or REF:DOC REF:DOC.

    Tracked files are also compared, but only between two git refs, or between HEAD and the working
    tree. Changed code files are only counted. Name them or use --files to see the changes.

    Texts are compared word by word: [-removed-]{+added+}.
    """
    from vmrag_link.workspace.history import compare, ranges

    if queries:
        from vmrag_link.ops.diff_queries import diff_queries

        if form or only or code:
            raise UsageInvalid(
                "--queries cannot be combined with --stat, --name-only, --name-status, --files or --only.",
                hint="run 'vmrag diff --queries'",
            )
        with invocation.workspace() as ws:
            old, new = ranges.split_range(ws, places)
            changed_queries = diff_queries(ws, old, new)
        invocation.emit_report(
            changed_queries,
            _format_answers(changed_queries, (old or changed_queries.old[:7], new or changed_queries.new)),
        )
        return
    with invocation.workspace() as ws:
        places = tuple(name_from_top(ws, invocation.directory, place) for place in places)
        diff = compare.compare_places(ws, places, only=only, detail=history_view.DETAILS[form or "text"], code=code)
        if invocation.as_json:
            invocation.emit_report(diff.form_report())
        else:
            invocation.print_paged(ws, diff_view.format_diff(diff, form or "text"))
            if not invocation.is_quiet:
                for note in diff_view.format_diff_notes(diff, form or "text"):
                    output.print_warning(note)


def _format_answers(report: QueriesDiff, names: tuple[str, str]) -> Iterator[str]:
    changed = [query for query in report.queries if query.change == "ranking"]
    for change in changed:
        query, place = " ".join(change.query.split()), f"{report.file}:{change.line}"
        yield f"{output.style_text(query, bold=True)}  {output.style_text(place, dim=True)}"
        for name, problem in zip(names, (change.problem_before, change.problem_after), strict=True):
            if problem:
                yield f"{INDENT}{name}: {problem}"
        yield from format_side_by_side(names, change.before, change.after, report.names)
    scores = sum(query.change == "scores" for query in report.queries)
    same = len(report.queries) - len(changed) - scores
    yield f"{plural(len(report.queries), 'query')}: {len(changed)} ranked differently, {scores} with other scores only, {same} alike"
