"""Texts of a report that are the same in the terminal, in Markdown and in HTML.

These are the names of ends, revisions and sizes, and a verdict: a few sentences for people who read
nothing else.
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
"""Trailers such as `Signed-off-by: …` and `Vmrag-Base: …`. They contain a hyphen, because `Note: …`
is a sentence.
"""


class ReportVerdict(Record, frozen=True):
    """The verdict."""

    tone: Tone
    """`bad` if knowledge or expected answers are lost, `look` if answers change or invisible
    contents arrive, otherwise `good`.
    """
    sentences: tuple[str, ...]
    """The sentences, the worst first. Names in them are untrusted."""


def judge_report(summary: ReportSummary) -> ReportVerdict:
    """Judge the report."""
    queries = summary.queries
    errors = tuple(_list_errors(summary))
    accepted_losses = [finding for finding in summary.findings if finding.code == "LOSS_ACCEPTED"]
    doubtful_answers = list_changed_rankings(queries) or queries.removed or queries.hint
    doubtful_texts = accepted_losses or summary.words.hidden or summary.lost.total or summary.citing
    tone: Tone = "good"
    if errors:
        tone = "bad"
    elif doubtful_answers or doubtful_texts:
        tone = "look"
    sentences = (
        *errors,
        *_list_accepted_losses(accepted_losses),
        _describe_documents(summary),
        *_list_hidden(summary),
        *_list_files(summary),
        *_list_citing_notes(summary),
        *_list_lost(summary),
        *_list_answers(queries),
        *_list_verification(summary),
    )
    return ReportVerdict(tone, sentences)


def list_change_counts(counts: DocumentCounts) -> list[tuple[str, int]]:
    """Return the kinds of changes that occur, with their numbers."""
    counts_by_kind = ((kind, getattr(counts, kind)) for kind in VERBS)
    return [(kind, number) for kind, number in counts_by_kind if number]


def _list_errors(summary: ReportSummary) -> Iterator[str]:
    errors = [finding for finding in summary.findings if finding.level == "error"]
    if errors:
        yield f"vmrag verify finds {plural(len(errors), 'error')}: {_join_parts(sorted({error.code for error in errors}))}."
    if worse := sum(map(has_worsened, summary.queries.changed)):
        yield f"{plural(worse, 'golden query')} {'is' if worse == 1 else 'are'} no longer answered as expected."
    if unmet := sum(bool(query.missed) for query in summary.queries.added):
        yield f"{plural(unmet, 'new golden query')} {'is' if unmet == 1 else 'are'} not answered as expected."


def _list_accepted_losses(findings: Sequence[PinFinding]) -> Iterator[str]:
    if findings:
        accept = "accepts" if len(findings) == 1 else "accept"
        yield f"{plural(len(findings), 'revision')} {accept} a loss of knowledge: check that no clone has it."


def _describe_documents(summary: ReportSummary) -> str:
    settings = plural(len(summary.collections), "collection")
    if not summary.documents:
        return f"{name_end(summary.head)} changes {f'no document, but {settings}' if summary.collections else 'no knowledge'}."
    (kind, number), *rest = list_change_counts(summary.counts)
    parts = [f"{VERBS[kind]} {plural(number, 'document')}", *(f"{VERBS[kind]} {number}" for kind, number in rest)]
    collections = plural(len({document.collection for document in summary.documents}), "collection")
    settings_sentence = f" The settings of {settings} differ." if summary.collections else ""
    return f"{name_end(summary.head)} {_join_parts(parts)} in {collections}.{settings_sentence}"


def _list_files(summary: ReportSummary) -> Iterator[str]:
    if number := sum(file.total for file in summary.files):
        yield f"{plural(number, 'file')} of code also {'differs' if number == 1 else 'differ'}."
    if summary.unread:
        are = "is" if len(summary.unread) == 1 else "are"
        yield f"{plural(len(summary.unread), 'file')} {are} not compared, because this clone does not have them."


def _list_citing_notes(summary: ReportSummary) -> Iterator[str]:
    if summary.uncited:
        yield f"vmrag could not look for notes that cite changed files: {summary.uncited}"
    if summary.citing:
        yield f"{count_citing_notes(len(summary.citing))}."


def count_citing_notes(number: int) -> str:
    """Return a sentence such as `2 notes cite changed files, and may be outdated`."""
    return f"{plural(number, 'note')} {'cites' if number == 1 else 'cite'} changed files, and may be outdated"


def _list_hidden(summary: ReportSummary) -> Iterator[str]:
    if count := summary.words.hidden:
        documents = plural(sum(bool(document.words.hidden) for document in summary.documents), "document")
        yield f"The added texts contain {plural(count, 'invisible character')}, in {documents}."


def _list_lost(summary: ReportSummary) -> Iterator[str]:
    if summary.lost.total:
        yield f"It does not contain {plural(summary.lost.total, 'revision')} that {name_end(summary.base)} had."


def _list_answers(queries: ComparedQueries) -> Iterator[str]:
    if queries.not_compared and (queries.hint or queries.total):  # else there are none
        yield queries.not_compared
    elif queries.answers:
        yield describe_changed_answers(
            queries.answered_otherwise, queries.below, plural(queries.compared, "golden query")
        )
    elif ranked := len(list_changed_rankings(queries)):
        many = plural(queries.compared, "golden query")
        yield f"{ranked} of {many} {'ranks' if ranked == 1 else 'rank'} other chunks with the same texts."
    elif queries.compared and not queries.not_compared:
        many = plural(queries.compared, "golden query")
        yield f"{many} {'ranks' if queries.compared == 1 else 'rank'} the same chunks in the same order."
    yield from describe_new_and_removed(len(queries.added), len(queries.removed), "golden query")
    unmet = sum(bool(query.missed) for query in queries.added)
    before = queries.missed - sum(map(has_worsened, queries.changed)) - unmet
    if before > 0:
        was = "was" if before == 1 else "were"
        yield f"{plural(before, 'golden query')} {was} also not answered as expected before."
    if queries.outdated:
        yield queries.outdated


def describe_changed_answers(changed: int, below: int, questions: str) -> str:
    """Describe changed answers. At most one of the numbers is 0.

    `questions` is the number with its noun, such as `12 questions`.
    """
    differ = "differs" if below == 1 else "differ"
    if not changed:
        return f"{questions} asked: no first place changes, {below} {differ} further down."
    more = f", {below} more {differ} further down" if below else ""
    return f"{changed} of {questions} {'has' if changed == 1 else 'have'} another answer{more}."


def describe_new_and_removed(added: int, removed: int, noun: str) -> Iterator[str]:
    """Yield a sentence such as `1 golden query is new, 2 are removed.`, if there are any."""
    clauses: list[str] = []
    for number, kind in ((added, "new"), (removed, "removed")):
        if number:
            questions = str(number) if clauses else plural(number, noun)
            clauses.append(f"{questions} {'is' if number == 1 else 'are'} {kind}")
    if clauses:
        yield f"{', '.join(clauses)}."


def _list_verification(summary: ReportSummary) -> Iterator[str]:
    if summary.verified and all(finding.level != "error" for finding in summary.findings):
        yield "vmrag verify finds no error."


def _join_parts(parts: Sequence[str]) -> str:
    """Join as `a`, `a and b`, or `a, b and c`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]


def name_end(end: ReportEnd) -> str:
    """Return the name of an end. A full hash is shortened, and a merge base contains its commit."""
    if end.name == MERGE_BASE and end.commit:
        return f"the {MERGE_BASE} {end.commit[:_SHORT]}"
    return end.name[:_SHORT] if end.name in (end.commit, end.revision and end.revision.revision) else end.name


def describe_unpinned(end: ReportEnd) -> str:
    """Describe an end that pins no knowledge base."""
    return "only files of the code" if end.files else "no pin"


def name_document(line: DocumentLine) -> str:
    """Return the name of a document after the change.

    A file is marked as such, and an opaque id is followed by the title.
    """
    return f"{line.shown_name} (file)" if line.file else add_title(line.shown_name, line.title)


def describe_basis(summary: ReportSummary) -> str:
    """Describe what was compared, as a sentence."""
    base = name_end(summary.base)
    head = name_end(summary.head)
    if summary.start == summary.base:
        return f"Compared: {base} with {head}."
    if summary.head.commit and summary.head.commit == summary.start.commit:
        command = f"vmrag report {quoted(head)} {quoted(base)}"
        return f"{base} contains everything of {head}. To see what else {base} contains: {command}"
    moved_on = (
        f" {base} has moved on by {plural(summary.missing, 'revision')}, which the report leaves out."
        if summary.missing
        else ""
    )
    return f"Compared: {name_end(summary.start)}, where {head} left {base}, with {head}.{moved_on}"


def format_growth(growth: Growth) -> str:
    """Return a text such as `10 → 12 (+2)`."""
    if not growth.grown:
        return f"{growth.after:,}"
    return f"{growth.before:,} → {growth.after:,} ({growth.grown:+,})"


def describe_revision(revision: PinnedRevision, revisions: RevisionList) -> str:
    """Return the message of a revision without its trailers, and for a merge also what
    it merged.
    """
    return "\n".join(filter(None, (split_message(revision.message)[0], describe_merged(revision, revisions))))


def split_message(message: str) -> tuple[str, str]:
    """Return the first line of a message, and the rest without the trailers."""
    subject, _, body = message.strip().partition("\n")
    return subject, _TRAILERS.sub("", body.strip()).strip()


def describe_merged(revision: PinnedRevision, revisions: RevisionList) -> str:
    """Return the subjects of the revisions in the list that a merge merged; empty for other
    revisions.
    """
    revisions_by_hash = {info.revision: info for info in revisions.shown}
    tips = [revisions_by_hash[parent] for parent in revision.parents[1:] if parent in revisions_by_hash]
    names = [shortened(split_message(tip.message)[0] or tip.short) for tip in tips]
    return f"brings {enumerated(names)}" if names else ""


def describe_pinning(revision: PinnedRevision) -> str:
    """Return the newest code commit that pins a revision, and the number of others; empty without
    one.
    """
    if not revision.commits:
        return ""
    newest, *others = revision.commits
    more = f", and {len(others)} more" if others else ""
    return f"{newest.commit[:_SHORT]} {newest.subject}{more}"
