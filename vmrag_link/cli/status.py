"""`vmrag status`."""

from __future__ import annotations

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.cli.status_changes import SHOWN, change_lines, unpushed
from vmrag_link.errors import FAILED_CHECK, enumerated, first_of, plural
from vmrag_link.ops.status import status as operation
from vmrag_link.ops.status.sources import SourcesStatus
from vmrag_link.sync.chroma_sharing import SharingState
from vmrag_link.sync.chroma_state import ChromaState

NAMED = 3

TITLES = {
    "in_sync": ("in sync", "green"),
    "merging": ("a merge is open", "yellow"),
    "drift": ("drift", "yellow"),
    "missing": ("the pinned revision is missing", "red"),
    "no_pin": ("no pin", "yellow"),
    "malformed": ("the pin cannot be read", "red"),
    "not_initialized": ("no knowledge base", "yellow"),
}


@vmrag_command("status")
def command(invocation: Invocation) -> int:
    """Show whether pin, knowledge base and index agree, which documents are not committed, which
    files differ from the documents that were imported from them, which files of sources differ from
    HEAD, and what is not pushed.

    Exit code 1 if pin, knowledge base and index do not agree. Changes nothing, and asks no network.
    Long lists are cut, so that something of each kind is seen; -v and --json show all.
    """
    with invocation.workspace(warn=False) as ws:  # the report has the warnings among its reasons
        report = operation.status(ws, with_changes=True)
    most = None if invocation.verbosity > 0 else SHOWN
    invocation.emit(report, _lines(report, most))
    return 0 if report.in_sync else FAILED_CHECK


def _chroma(chroma: ChromaState) -> str:
    at = (chroma.revision or "")[:7]
    if chroma.state == "failed":
        return f"{at}, failed: {chroma.error} ({chroma.hint})"
    if chroma.state == "following":
        return f"{at}, following{f': {chroma.done} of {chroma.total} chunks' if chroma.total else ''}"
    return f"{at}, {chroma.state}"


def _server(shared: SharingState) -> str:
    at = (shared.revision or "")[:7]
    if shared.state == "failed":
        return f"{at}, failed: {shared.error} ({shared.hint})"
    if shared.state == "off":
        return f"{shared.server}, for downloads alone"
    return f"{at}, {shared.state} ({shared.server})"


def _sources(found: SourcesStatus) -> list[str]:
    if found.problem:
        return [f"  sources    {found.problem}"]
    files = [f"{plural(each.files, 'file')} in {each.collection}" for each in found.collections]
    numbers = (
        (len(found.uncommitted), "not committed"),
        (len(found.removed), "removed"),
        (found.untracked, "untracked and left out"),
        (len(found.missing), "not in this clone, and left out"),
    )
    differing = enumerated([f"{number} {what}" for number, what in numbers if number])
    lines = [f"  sources    {enumerated(files) or 'none'}{f'; {differing}' if differing else ''}"]
    if found.uncommitted:
        lines.append(f"             not committed: {first_of(found.uncommitted, NAMED)}")
    if found.shadowed:
        documents = plural(len(found.shadowed), "stored document")
        lines.append(f"             warning: {documents} of the same files, not asked. Next: vmrag sources adopt")
    return lines + [f"             {name} cannot be asked: {why}" for name, why in found.unavailable.items()]


def _title(report: operation.StatusReport) -> tuple[str, str]:
    title, colour = TITLES[report.state]
    outdated = sum(each.stale for each in report.changes.files.files) if report.changes else 0
    if report.state != "in_sync" or not outdated:
        return title, colour
    than = "is older than its file" if outdated == 1 else "are older than their files"
    return f"{title} with the pin, but {plural(outdated, 'document')} {than}", "yellow"


def _lines(report: operation.StatusReport, most: int | None) -> list[str]:
    title, colour = _title(report)
    lines = [output.style(title, fg=colour, bold=True)]
    lines.append(
        f"  code       {report.git.branch or 'detached HEAD'} {report.git.head[:10] if report.git.head else '(no commit yet)'}"
    )
    if report.pin:
        lines.append(f"  pin        {report.pin.dolt_commit[:7]}, linked {report.pin.linked_at}")
    if report.kb.revision:
        place = f"branch {report.kb.branch}" if not report.kb.detached else "read by revision"
        place += ", in Dolt" if report.kb.engine == "dolt" else ""
        dirty = ", uncommitted changes" if report.kb.dirty else ""
        lines.append(
            f"  knowledge  {report.kb.revision[:7]} ({place}), {plural(report.kb.documents, 'document')}{dirty}"
        )
    if report.index.revision:
        chunks = plural(report.index.chunks, "chunk")
        more = (
            ", and a working copy" if report.kb.dirty and not report.kb.detached and report.index.working_copy else ""
        )
        lines.append(
            f"  index      {report.index.revision[:7]}, {plural(report.index.documents, 'document')}, {chunks}{more}"
        )
    if report.sources:
        lines += _sources(report.sources)
    if report.chroma and report.chroma.state != "off":
        lines.append(f"  chroma     {_chroma(report.chroma)}")
    if report.server:
        lines.append(f"  server     {_server(report.server)}")
    if report.changes and report.changes.unpushed:
        lines.append(f"  remote     {unpushed(report.changes.unpushed)}")
    lines += [f"  {reason}" for reason in report.reasons]
    if report.hint:
        lines.append(f"hint: {report.hint}")
    return [*lines, *(change_lines(report.changes, most) if report.changes else ())]
