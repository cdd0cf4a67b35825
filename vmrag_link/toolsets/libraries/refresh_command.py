"""`vmrag refresh`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import NEXT_COMMIT, Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, RemoteNotTrusted, plural
from vmrag_link.ops.history.word_diff import hidden_suffix
from vmrag_link.toolsets.libraries import refresh as operation
from vmrag_link.toolsets.libraries.refresh import RefreshReport
from vmrag_link.toolsets.libraries.take_pages import TakenPage


@vmrag_command("refresh")
@click.argument("names", nargs=-1, metavar="[LIBRARY | [LIBRARY/]DOC | URL]...")
@click.option("--dry-run", is_flag=True, help="Say what changed, and store nothing.")
def command(invocation: Invocation, *, names: tuple[str, ...], dry_run: bool) -> int:
    """Ask again for the web pages of libraries, by default of all, and store those that changed.

    Servers are asked only for what changed since then. What is stored is uncommitted: 'vmrag diff'
    shows it word by word, 'vmrag commit' pins it. A page that is gone or cannot be fetched keeps
    its document; one of a host from which nobody took a page on this machine is not asked for. Exit
    code 1 if there is such a page.
    """
    with invocation.workspace() as ws:
        report = operation.refresh(ws, names, dry_run=dry_run)
    invocation.emit(report, _lines(report))
    return FAILED_CHECK if report.failed else 0


def _lines(report: RefreshReport) -> Iterator[str]:
    yield from page_lines(report.pages)
    if not report.pages:
        yield "No document of a library came from the web: vmrag import URL --library NAME"
        return
    yield f"{plural(report.replaced, 'page')} changed, {report.unchanged} unchanged, {report.failed} failed"
    hints = dict.fromkeys(each.hint for each in report.pages if each.code == RemoteNotTrusted.code)
    yield from (f"To ask such a host: {each}" for each in hints)
    if report.pending:
        yield f"warning: {report.pending}"
    if report.dry_run and report.replaced:
        yield "Nothing was stored. To store it: the same command without --dry-run"
    elif report.replaced:
        yield "To see what changed: vmrag diff"
        yield NEXT_COMMIT


def page_lines(pages: Iterable[TakenPage]) -> Iterator[str]:
    """A line for each page that is new, that changed, or that failed."""
    for each in pages:
        if each.status == "indexed":
            yield f"{output.style('A', fg='green')}  {each.url}"
        elif each.status == "replaced":
            words = f" | +{each.words.inserted} -{each.words.deleted}{hidden_suffix(each.words)}" if each.words else ""
            yield f"{output.style('M', fg='yellow')}  {each.url}{words}"
        elif each.status == "failed":
            yield f"{output.style('!', fg='red')}  {each.problem}"
