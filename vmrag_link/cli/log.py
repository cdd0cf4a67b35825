"""`vmrag log`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from vmrag_link.cli import diff_view, log_view, output
from vmrag_link.cli.base import Invocation, described
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.diff_view import Form
from vmrag_link.cli.graph import Graph
from vmrag_link.errors import UsageInvalid, quoted
from vmrag_link.ops.history import file_history, history
from vmrag_link.ops.history.file_history import FileHistory
from vmrag_link.ops.history.history import LogStep, Revisions
from vmrag_link.workspace import Workspace

USUAL = 20


@vmrag_command("log")
@click.argument("places", nargs=-1, metavar="[REF | A..B | A...B] [DOC]")
@click.option("-n", "limit", type=click.IntRange(1), help=f"How many revisions (default: {USUAL}).")
@click.option("--oneline", is_flag=True, help="One line a revision, with the git commits that pin it.")
@click.option("--graph", is_flag=True, help="Draw the lines of descent beside it.")
@click.option("-p", "--patch", is_flag=True, help="With what each revision changed, word by word.")
@diff_view.form_options
def command(
    invocation: Invocation,
    *,
    places: tuple[str, ...],
    limit: int | None,
    oneline: bool,
    graph: bool,
    patch: bool,
    form: Form | None,
) -> None:
    """Show the history of the knowledge base, newest first, with the git commits that pin each
    revision.

    Of this work tree, or of REF: a git ref, a revision, or a branch of the knowledge base. A..B:
    what B has and A has not. A...B: what one of them has and the other has not. With DOC:
    the revisions that changed this document, by whatever name it went; of a document of a source
    the commits of git that changed the file.

    In parentheses stands what of the code is at a revision: HEAD, branches, and tags, which are the
    tags of the knowledge, too.
    """
    shown: Form | None = form or ("text" if patch else None)
    detail = diff_view.DETAILS[shown] if shown else None
    with invocation.workspace() as ws:
        file = file_history.file_history(ws, places, limit=limit or USUAL)
        if file:
            _refuse_graph(file, graph=graph)
            if invocation.as_json:
                invocation.emit({"commits": list(file.reports(detail))})
            else:
                invocation.page(ws, _file_lines(file, oneline=oneline, form=shown))
        else:
            with _naming_files(ws, places):
                found = history.history(ws, places, limit=limit or USUAL)
            if invocation.as_json:
                invocation.emit({"revisions": list(found.reports(detail))})
            else:
                invocation.page(ws, _lines(found, oneline=oneline, graph=Graph() if graph else None, form=shown))
    if (file or found).more and limit is None and not invocation.as_json and invocation.verbosity >= 0:
        output.complain(f"There are older {'commits' if file else 'revisions'}: vmrag log -n {10 * USUAL}")


def _naming_files(ws: Workspace, places: tuple[str, ...]) -> contextlib.AbstractContextManager[None]:
    """As `known.naming_files`, where something is named."""
    if not places:
        return contextlib.nullcontext()
    from vmrag_link.ops.history import known

    return known.naming_files(ws, places[-1])


def _refuse_graph(file: FileHistory, *, graph: bool) -> None:
    if graph:
        raise UsageInvalid(
            f"{file.name} is a file of the code, whose history is git's; --graph draws that of the knowledge base.",
            hint=f"git log --graph --oneline -- {quoted(file.name.doc_id)}",
        )


def _file_lines(found: FileHistory, *, oneline: bool, form: Form | None) -> Iterator[str]:
    for step in found.steps:
        yield from log_view.commit_oneline(step.info) if oneline else log_view.commit_entry(step.info)
        if form:
            made = found.diff(step, diff_view.DETAILS[form])
            yield from ("", *diff_view.lines(made, form), *diff_view.notes(made, form), "")


def _lines(found: Revisions, *, oneline: bool, graph: Graph | None, form: Form | None) -> Iterator[str]:
    for step in found.steps:
        lines = _step(found, step, oneline=oneline, form=form)
        yield from graph.drawn(step.info.revision, step.parents, lines) if graph else lines


def _step(found: Revisions, step: LogStep, *, oneline: bool, form: Form | None) -> Iterator[str]:
    if oneline:
        yield from log_view.oneline(step.info)
    else:
        yield from log_view.entry(step.info, _said(found, step))
    if form:
        yield from ("", *diff_view.lines(found.diff(step, diff_view.DETAILS[form]), form), "")


def _said(found: Revisions, step: LogStep) -> str:
    """What the revision changed, or what became of the document that was asked for."""
    change = step.document
    if change is None:
        return described(found.changes(step))
    renamed = change.before and change.after and change.before.key != change.after.key
    return f"{'/'.join(change.before.key)} -> {'/'.join(change.key)}" if change.before and renamed else change.kind
