"""A report in a few sentences, for people who read nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from vmrag_link.errors import plural
from vmrag_link.models import Record
from vmrag_link.ops.checks.verify_commits import PinFinding
from vmrag_link.ops.report.records import ComparedQueries, DocumentCounts, QueryChange, ReportSummary
from vmrag_link.ops.report.wording import named

Tone = Literal["good", "look", "bad"]

VERBS = {"added": "adds", "changed": "changes", "moved": "moves", "removed": "removes"}


class ReportVerdict(Record, frozen=True):
    """`tone`: `bad` where knowledge is lost or expected answers are, `look` where answers change
    or something comes in that nobody sees, else `good`. `sentences`: the worst comes first; names
    in them are as strangers gave them.
    """

    tone: Tone
    sentences: tuple[str, ...]


def verdict(summary: ReportSummary) -> ReportVerdict:
    wrong = tuple(_wrong(summary))
    changed = _documents(summary)
    answers = _answers(summary.queries)
    given_up = [each for each in summary.findings if each.code == "LOSS_ACCEPTED"]
    answered_otherwise = bool(summary.queries.rankings or summary.queries.hint)
    look = bool(given_up or summary.words.hidden or summary.lost.total) or answered_otherwise
    files = tuple(_files(summary))
    about = (*_hidden(summary), *files, *_lost(summary), *answers, *_verified(summary))
    told = (*wrong, *_given_up(given_up), changed, *about)
    return ReportVerdict("bad" if wrong else "look" if look else "good", told)


def worsened(query: QueryChange) -> bool:
    """The answer lacks something that is expected, or could not be had, and was right before."""
    return _lacks_after(query) and not _lacks_before(query)


def mended(query: QueryChange) -> bool:
    """The other way round."""
    return _lacks_before(query) and not _lacks_after(query)


def counted(counts: DocumentCounts) -> list[tuple[str, int]]:
    """The kinds of changes that there are, with their numbers."""
    found = ((kind, getattr(counts, kind)) for kind in VERBS)
    return [(kind, number) for kind, number in found if number]


def _lacks_before(query: QueryChange) -> bool:
    return bool(query.problem_before or query.missed_before)


def _lacks_after(query: QueryChange) -> bool:
    return bool(query.problem_after or query.missed_after)


def _wrong(summary: ReportSummary) -> Iterator[str]:
    errors = [each for each in summary.findings if each.level == "error"]
    if errors:
        yield f"vmrag verify finds {plural(len(errors), 'error')}: {_listed(sorted({each.code for each in errors}))}."
    if worse := sum(map(worsened, summary.queries.changed)):
        yield f"{plural(worse, 'golden query')} {'is' if worse == 1 else 'are'} no longer answered as expected."


def _given_up(findings: Sequence[PinFinding]) -> Iterator[str]:
    if findings:
        yield f"Knowledge is given up as lost in {plural(len(findings), 'revision')}: look whether nobody has it any more."


def _documents(summary: ReportSummary) -> str:
    settings = plural(len(summary.collections), "collection")
    if not summary.documents:
        return f"{named(summary.head)} changes {f'no document, but {settings}' if summary.collections else 'no knowledge'}."
    (kind, number), *rest = counted(summary.counts)
    parts = [f"{VERBS[kind]} {plural(number, 'document')}", *(f"{VERBS[kind]} {number}" for kind, number in rest)]
    of = plural(len({each.collection for each in summary.documents}), "collection")
    also = f" The settings of {settings} differ." if summary.collections else ""
    return f"{named(summary.head)} {_listed(parts)} in {of}.{also}"


def _files(summary: ReportSummary) -> Iterator[str]:
    if number := sum(each.total for each in summary.files):
        yield f"{plural(number, 'file')} of code {'differs' if number == 1 else 'differ'}, too."
    if summary.unread:
        are = "is" if len(summary.unread) == 1 else "are"
        yield f"{plural(len(summary.unread), 'file')} {are} not compared, because this clone does not have them."


def _hidden(summary: ReportSummary) -> Iterator[str]:
    if count := summary.words.hidden:
        documents = plural(sum(bool(each.words.hidden) for each in summary.documents), "document")
        yield f"There {'is' if count == 1 else 'are'} {plural(count, 'invisible character')} in what comes in, in {documents}."


def _lost(summary: ReportSummary) -> Iterator[str]:
    if summary.lost.total:
        yield f"It does not contain {plural(summary.lost.total, 'revision')} that {named(summary.base)} had."


def _answers(queries: ComparedQueries) -> Iterator[str]:
    if queries.not_compared and (queries.hint or queries.total):  # else there are none
        yield queries.not_compared
    elif queries.rankings:
        differ = "are" if queries.rankings > 1 else "is"
        yield f"{queries.rankings} of {plural(queries.total, 'golden query')} {differ} answered otherwise."
    elif queries.total and not queries.not_compared:
        yield f"{plural(queries.total, 'golden query')} rank{'s' if queries.total == 1 else ''} the same chunks in the same order."


def _verified(summary: ReportSummary) -> Iterator[str]:
    if summary.verified and all(each.level != "error" for each in summary.findings):
        yield "vmrag verify finds no error."


def _listed(parts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]
