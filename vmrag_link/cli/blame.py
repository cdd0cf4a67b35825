"""`vmrag blame`: show the revision that wrote each line of a document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation, name_from_top
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.history_view import SHORT, SHORT_COMMIT

if TYPE_CHECKING:
    from vmrag_link.ops.blame import BlameReport
    from vmrag_link.workspace.history.file_history import BlamedCommit, FileBlame
    from vmrag_link.workspace.history.log import PinnedRevision


_MAX_AUTHOR_CHARS = 20
"""Maximum number of characters of an author's name."""


_DAY = len("2026-01-31")


NOT_COMMITTED = "not committed"


@vmrag_command("blame")
@click.argument("document", metavar="[REF:][COLLECTION/]DOC")
def command(invocation: Invocation, *, document: str) -> None:
    """Show the revision that wrote each line of a document.

    It also shows the first git commit that pins the revision. WORKING marks uncommitted
    lines. Lines are followed through merges and renames. Without REF, it reads the working
    tree. REF is a git ref, a revision or a KB branch.

    For a file of a source, it shows the git commit that wrote each line.
    """
    from vmrag_link.ops import blame as operation
    from vmrag_link.workspace.history import file_history, named_places

    with invocation.workspace() as ws:
        document = name_from_top(ws, invocation.directory, document)
        if file := named_places.find_file(ws, document):
            blamed = file_history.blame_file(ws, file)
            if invocation.as_json:
                invocation.emit_report(blamed)
            else:
                invocation.print_paged(ws, _blamed_file_lines(blamed))
            return
        report = operation.blame_document(ws, document)
        if invocation.as_json:
            invocation.emit_report(report)
        else:
            invocation.print_paged(ws, _blame_lines(report))


def _blame_lines(report: BlameReport) -> Iterator[str]:
    revisions = {line.revision: line for line in report.revisions}
    full_name = f"{report.collection}/{report.doc_id}"
    pin_texts = [_describe_pin(revisions.get(line.revision)) for line in report.lines]
    width = max(map(len, pin_texts), default=0)
    moved = any(line.name != full_name for line in report.lines)
    longest = max((len(line.name) for line in report.lines), default=0)
    digits = len(str(len(report.lines)))
    for number, (line, who) in enumerate(zip(report.lines, pin_texts, strict=True), start=1):
        name = f" {line.name:<{longest}}" if moved else ""
        yield f"{output.style_text(line.revision[:SHORT], fg='yellow')}{name} {who:<{width}} {number:>{digits}}) {line.text}"


def _blamed_file_lines(report: FileBlame) -> Iterator[str]:
    known_commits = {blamed.commit: blamed for blamed in report.commits}
    doc_id = report.doc_id
    paths = [line.name.removeprefix(f"{report.collection}/") for line in report.lines]
    rows = [
        (line, path, _describe_writer(known_commits.get(line.commit)))
        for line, path in zip(report.lines, paths, strict=True)
    ]
    width = max((len(who) for *_, who in rows), default=0)
    longest = max((len(path) for path in paths if path != doc_id), default=0)
    digits = len(str(len(report.lines)))
    for number, (blamed, path, who) in enumerate(rows, start=1):
        name = f" {path:<{max(longest, len(doc_id))}}" if longest else ""
        commit = output.style_text(blamed.commit[:SHORT_COMMIT].ljust(SHORT_COMMIT), fg="yellow")
        yield f"{commit}{name} {who:<{width}} {number:>{digits}}) {blamed.text}"


def _describe_writer(info: BlamedCommit | None) -> str:
    """Return the author and the day of a commit."""
    return f"{_describe_author(info.author)} {info.date[:_DAY]}" if info else NOT_COMMITTED


def _describe_author(author: str) -> str:
    return author.partition("<")[0].strip()[:_MAX_AUTHOR_CHARS]


def _describe_pin(info: PinnedRevision | None) -> str:
    """Return the first git commit that pins the revision, with its author and day."""
    if info is None:
        return NOT_COMMITTED
    commit = info.commits[-1].commit[:SHORT_COMMIT] if info.commits else "-" * SHORT_COMMIT
    return f"{commit} {_describe_author(info.author)} {info.date[:_DAY]}"
