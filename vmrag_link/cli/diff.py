"""`vmrag diff`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from vmrag_link import terminal_text, worddiff
from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation, described, title_beside
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.rankings import side_by_side
from vmrag_link.errors import UsageInvalid, plural
from vmrag_link.models import ChangeKind
from vmrag_link.ops.checks.diff_queries import QueriesDiff, diff_queries
from vmrag_link.ops.history import word_diff
from vmrag_link.ops.history.word_diff import DiffReport, Words
from vmrag_link.worddiff import Piece

MARKS = {"added": ("A", "green"), "modified": ("M", "yellow"), "removed": ("D", "red")}
COLOURS = {"delete": "red", "insert": "green", "omitted": "cyan"}
INDENT = "    "


@vmrag_command("diff")
@click.argument("old", required=False)
@click.argument("new", required=False)
@click.option("--stat", "detail", flag_value="stat", help="Only how many words each document gained and lost.")
@click.option("--name-only", "detail", flag_value="names", help="Only the names of the documents that differ.")
@click.option("--queries", is_flag=True, help="What differs in the answers to .vmrag/queries.yaml instead.")
@click.option("--only", metavar="COLLECTION[/DOC]", help="Only this collection, or this document.")
def command(
    invocation: Invocation,
    *,
    old: str | None,
    new: str | None,
    detail: word_diff.Detail | None,
    queries: bool,
    only: str | None,
) -> None:
    """Show what differs between two places: git refs, revisions, branches of the knowledge base, or
    WORKING.

    Without arguments: the uncommitted documents. Changed texts are compared word by word:
    [-removed-]{+added+}; equal text far from a change is left out. With --queries: the rankings at
    both places, side by side.
    """
    if queries:
        if detail or only:
            raise UsageInvalid(
                "--queries shows answers; --stat, --name-only and --only are about documents.",
                hint="vmrag diff --queries",
            )
        with invocation.workspace() as ws:
            found = diff_queries(ws, old, new)
        invocation.emit(found, _answers(found, (old or found.old[:7], new or found.new)))
        return
    with invocation.workspace() as ws:
        report = word_diff.word_diff(ws, old, new, only=only, detail=detail or "text")
    lines = {"names": _names, "stat": _stat, "text": _changes}
    invocation.emit(report, lines[detail or "text"](report))


def _answers(report: QueriesDiff, names: tuple[str, str]) -> Iterator[str]:
    changed = [each for each in report.queries if each.change == "ranking"]
    for each in changed:
        yield f"{output.style(' '.join(each.query.split()), bold=True)}  {output.style(f'{report.file}:{each.line}', dim=True)}"
        for name, problem in zip(names, (each.problem_before, each.problem_after), strict=True):
            if problem:
                yield f"{INDENT}{name}: {problem}"
        yield from side_by_side(names, each.before, each.after)
    scores = sum(each.change == "scores" for each in report.queries)
    same = len(report.queries) - len(changed) - scores
    yield f"{plural(len(report.queries), 'query')}: {len(changed)} ranked differently, {scores} with other scores only, {same} alike"


def _names(report: DiffReport) -> list[str]:
    return [f"{each.collection}/{each.doc_id}" for each in report.documents]


def _changes(report: DiffReport) -> Iterator[str]:
    yield from _collections(report)
    for name, each in zip(_names(report), report.documents, strict=True):
        yield _headline(each.kind, f"{name}{title_beside(each.doc_id, each.title)}")
        yield from _fields(each.fields)
        if each.text:
            yield from (f"{INDENT}{line}" if line else "" for line in terminal_text.lines(_render(each.text)))
    yield described(report.changes)


def _stat(report: DiffReport) -> Iterator[str]:
    yield from _collections(report)
    names = _names(report)
    width = max(map(len, names), default=0)
    for name, each in zip(names, report.documents, strict=True):
        words = each.words or Words()
        yield f"{_headline(each.kind, name.ljust(width))} | +{words.inserted} -{words.deleted}"
    total = report.words or Words()
    said = f"; {plural(total.inserted, 'word')} inserted(+), {total.deleted} deleted(-)" if report.documents else ""
    yield described(report.changes) + said


def _collections(report: DiffReport) -> Iterator[str]:
    for each in report.collections:
        yield _headline(each.kind, f"{each.name}/ (the collection's settings)")
        yield from _fields(each.fields)


def _fields(fields: Iterable[word_diff.FieldDiff]) -> Iterator[str]:
    for each in fields:
        yield f"{INDENT}{each.name}: {_render(worddiff.difference(each.before, each.after))}"


def _render(pieces: Iterable[Piece]) -> str:
    """The marks stay beneath the colours: they are all there is where the output is no terminal."""
    return worddiff.render(pieces, style=lambda op, text: output.style(text, fg=COLOURS[op]))


def _headline(kind: ChangeKind, name: str) -> str:
    letter, colour = MARKS[kind]
    return f"{output.style(letter, fg=colour)}  {name}"
