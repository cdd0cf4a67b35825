"""`vmrag diff` and `blame`: what differs between two places, and who wrote what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from vmrag_link.cli import diff_view, history_view, output
from vmrag_link.cli.answering import side_by_side
from vmrag_link.cli.base import Invocation, name_from_top
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.diff_view import INDENT
from vmrag_link.cli.history_view import SHORT, SHORT_COMMIT, Form
from vmrag_link.errors import UsageInvalid, plural

if TYPE_CHECKING:
    from vmrag_link.ops.checks.diff_queries import QueriesDiff
    from vmrag_link.ops.history.blame import BlameReport
    from vmrag_link.ops.history.file_history import BlamedCommit, FileBlame
    from vmrag_link.ops.history.log import PinnedRevision


@vmrag_command("diff")
@click.argument("places", nargs=-1, metavar="[OLD [NEW] | OLD..NEW | OLD...NEW] [DOC]")
@history_view.form_options
@click.option("--files", "code", is_flag=True, help="Files of code in full, too, which are counted otherwise.")
@click.option("--queries", is_flag=True, help="What differs in the answers to .vmrag/queries.yaml instead.")
@click.option(
    "--only", multiple=True, metavar="NAME", help="Only this document, folder, collection or pattern; can be repeated."
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
    """Show what differs between two places: git refs, revisions, branches of the knowledge base, or
    WORKING.

    Without arguments: the uncommitted documents. OLD..NEW is OLD NEW; OLD...NEW is what NEW changed
    since it left OLD, from their merge base. Behind them: the documents to compare, as 'vmrag rm'
    names them. REF:DOC and [REF:]DOC compare two documents.

    Documents of sources are files: those of HEAD and of the work tree or, where OLD and NEW are git
    refs, those of their commits, each by its own settings. A revision of the knowledge base has
    none, so that none are compared with it. Files of code are counted; --files, or their names,
    show them.

    Changed texts are compared word by word: [-removed-]{+added+}; equal text far from a change is
    left out. With --queries: the rankings at both places, side by side.
    """
    from vmrag_link.ops.history import compare, ranges

    if queries:
        from vmrag_link.ops.checks.diff_queries import diff_queries

        if form or only or code:
            raise UsageInvalid(
                "--queries shows answers; --stat, --name-only, --name-status, --files and --only are about documents.",
                hint="vmrag diff --queries",
            )
        with invocation.workspace() as ws:
            old, new = ranges.sides(ws, places)
            found = diff_queries(ws, old, new)
        invocation.emit(found, _answers(found, (old or found.old[:7], new or found.new)))
        return
    with invocation.workspace() as ws:
        places = tuple(name_from_top(ws, invocation.directory, place) for place in places)
        diff = compare.compare(ws, places, only=only, detail=history_view.DETAILS[form or "text"], code=code)
        if invocation.as_json:
            invocation.emit(diff.report())
        else:
            invocation.page(ws, diff_view.diff_lines(diff, form or "text"))
            if invocation.verbosity >= 0:
                for note in diff_view.diff_notes(diff, form or "text"):
                    output.complain(note)


def _answers(report: QueriesDiff, names: tuple[str, str]) -> Iterator[str]:
    changed = [each for each in report.queries if each.change == "ranking"]
    for each in changed:
        yield f"{output.style(' '.join(each.query.split()), bold=True)}  {output.style(f'{report.file}:{each.line}', dim=True)}"
        for name, problem in zip(names, (each.problem_before, each.problem_after), strict=True):
            if problem:
                yield f"{INDENT}{name}: {problem}"
        yield from side_by_side(names, each.before, each.after, report.names)
    scores = sum(each.change == "scores" for each in report.queries)
    same = len(report.queries) - len(changed) - scores
    yield f"{plural(len(report.queries), 'query')}: {len(changed)} ranked differently, {scores} with other scores only, {same} alike"


_LONGEST = 20
"""Characters of an author's name."""

_DAY = len("2026-01-31")

NOT_COMMITTED = "not committed"


@vmrag_command("blame")
@click.argument("document", metavar="[REF:][COLLECTION/]DOC")
def blame(invocation: Invocation, *, document: str) -> None:
    """Show for each line of a document which revision wrote it, and the first git commit that
    pinned that; WORKING for what is uncommitted.

    Of this work tree, or at REF: a git ref, a revision, or a branch of the knowledge base. Lines
    are followed through merges, and through another name of the document.

    Of a document of a source: which commit of git wrote each line of the file.
    """
    from vmrag_link.ops.history import blame as operation
    from vmrag_link.ops.history import file_history, known

    with invocation.workspace() as ws:
        document = name_from_top(ws, invocation.directory, document)
        if file := known.find_file(ws, document):
            blamed = file_history.blame_file(ws, file)
            if invocation.as_json:
                invocation.emit(blamed)
            else:
                invocation.page(ws, _blamed_file_lines(blamed))
            return
        report = operation.blame(ws, document)
        if invocation.as_json:
            invocation.emit(report)
        else:
            invocation.page(ws, _blame_lines(report))


def _blame_lines(report: BlameReport) -> Iterator[str]:
    revisions = {line.revision: line for line in report.revisions}
    own = f"{report.collection}/{report.doc_id}"
    beside = [_beside(revisions.get(line.revision)) for line in report.lines]
    width = max(map(len, beside), default=0)
    moved = any(line.name != own for line in report.lines)
    longest = max((len(line.name) for line in report.lines), default=0)
    digits = len(str(len(report.lines)))
    for number, (line, who) in enumerate(zip(report.lines, beside, strict=True), start=1):
        name = f" {line.name:<{longest}}" if moved else ""
        yield f"{output.style(line.revision[:SHORT], fg='yellow')}{name} {who:<{width}} {number:>{digits}}) {line.text}"


def _blamed_file_lines(report: FileBlame) -> Iterator[str]:
    known_commits = {blamed.commit: blamed for blamed in report.commits}
    doc_id = report.doc_id
    paths = [line.name.removeprefix(f"{report.collection}/") for line in report.lines]
    rows = [
        (line, path, _writer(known_commits.get(line.commit))) for line, path in zip(report.lines, paths, strict=True)
    ]
    width = max((len(who) for *_, who in rows), default=0)
    longest = max((len(path) for path in paths if path != doc_id), default=0)
    digits = len(str(len(report.lines)))
    for number, (blamed, path, who) in enumerate(rows, start=1):
        name = f" {path:<{max(longest, len(doc_id))}}" if longest else ""
        commit = output.style(blamed.commit[:SHORT_COMMIT].ljust(SHORT_COMMIT), fg="yellow")
        yield f"{commit}{name} {who:<{width}} {number:>{digits}}) {blamed.text}"


def _writer(info: BlamedCommit | None) -> str:
    """The author of a commit, and the day."""
    return f"{_author(info.author)} {info.date[:_DAY]}" if info else NOT_COMMITTED


def _author(author: str) -> str:
    return author.partition("<")[0].strip()[:_LONGEST]


def _beside(info: PinnedRevision | None) -> str:
    """The code that pinned it first, its author, and the day."""
    if info is None:
        return NOT_COMMITTED
    commit = info.commits[-1].commit[:SHORT_COMMIT] if info.commits else "-" * SHORT_COMMIT
    return f"{commit} {_author(info.author)} {info.date[:_DAY]}"
