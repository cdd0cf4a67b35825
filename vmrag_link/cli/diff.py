"""`vmrag diff`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from vmrag_link import terminal_text, worddiff
from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation, described
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import plural
from vmrag_link.models import ChangeKind
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
@click.option("--only", metavar="COLLECTION[/DOC]", help="Only this collection, or this document.")
def command(
    invocation: Invocation, *, old: str | None, new: str | None, detail: word_diff.Detail | None, only: str | None
) -> None:
    """Show what differs between two places: git refs, revisions, branches of the knowledge base, or
    WORKING.

    Without arguments: the uncommitted documents. Changed texts are compared word by word:
    [-removed-]{+added+}; equal text far from a change is left out.
    """
    with invocation.workspace() as ws:
        report = word_diff.word_diff(ws, old, new, only=only, detail=detail or "text")
    lines = {"names": _names, "stat": _stat, "text": _changes}
    invocation.emit(report, lines[detail or "text"](report))


def _names(report: DiffReport) -> list[str]:
    return [f"{each.collection}/{each.doc_id}" for each in report.documents]


def _changes(report: DiffReport) -> Iterator[str]:
    yield from _collections(report)
    for name, each in zip(_names(report), report.documents, strict=True):
        yield _headline(each.kind, name)
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
