"""`vmrag blame`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.history_view import SHORT, SHORT_COMMIT
from vmrag_link.ops.history import blame, file_history, known
from vmrag_link.ops.history.blame import BlameReport
from vmrag_link.ops.history.file_history import BlamedCommit, FileBlame
from vmrag_link.ops.history.log import PinnedRevision

_LONGEST = 20
"""Characters of an author's name."""

_DAY = len("2026-01-31")

NOT_COMMITTED = "not committed"


@vmrag_command("blame")
@click.argument("document", metavar="[REF:][COLLECTION/]DOC")
def command(invocation: Invocation, *, document: str) -> None:
    """Show for each line of a document which revision wrote it, and the first git commit that
    pinned that; WORKING for what is uncommitted.

    Of this work tree, or at REF: a git ref, a revision, or a branch of the knowledge base. Lines
    are followed through merges, and through another name of the document.

    Of a document of a source: which commit of git wrote each line of the file.
    """
    with invocation.workspace() as ws:
        if file := known.find_file(ws, document):
            blamed = file_history.blame_file(ws, file)
            if invocation.as_json:
                invocation.emit(blamed)
            else:
                invocation.page(ws, _file_lines(blamed))
            return
        report = blame.blame(ws, document)
        if invocation.as_json:
            invocation.emit(report)
        else:
            invocation.page(ws, _lines(report))


def _lines(report: BlameReport) -> Iterator[str]:
    known = {each.revision: each for each in report.revisions}
    own = f"{report.collection}/{report.doc_id}"
    beside = [_beside(known.get(each.revision)) for each in report.lines]
    width = max(map(len, beside), default=0)
    moved = any(each.name != own for each in report.lines)
    longest = max((len(each.name) for each in report.lines), default=0)
    digits = len(str(len(report.lines)))
    for number, (each, who) in enumerate(zip(report.lines, beside, strict=True), start=1):
        name = f" {each.name:<{longest}}" if moved else ""
        yield f"{output.style(each.revision[:SHORT], fg='yellow')}{name} {who:<{width}} {number:>{digits}}) {each.text}"


def _file_lines(report: FileBlame) -> Iterator[str]:
    known_commits = {each.commit: each for each in report.commits}
    own = f"{report.collection}/{report.doc_id}"
    rows = [(each, _writer(known_commits.get(each.commit))) for each in report.lines]
    width = max((len(who) for _, who in rows), default=0)
    longest = max((len(each.name) for each in report.lines if each.name != own), default=0)
    digits = len(str(len(report.lines)))
    for number, (each, who) in enumerate(rows, start=1):
        name = f" {each.name:<{max(longest, len(own))}}" if longest else ""
        commit = output.style(each.commit[:SHORT_COMMIT].ljust(SHORT_COMMIT), fg="yellow")
        yield f"{commit}{name} {who:<{width}} {number:>{digits}}) {each.text}"


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
