"""`vmrag log`: show the revisions and the git commits that pin them, with a graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING

import click

from vmrag_link.cli import history_view, output
from vmrag_link.cli.base import Invocation, name_from_top
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.history_view import Form
from vmrag_link.errors import GitReferenceMissing, NotInitialized, UsageInvalid, quoted
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.history import document_history
from vmrag_link.workspace.history.document_history import LogStep, Revisions

if TYPE_CHECKING:
    from vmrag_link.workspace.history.file_history import FileHistory
    from vmrag_link.workspace.history.word_diff import WordDiff

DEFAULT_LIMIT = 20
"""Number of revisions without the option `-n`."""

_WIDTH = 2
"""Characters of a column of the graph: one for the column, and one for lines to its neighbours."""


@vmrag_command("log")
@click.argument("places", nargs=-1, metavar="[REF | A..B | A...B] [DOC]")
@click.option("-n", "limit", type=click.IntRange(1), help="Maximum number of revisions (default: 20).")
@click.option("--oneline", is_flag=True, help="Print one line for each revision.")
@click.option("--graph", is_flag=True, help="Draw the graph of revisions.")
@click.option("-p", "--patch", is_flag=True, help="Show the changes of each revision word by word.")
@history_view.form_options
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
    """Show the revisions and the git commits that pin them.

    The newest is first. REF is a git ref, a revision or a KB branch (default: the working
    tree). A..B lists the revisions in B that are not in A, and A...B those in only one of
    them. HEAD, branches and tags at a revision are in parentheses.

    With DOC, the command lists the revisions that changed the document, also under earlier
    names. For a file of a source, it lists git commits.
    """
    patch_form: Form | None = form or ("text" if patch else None)
    detail = history_view.DETAILS[patch_form] if patch_form else None
    with invocation.workspace() as ws:
        places = tuple(name_from_top(ws, invocation.directory, place) for place in places)
        file = _find_file_history(ws, places, limit=limit or DEFAULT_LIMIT) if places else None
        if file:
            _refuse_graph(file, graph=graph)
            moved = "" if invocation.as_json else _find_stored_history(ws, file)
            if invocation.as_json:
                invocation.emit_report({"commits": list(file.list_reports(detail))})
            else:
                invocation.print_paged(ws, _file_lines(file, oneline=oneline, form=patch_form))
        else:
            with _naming_files(ws, places):
                revisions = document_history.list_history(ws, places, limit=limit or DEFAULT_LIMIT)
            if invocation.as_json:
                invocation.emit_report({"revisions": list(revisions.list_reports(detail))})
            else:
                invocation.print_paged(
                    ws, _format_revisions(revisions, oneline=oneline, graph=Graph() if graph else None, form=patch_form)
                )
            moved = "" if invocation.as_json else _find_note_history(ws, revisions)
        if moved:
            output.print_warning(f"for its history as {'a stored document' if file else 'a note'}: {moved}", "hint:")
    if (file or revisions).more and limit is None and not invocation.as_json and not invocation.is_quiet:
        shown_kind = "commits" if file else "revisions"
        output.print_warning(f"run 'vmrag log -n {10 * DEFAULT_LIMIT}' to see older {shown_kind}", "hint:")


def _find_file_history(ws: Workspace, places: tuple[str, ...], *, limit: int) -> FileHistory | None:
    from vmrag_link.workspace.history import file_history

    return file_history.file_history(ws, places, limit=limit)


def _find_stored_history(ws: Workspace, file: FileHistory) -> str:
    """Return the command that shows the history of a note as a stored document."""
    if not file.is_note:
        return ""
    from vmrag_link.workspace.history.moved_history import find_stored_revision

    revision = find_stored_revision(ws, file.name)
    return f"vmrag log {revision} {quoted(str(file.name))}" if revision else ""


def _find_note_history(ws: Workspace, revisions: Revisions) -> str:
    """Return the command that shows the history of a stored document as a note."""
    changes = [step.document for step in revisions.steps if step.document]
    header = (changes[0].after or changes[0].before) if changes else None
    if header is None:
        return ""
    from vmrag_link.workspace.history.document_names import DocumentName
    from vmrag_link.workspace.history.moved_history import find_note_path

    path = find_note_path(ws, DocumentName(*header.key))
    return f"git log -- {quoted(path)}" if path else ""


@contextlib.contextmanager
def _naming_files(ws: Workspace, places: tuple[str, ...]) -> Iterator[None]:
    """Let errors about names in the block also mention files (`named_places`)."""
    named = places[-1] if places else ""
    naming: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if named:
        from vmrag_link.workspace.history import named_places, ranges

        if not ranges.parse_range(named):
            naming = named_places.explain_missing_file(ws, named)
    try:
        with naming:
            yield
    except GitReferenceMissing as error:
        if named and (ws.places.top / named).is_file():
            error.hint = f"run 'git log -- {quoted(named)}' to see its commits, because no source has this file"
        raise
    except NotInitialized as error:
        if ws.stores_nothing and ws.sources.configured:
            error.hint = f"run 'vmrag log {(f'{quoted(named)} ' if named else '')}DOC' with a file or a note as DOC"
        raise


def _refuse_graph(file: FileHistory, *, graph: bool) -> None:
    if graph:
        raise UsageInvalid(
            f"{file.name} is a tracked file, but --graph draws only the history of the knowledge base.",
            hint=f"run 'git log --graph --oneline -- {quoted(file.name.doc_id)}'",
        )


def _file_lines(file_history: FileHistory, *, oneline: bool, form: Form | None) -> Iterator[str]:
    for step in file_history.steps:
        yield from (
            history_view.format_commit_line(step.info) if oneline else history_view.format_commit_entry(step.info)
        )
        if form:
            yield from _diff_lines(file_history.diff_step(step, history_view.DETAILS[form]), form)


def _format_revisions(revisions: Revisions, *, oneline: bool, graph: Graph | None, form: Form | None) -> Iterator[str]:
    for step in revisions.steps:
        lines = _format_step(revisions, step, oneline=oneline, form=form)
        yield from graph.draw_lines(step.info.revision, step.parents, lines) if graph else lines


def _format_step(revisions: Revisions, step: LogStep, *, oneline: bool, form: Form | None) -> Iterator[str]:
    if oneline:
        yield from history_view.format_revision_line(step.info)
    else:
        yield from history_view.format_revision_entry(step.info, _change_text(revisions, step))
    if form:
        yield from _diff_lines(revisions.diff_step(step, history_view.DETAILS[form]), form)


def _diff_lines(diff: WordDiff, form: Form) -> Iterator[str]:
    from vmrag_link.cli import diff_view  # loads the code that compares texts

    yield from ("", *diff_view.format_diff(diff, form), *diff_view.format_diff_notes(diff, form), "")


def _change_text(revisions: Revisions, step: LogStep) -> str:
    """Return what the revision changed, or what happened to the requested document."""
    change = step.document
    if change is None:
        return revisions.count_changes(step).text
    renamed = change.before and change.after and change.before.key != change.after.key
    return f"{'/'.join(change.before.key)} -> {'/'.join(change.key)}" if change.before and renamed else change.kind


class Graph:
    """The graph of a log, drawn with characters like git's. Call `draw_lines` for each revision,
    children first.

    A column is a line of descent that waits for a revision. Each revision takes its column, and
    leaves it to its first parent. Further parents get columns to its right, unless a column waits
    for them already. If two columns wait for the same revision, the right one is led into the left
    one.
    """

    def __init__(self) -> None:
        self._columns: list[str] = []

    def draw_lines(self, revision: str, parents: Sequence[str], lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines about a revision, with the graph before them."""
        if revision not in self._columns:
            self._columns.append(revision)
        at = self._columns.index(revision)
        first = _draw_row(len(self._columns), {at * _WIDTH: "*"})
        edges = list(self._lead_to_parents(at, parents))
        rows = chain([first, *edges], repeat(_draw_row(len(self._columns))))
        line_count = 0
        for line, row in zip(lines, rows, strict=False):
            line_count += 1
            yield f"{row:<{len(first)}} {line}".rstrip()
        yield from (edge.rstrip() for edge in edges[max(0, line_count - 1) :])

    def _lead_to_parents(self, at: int, parents: Sequence[str]) -> Iterator[str]:
        """Yield the rows between a revision and the next one."""
        for parent in reversed(parents[1:]):
            if parent in self._columns:
                yield from _draw_crossing(len(self._columns), at, self._columns.index(parent))
            else:
                yield self._insert_column(at + 1, parent)
        if not parents:
            yield from self._remove_column(at, at)
            return
        self._columns[at] = parents[0]
        if self._columns.count(parents[0]) > 1:
            first, second = (number for number, column in enumerate(self._columns) if column == parents[0])
            yield from self._remove_column(second, first)

    def _insert_column(self, at: int, parent: str) -> str:
        """Return the row that adds a column, and moves the columns to the right of it by one."""
        moved = {number * _WIDTH + 1: "\\" for number in range(at - 1, len(self._columns))}
        self._columns.insert(at, parent)
        return _draw_row(at, moved)

    def _remove_column(self, at: int, into: int) -> Iterator[str]:
        """Yield the rows that lead a column into another one to its left, or end it (`into` is the
        column).

        The columns to the right of it move to the left.
        """
        others = range(at + 1, len(self._columns))
        moving = {number * _WIDTH - 1: "/" for number in others}
        del self._columns[at]
        if into == at:
            if moving:
                yield _draw_row(at, moving)
            return
        yield _draw_row(at, {at * _WIDTH - 1: "/", **moving})
        for number in range(at - 1, into, -1):
            yield _draw_row(len(self._columns), {number * _WIDTH - 1: "/"})


def _draw_crossing(columns: int, start: int, end: int) -> Iterator[str]:
    """Yield the rows that lead from one column to another one, across those between them."""
    if start < end:
        yield from (_draw_row(columns, {number * _WIDTH + 1: "\\"}) for number in range(start, end))
    else:
        yield from (_draw_row(columns, {number * _WIDTH - 1: "/"}) for number in range(start, end, -1))


def _draw_row(columns: int, marks: dict[int, str] | None = None) -> str:
    """Return a row of straight columns, with other characters at some positions."""
    cells = [" "] * max(columns * _WIDTH, max(marks or {0: ""}) + 1)
    cells[: columns * _WIDTH : _WIDTH] = "|" * columns
    for place, mark in (marks or {}).items():
        cells[place] = mark
    return "".join(cells).rstrip()
