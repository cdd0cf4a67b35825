"""`vmrag query --since`: how an answer changed since a commit."""

from __future__ import annotations

from collections.abc import Iterator

from vmrag_link.cli import answering, output, passage_view
from vmrag_link.cli.answering import ShownAnswer
from vmrag_link.cli.base import read_subject
from vmrag_link.ops.query.answer_since import AnswerSince, answer_since
from vmrag_link.retrieval.query import Query
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow import provenance


def compare_answers(ws: Workspace, query: Query, since: str, *, strict: bool) -> ShownAnswer:
    """Return the present answer, and its differences to the answer at the git ref `since`."""
    report = answer_since(ws, query, since)
    provenance.refuse_outdated(ws, report.notes, strict=strict)
    return ShownAnswer(report, _since_lines(report, since), report.notes)


def _since_lines(report: AnswerSince, ref: str) -> Iterator[str]:
    moved = any(not change.is_same for change in report.changes)
    files = report.commit if report.kb.sources or not report.since else ""
    position = " and the files of ".join(name[:7] for name in (report.since, files) if name)
    yield f"Since {ref} ({position}), " + ("the answer has changed:" if moved else "the answer is the same:")
    yield f"{'was':>4} -> {'is':<4} document #chunk  score"
    yield from answering.format_rankings(report.before, report.after, report.names)
    for document in report.documents:
        yield f"{output.style_text(report.names[document.document], bold=True)} was {document.kind}:"
        if document.uncommitted:
            yield f"{passage_view.INDENT}uncommitted"
        for commit in document.commits:
            yield f"{passage_view.INDENT}{commit.commit[:10]}  {commit.date[:10]}  {read_subject(commit.message)}"
        for info in document.revisions:
            yield f"{passage_view.INDENT}{info.revision[:7]}  {info.date[:10]}  {read_subject(info.message)}"
    if moved and not report.documents:
        yield "These documents did not change. Other documents changed, and so did the ranking."
    yield answering.describe_position(report.kb)
