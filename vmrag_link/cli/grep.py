"""`vmrag grep`: find the lines that a regular expression matches."""

from __future__ import annotations

from collections.abc import Iterator

import click

from vmrag_link import terminal_text
from vmrag_link.cli import answering, output, passage_view
from vmrag_link.cli.base import Invocation, format_title
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, OK, plural
from vmrag_link.workspace.documents import grep as operation
from vmrag_link.workspace.documents.grep import GrepReport, MatchedDocument, Pattern
from vmrag_link.workspace.follow import provenance

_BREAK = output.style_text("--", dim=True)


@vmrag_command("grep")
@click.argument("pattern")
@click.option("-F", "--fixed-strings", "fixed", is_flag=True, help="PATTERN is a fixed text, not a regular expression.")
@click.option("-i", "--ignore-case", is_flag=True, help="Ignore letter case.")
@click.option("-l", "shown", flag_value="names", help="Print only the names of the documents.")
@click.option("-c", "shown", flag_value="counts", help="Print only the number of matching lines of each document.")
@click.option(
    "-U",
    "--context",
    type=click.IntRange(0, 10_000),
    default=0,
    metavar="N",
    help="Also print N lines above and below.",
)
@click.option(
    "--collection",
    multiple=True,
    help="Only this collection. Can be repeated. Default: all except chats and thoughts.",
)
@click.option(
    "--at", "ref", metavar="REF", help="Search a git ref, a revision or a KB branch (default: the working tree)."
)
@answering.strict_option
def command(
    invocation: Invocation,
    *,
    pattern: str,
    fixed: bool,
    ignore_case: bool,
    shown: str | None,
    context: int,
    collection: tuple[str, ...],
    ref: str | None,
    strict: bool,
) -> int:
    """Find the lines that a regular expression matches.

    It searches text files that git tracks, and stored documents, uncommitted ones included. PATTERN
    is a Python regular expression for one line. If nothing matches, the exit code is 1.
    """
    with invocation.workspace() as ws:
        searched = Pattern(pattern, fixed=fixed, ignore_case=ignore_case)
        report = operation.grep_texts(ws, searched, collections=collection, ref=ref, context=context)
        other_case = operation.count_without_case(ws, searched, report, collections=collection, ref=ref)
        provenance.refuse_outdated(ws, report.notes, strict=strict)
    answering.emit_answer(
        invocation,
        report,
        _format_report(report, shown, parted=context > 0),
        [*report.notes, *report.warnings],
    )
    if other_case:
        output.print_warning(f"-i finds {plural(other_case, 'line')}", "hint:")
    return OK if report.documents else FAILED_CHECK


def _format_report(report: GrepReport, shown: str | None, *, parted: bool) -> Iterator[str]:
    for number, document in enumerate(sorted(report.documents, key=lambda match: match.name)):
        name = output.style_text(terminal_text.escape_line(document.name), bold=True)
        if shown == "names":
            yield f"{name}{format_title(document.doc_id, document.title)}"
        elif shown == "counts":
            yield f"{name}:{document.count}"
        else:
            if parted and number:
                yield _BREAK
            yield from _format_document(document, name, parted=parted)


def _format_document(document: MatchedDocument, name: str, *, parted: bool) -> Iterator[str]:
    """Yield the lines of a document in the form of grep.

    They are `NAME:LINE:TEXT`, or `NAME-LINE-TEXT` for a line of context. With `parted`, a break
    separates lines that are not consecutive.
    """
    before = 0
    for line in document.lines:
        if parted and 0 < before < line.number - 1:
            yield _BREAK
        mark = ":" if line.matched else "-"
        number = output.style_text(str(line.number), fg="green")
        yield f"{name}{mark}{number}{mark}{passage_view.shorten_line(line.text, line.matches)}"
        before = line.number
