"""Reports out of texts, for what shows them: the records are the program's, the history in them is
made up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from vmrag_link import worddiff
from vmrag_link.ops.report.gather import build_document_line
from vmrag_link.ops.report.records import (
    ComparedQueries,
    DocumentCounts,
    DocumentKind,
    FieldChange,
    Growth,
    KnowledgeReport,
    KnowledgeSize,
    ReportedDocument,
    ReportEnd,
    ReportSummary,
    RevisionList,
    Spool,
    TextChange,
)
from vmrag_link.workspace.history.log import GitCommit, PinnedRevision
from vmrag_link.workspace.history.word_diff import sum_words, words_of

Name = tuple[str, str]

NO_QUERIES = ComparedQueries(
    ".vmrag/queries.yaml", not_compared="feature has no golden queries in .vmrag/queries.yaml."
)


def revision(number: int, message: str, *, author: str = "Ada <ada@example.com>", subject: str = "") -> PinnedRevision:
    commits = (GitCommit(f"{number:040x}", subject),) if subject else ()
    return PinnedRevision(f"{number:032x}", (), message, author, f"2026-11-{number % 28 + 1:02}T09:12:00Z", commits, ())


def text_change(before: str, after: str) -> TextChange:
    return TextChange(worddiff.cut_equal_text(worddiff.diff_words(before, after)) if before != after else ())


def document(
    number: int,
    name: Name,
    before: str | None,
    after: str | None,
    *,
    old: Name = ("", ""),
    title: str = "",
    fields: Mapping[str, tuple[str, str]] | None = None,
    left_out: int = 0,
) -> ReportedDocument:
    kind: DocumentKind = "added" if before is None else "removed" if after is None else "moved" if old[0] else "changed"
    change = text_change(before or "", after or "")
    words = words_of(change.pieces)
    return ReportedDocument(
        number,
        kind,
        *name,
        title,
        *old,
        "",
        words,
        Growth(len(before or ""), len(after or "")),
        fields=tuple(FieldChange(key, text_change(*both)) for key, both in (fields or {}).items()),
        text=msgspec.structs.replace(change, left_out=left_out),
    )


def report(
    documents: Iterable[ReportedDocument] = (),
    *,
    base: str = "main",
    head: str = "feature",
    queries: ComparedQueries = NO_QUERIES,
    gained: Sequence[PinnedRevision] = (),
    **others: Any,
) -> KnowledgeReport:
    """`others`: fields of the summary."""
    spool = Spool()
    lines = []
    for document in documents:
        spool.add(document)
        lines.append(build_document_line(document))
    kinds = [line.kind for line in lines]
    counts = DocumentCounts(*(kinds.count(kind) for kind in ("added", "changed", "moved", "removed")))
    start = ReportEnd(base, f"{1:040x}", revision(1, "Handbook", subject="Begin"))
    grown = Growth(100, 100 + counts.added - counts.removed)
    summary = ReportSummary(
        base=start,
        start=start,
        head=ReportEnd(head, f"{2:040x}", gained[0] if gained else revision(2, "Rotation", subject="Rotate keys")),
        gained=RevisionList(tuple(gained), len(gained)),
        lost=RevisionList(),
        missing=0,
        counts=counts,
        words=sum_words(lines),
        size=KnowledgeSize(
            grown,
            Growth(sum(line.characters.before for line in lines), sum(line.characters.after for line in lines)),
        ),
        collections=(),
        documents=tuple(lines),
        queries=queries,
        verified=True,
        findings=(),
    )
    return KnowledgeReport(msgspec.structs.replace(summary, **others), spool)
