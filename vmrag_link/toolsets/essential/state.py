"""The tool status, and the lines about uncommitted changes that remember and forget also show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from vmrag_link import terminal_text
from vmrag_link.errors import plural, quoted
from vmrag_link.git import versions
from vmrag_link.ops.status import status as statuses
from vmrag_link.ops.status.changes import PendingChanges, PendingDocument, SourceChange, SourcesStatus
from vmrag_link.ops.status.status import GitBlock, KbStatus, StatusReport
from vmrag_link.paths import PIN_NAME
from vmrag_link.toolsets.essential import texts
from vmrag_mcp.call import Call
from vmrag_mcp.registry import tool
from vmrag_mcp.results import TextResult

MAX_LISTED_CHANGES = 50
"""Maximum number of uncommitted files and documents in an answer."""

MAX_ADDED_FILES = 3
"""Maximum number of files in a command. For more, the command adds all files."""


class StateText(TextResult, frozen=True):
    """An answer whose lines show uncommitted changes, so the last line does not repeat them."""

    whole_kb: ClassVar[bool] = True


@tool("R", title="Show status", reads_files=True, includes=("dolt_status",), same_effect=("dolt_status",))
def status(call: Call) -> StateText:
    """Show which commit and revision the answers come from, how many files and stored documents are
    searched, and what is uncommitted or unpushed.
    """
    origin = texts.find_current_origin(call.ws)
    call.set_origin(origin)
    report = statuses.status(call.ws, with_changes=True)
    lines = [line for line in _state_lines(report) if not any(line.rstrip(".") in note for note in origin.notes)]
    return StateText(text="\n".join(map(terminal_text.escape_line, lines)), message=_describe_next(call, report))


def _state_lines(report: StatusReport) -> Iterator[str]:
    pending = report.changes or PendingChanges()
    sources = report.sources or SourcesStatus()
    documents = pending.documents[: MAX_LISTED_CHANGES // 2]
    files = sources.changed[: MAX_LISTED_CHANGES - len(documents)]
    yield _describe_commit(report.git)
    if report.state not in ("in_sync", "files"):
        yield f"state: {report.state.replace('_', ' ')}"
    if report.sources:
        yield f"files: {sources.problem}" if sources.problem else sources.sentence
        yield from (f"{name} cannot be searched: {why}" for name, why in sources.unavailable.items())
        yield from map(show_uncommitted, files)
    if report.kb.revision:
        yield _describe_documents(report.kb, len(pending.documents) + len(pending.collections))
        for change in pending.collections[:MAX_LISTED_CHANGES]:
            yield f"uncommitted: {change.kind} collection {change.name}"
        yield from map(show_uncommitted, documents)
    more = len(pending.documents) + len(sources.changed) - len(documents) - len(files)
    if more:
        yield f"and {more} more; run 'vmrag status -v' to list them"
    unpushed = pending.unpushed
    if unpushed and unpushed.revisions is None:
        yield f"unpushed: not known, {unpushed.problem}"
    elif unpushed and unpushed.revisions:
        yield f"unpushed: {plural(unpushed.revisions, 'revision')}"
    yield from report.reasons


def _describe_commit(git: GitBlock) -> str:
    commit = f"commit {git.head[:7]}" if git.head else "no commit yet"
    return f"{commit} on {git.branch}" if git.branch else f"{commit}, detached HEAD"


def _describe_documents(kb: KbStatus, changes: int) -> str:
    count = plural(kb.documents, "stored document") if kb.documents else "no stored documents"
    uncommitted = f", with {plural(changes, 'uncommitted change')}" if changes else ""
    return f"{count} at revision {(kb.revision or '')[:7]}, {'pinned' if kb.pinned else 'not pinned'}{uncommitted}"


def _describe_next(call: Call, report: StatusReport) -> str:
    files = [change.path for change in report.sources.changed] if report.sources else []
    documents = bool(report.changes and (report.changes.documents or report.changes.collections))
    files += [PIN_NAME] if report.pin and not documents and not report.kb.pinned and report.kb.revision else []
    if report.hint or documents or files:
        return f"next: {report.hint or describe_steps(call, documents=documents, files=files)}"
    return "everything that is searched is committed."


def show_uncommitted(change: SourceChange | PendingDocument) -> str:
    """Return the line about an uncommitted file or document."""
    return f"uncommitted: {change.kind} {change.shown_name}"


def describe_steps(call: Call, *, documents: bool = False, files: Sequence[str] = ()) -> str:
    """Return the commands that commit these files, and uncommitted documents with their pin."""
    steps = [call.adapt_text("dolt_commit") or "vmrag commit -m MESSAGE"] if documents else []
    if (call.ws.places.top / ".jj").is_dir():
        return ", then ".join([*steps, "jj commit"])
    staged = versions.list_staged_files(call.ws.places) if files else ()
    unstaged = [path for path in files if path not in staged]
    if unstaged:
        steps.append(f"git add {' '.join(map(quoted, unstaged)) if len(unstaged) <= MAX_ADDED_FILES else '-A'}")
    return terminal_text.escape_line(", then ".join([*steps, "git commit"]))
