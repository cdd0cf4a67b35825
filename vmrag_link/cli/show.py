"""`vmrag show`: print a document, a file, or the changes of a revision."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from vmrag_link.cli import diff_view, history_view, output
from vmrag_link.cli.base import Invocation, name_from_top
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.history_view import Form
from vmrag_link.cli.terminal import open_pager
from vmrag_link.errors import UsageInvalid
from vmrag_link.ops import show as operation
from vmrag_link.ops.show import ShownRevision, ShowReport
from vmrag_link.ops.stores import stores
from vmrag_link.workspace import Workspace


@vmrag_command("show")
@click.argument("shown", required=False, metavar="[[REF:][COLLECTION/]DOC | REF]")
@history_view.form_options
@click.option("--raw", is_flag=True, help="Print the exact bytes: escape nothing, and add no final line end.")
def command(invocation: Invocation, *, shown: str | None, form: Form | None, raw: bool) -> None:
    """Print a document, a file, or the changes of a revision.

    It prints the text of a document or of a text file that git tracks, from the working tree
    or from REF: a git ref, a revision or a KB branch. If the argument is a REF alone, it
    prints the revision: message, author, date, git commits that pin it, and changes.

    COLLECTION is optional if the document's id is unique. If a document's name looks like a
    REF, write WORKING:COLLECTION/DOC for the document, or refs/heads/NAME for the ref.

    In a pipe or a file, the output has the exact bytes of the document. On a terminal, control and
    invisible characters are escaped.
    """
    with invocation.workspace() as ws:
        shown = name_from_top(ws, invocation.directory, shown) if shown else None
        store = stores.find_store(ws, shown.partition("/")[0]) if shown else ws
        shown_item = (
            operation.show_stored(store, shown) if shown and store is not ws else operation.show_name(ws, shown)
        )
        if isinstance(shown_item, ShowReport):
            if form:
                raise UsageInvalid(
                    f"--stat and --name-only need a revision, but {shown_item.collection}/{shown_item.doc_id} is a document.",
                    hint="run 'vmrag log COLLECTION/DOC --stat'",
                )
            _show_document(invocation, ws, shown_item, raw=raw)
        elif invocation.as_json:
            (report,) = shown_item.history.list_reports(history_view.DETAILS[form or "text"])
            invocation.emit_report(report)
        else:
            invocation.print_paged(ws, _format_revision(shown_item, form or "text"))


def _show_document(invocation: Invocation, ws: Workspace, report: ShowReport, *, raw: bool) -> None:
    if invocation.as_json or invocation.is_quiet:
        invocation.emit_report(report)
        return
    with open_pager(ws.places):
        exact = output.print_exactly(report.content, raw=raw, end_line=not raw)
    if not exact and not sys.stdout.isatty():
        output.print_warning(
            "the text was escaped for the job's log; run 'vmrag show --raw' to print its exact bytes", "warning:"
        )


def _format_revision(revision: ShownRevision, form: Form) -> Iterator[str]:
    yield from history_view.format_full_revision(revision.step.info)
    yield from diff_view.format_diff(revision.history.diff_step(revision.step, history_view.DETAILS[form]), form)
