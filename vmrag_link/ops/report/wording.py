"""What of a report is said alike in the terminal and in Markdown."""

from __future__ import annotations

from vmrag_link.errors import plural, quoted
from vmrag_link.ops.history.log import PinnedRevision
from vmrag_link.ops.report.ends import MERGE_BASE
from vmrag_link.ops.report.records import DocumentLine, Growth, ReportEnd, ReportSummary

_SHORT = 12


def named(end: ReportEnd) -> str:
    """A full hash is shortened; a merge base says of which commit it is one."""
    if end.name == MERGE_BASE and end.commit:
        return f"the {MERGE_BASE} {end.commit[:_SHORT]}"
    return end.name[:_SHORT] if end.name in (end.commit, end.revision and end.revision.revision) else end.name


def without_revision(end: ReportEnd) -> str:
    """What is known where no knowledge base is pinned."""
    return "files of the code alone" if end.files else "pins no knowledge"


def documents_name(line: DocumentLine) -> str:
    """Of a document as it is now; that of a file says so."""
    return f"{line.name} (file)" if line.file else line.name


def basis(summary: ReportSummary) -> str:
    """What was compared, as a sentence."""
    base, head = named(summary.base), named(summary.head)
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
    return f"Compared: {named(summary.start)}, where {head} left {base}, with {head}.{moved}"


def grown(growth: Growth) -> str:
    """`10 → 12 (+2)`."""
    if not growth.grown:
        return f"{growth.after:,}"
    return f"{growth.before:,} → {growth.after:,} ({growth.grown:+,})"


def pinned_by(revision: PinnedRevision) -> str:
    """The newest code commit that pins it, and how many more do; empty if none does."""
    if not revision.commits:
        return ""
    newest, *others = revision.commits
    more = f", and {len(others)} more" if others else ""
    return f"{newest.commit[:_SHORT]} {newest.subject}{more}"
