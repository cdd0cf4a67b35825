"""What a report says alike in the terminal, in Markdown and in HTML.

That is how ends, revisions and sizes are named, and the verdict in a few sentences for people who
read nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from vmrag_link.errors import enumerated, plural, quoted, shortened
from vmrag_link.models import Record
from vmrag_link.ops.report.ends import MERGE_BASE
from vmrag_link.ops.report.rankings import add_title, has_worsened, list_changed_rankings
from vmrag_link.ops.report.records import (
    ComparedQueries,
    DocumentCounts,
    DocumentLine,
    Growth,
    ReportEnd,
    ReportSummary,
    RevisionList,
)
from vmrag_link.ops.verify.verify_commits import PinFinding
from vmrag_link.workspace.history.log import PinnedRevision

Tone = Literal["good", "look", "bad"]

VERBS = {"added": "adds", "changed": "changes", "moved": "moves", "removed": "removes"}
_SHORT = 12
_TRAILERS = re.compile(r"(?:\A|\n\n)(?:[A-Za-z]\w*(?:-\w+)+: .*(?:\n|\Z))+\Z")
"""`Signed-off-by: …`, `Vmrag-Base: …`: with a hyphen, as `Note: …` is a sentence."""


class ReportVerdict(Record, frozen=True):
    """`tone`: `bad` where knowledge is lost or expected answers are, `look` where answers change
    or something comes in that nobody sees, else `good`. `sentences`: the worst comes first; names
    in them are as strangers gave them.
    """

    tone: Tone
    sentences: tuple[str, ...]


def judge_report(summary: ReportSummary) -> ReportVerdict:
    wrong = tuple(_wrong(summary))
    changed = _documents(summary)
    answers = _answers(summary.queries)
    given_up = [finding for finding in summary.findings if finding.code == "LOSS_ACCEPTED"]
    doubtful = bool(list_changed_rankings(summary.queries) or summary.queries.removed or summary.queries.hint)
    look = bool(given_up or summary.words.hidden or summary.lost.total or summary.citing) or doubtful
    files = tuple(_files(summary))
    about = (*_hidden(summary), *files, *_citing_notes(summary), *_lost(summary), *answers, *_verification(summary))
    told = (*wrong, *_given_up(given_up), changed, *about)
    return ReportVerdict("bad" if wrong else "look" if look else "good", told)


def list_change_counts(counts: DocumentCounts) -> list[tuple[str, int]]:
    """The kinds of changes that there are, with their numbers."""
    found = ((kind, getattr(counts, kind)) for kind in VERBS)
    return [(kind, number) for kind, number in found if number]


def _wrong(summary: ReportSummary) -> Iterator[str]:
    errors = [finding for finding in summary.findings if finding.level == "error"]
    if errors:
        yield f"vmrag verify finds {plural(len(errors), 'error')}: {_join(sorted({error.code for error in errors}))}."
    if worse := sum(map(has_worsened, summary.queries.changed)):
        yield f"{plural(worse, 'golden query')} {'is' if worse == 1 else 'are'} no longer answered as expected."
    if unmet := sum(bool(each.missed) for each in summary.queries.added):
        yield f"{plural(unmet, 'new golden query')} {'is' if unmet == 1 else 'are'} not answered as expected."


def _given_up(findings: Sequence[PinFinding]) -> Iterator[str]:
    if findings:
        yield f"Knowledge is given up as lost in {plural(len(findings), 'revision')}: look whether nobody has it any more."


def _documents(summary: ReportSummary) -> str:
    settings = plural(len(summary.collections), "collection")
    if not summary.documents:
        return f"{name_end(summary.head)} changes {f'no document, but {settings}' if summary.collections else 'no knowledge'}."
    (kind, number), *rest = list_change_counts(summary.counts)
    parts = [f"{VERBS[kind]} {plural(number, 'document')}", *(f"{VERBS[kind]} {number}" for kind, number in rest)]
    of = plural(len({document.collection for document in summary.documents}), "collection")
    also = f" The settings of {settings} differ." if summary.collections else ""
    return f"{name_end(summary.head)} {_join(parts)} in {of}.{also}"


def _files(summary: ReportSummary) -> Iterator[str]:
    if number := sum(file.total for file in summary.files):
        yield f"{plural(number, 'file')} of code {'differs' if number == 1 else 'differ'}, too."
    if summary.unread:
        are = "is" if len(summary.unread) == 1 else "are"
        yield f"{plural(len(summary.unread), 'file')} {are} not compared, because this clone does not have them."


def _citing_notes(summary: ReportSummary) -> Iterator[str]:
    if summary.uncited:
        yield f"vmrag could not look for notes that cite changed files: {summary.uncited}"
    if summary.citing:
        yield f"{count_citing_notes(len(summary.citing))}."


def count_citing_notes(number: int) -> str:
    """Return `2 notes cite changed files, and may be outdated`."""
    return f"{plural(number, 'note')} {'cites' if number == 1 else 'cite'} changed files, and may be outdated"


def _hidden(summary: ReportSummary) -> Iterator[str]:
    if count := summary.words.hidden:
        documents = plural(sum(bool(document.words.hidden) for document in summary.documents), "document")
        yield f"There {'is' if count == 1 else 'are'} {plural(count, 'invisible character')} in what comes in, in {documents}."


def _lost(summary: ReportSummary) -> Iterator[str]:
    if summary.lost.total:
        yield f"It does not contain {plural(summary.lost.total, 'revision')} that {name_end(summary.base)} had."


def _answers(queries: ComparedQueries) -> Iterator[str]:
    if queries.not_compared and (queries.hint or queries.total):  # else there are none
        yield queries.not_compared
    elif queries.answers:
        yield describe_changed_answers(
            queries.answered_otherwise, queries.below, plural(queries.compared, "golden query")
        )
    elif ranked := len(list_changed_rankings(queries)):
        many = plural(queries.compared, "golden query")
        yield f"{ranked} of {many} {'ranks' if ranked == 1 else 'rank'} other chunks, which say the same."
    elif queries.compared and not queries.not_compared:
        many = plural(queries.compared, "golden query")
        yield f"{many} {'ranks' if queries.compared == 1 else 'rank'} the same chunks in the same order."
    yield from describe_new_and_removed(len(queries.added), len(queries.removed), "golden query")
    unmet = sum(bool(each.missed) for each in queries.added)
    before = queries.missed - sum(map(has_worsened, queries.changed)) - unmet
    if before > 0:
        was = "was" if before == 1 else "were"
        yield f"{plural(before, 'golden query')} {was} not answered as expected before, either."
    if queries.outdated:
        yield queries.outdated


def describe_changed_answers(changed: int, below: int, asked: str) -> str:
    """`asked`: how many there are of what, such as `12 questions`. One of both numbers is none."""
    differ = "differs" if below == 1 else "differ"
    if not changed:
        return f"{asked} asked: every first answer stays as it is, {below} {differ} further down."
    more = f", {below} more {differ} further down" if below else ""
    return f"{changed} of {asked} {'is' if changed == 1 else 'are'} answered otherwise{more}."


def describe_new_and_removed(added: int, removed: int, noun: str) -> Iterator[str]:
    """`1 golden query is new, 2 are removed.`, if there are any."""
    parts = [(number, what) for number, what in ((added, "new"), (removed, "removed")) if number]
    said = [
        f"{number if place else plural(number, noun)} {'is' if number == 1 else 'are'} {what}"
        for place, (number, what) in enumerate(parts)
    ]
    yield from [f"{', '.join(said)}."] if said else []


def _verification(summary: ReportSummary) -> Iterator[str]:
    if summary.verified and all(finding.level != "error" for finding in summary.findings):
        yield "vmrag verify finds no error."


def _join(parts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]


def name_end(end: ReportEnd) -> str:
    """A full hash is shortened; a merge base says of which commit it is one."""
    if end.name == MERGE_BASE and end.commit:
        return f"the {MERGE_BASE} {end.commit[:_SHORT]}"
    return end.name[:_SHORT] if end.name in (end.commit, end.revision and end.revision.revision) else end.name


def describe_unpinned(end: ReportEnd) -> str:
    """What is known where no knowledge base is pinned."""
    return "files of the code alone" if end.files else "pins no knowledge"


def name_document(line: DocumentLine) -> str:
    """Of a document as it is now; that of a file says so, and an id that tells a person nothing has
    its title beside it.
    """
    return f"{line.shown_name} (file)" if line.file else add_title(line.shown_name, line.title)


def describe_basis(summary: ReportSummary) -> str:
    """What was compared, as a sentence."""
    base, head = name_end(summary.base), name_end(summary.head)
    if summary.start == summary.base:
        return f"Compared: {base} with {head}."
    if summary.head.commit and summary.head.commit == summary.start.commit:
        other = f"vmrag report {quoted(head)} {quoted(base)}"
        return f"{base} has all that {head} has. What {base} has more: {other}"
    moved = (
        f" {base} has {plural(summary.missing, 'revision')} more since; they are no part of this."
        if summary.missing
        else ""
    )
    return f"Compared: {name_end(summary.start)}, where {head} left {base}, with {head}.{moved}"


def format_growth(growth: Growth) -> str:
    """`10 → 12 (+2)`."""
    if not growth.grown:
        return f"{growth.after:,}"
    return f"{growth.before:,} → {growth.after:,} ({growth.grown:+,})"


def describe_revision(revision: PinnedRevision, found: RevisionList) -> str:
    """What a revision is: its message without the trailers; of a merge, what it brings, too."""
    return "\n".join(filter(None, (split_message(revision.message)[0], describe_merged(revision, found))))


def split_message(message: str) -> tuple[str, str]:
    """The first line of a message, and what follows without the trailers."""
    subject, _, body = message.strip().partition("\n")
    return subject, _TRAILERS.sub("", body.strip()).strip()


def describe_merged(revision: PinnedRevision, found: RevisionList) -> str:
    """What a merge brings, by the subjects of what is in the list; empty for other revisions."""
    known = {each.revision: each for each in found.shown}
    tips = [known[parent] for parent in revision.parents[1:] if parent in known]
    names = [shortened(split_message(tip.message)[0] or tip.short) for tip in tips]
    return f"brings {enumerated(names)}" if names else ""


def describe_pinning(revision: PinnedRevision) -> str:
    """The newest code commit that pins it, and how many more do; empty if none does."""
    if not revision.commits:
        return ""
    newest, *others = revision.commits
    more = f", and {len(others)} more" if others else ""
    return f"{newest.commit[:_SHORT]} {newest.subject}{more}"
