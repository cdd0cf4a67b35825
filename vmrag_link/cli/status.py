"""`vmrag status`: show the state, and what is not committed or pushed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from vmrag_link import hints
from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation, format_title
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, enumerated, plural
from vmrag_link.models import Record
from vmrag_link.ops.status import status as operation
from vmrag_link.ops.status.changes import PendingChanges, SourceChange, SourcesStatus, Unpushed
from vmrag_link.sync.chroma_state import ChromaState, SharingState
from vmrag_link.workspace import Workspace

MAX_ROWS = 20
"""Maximum number of lines of each list."""

TITLES = {
    "in_sync": ("in sync", "green"),
    "merging": ("a merge is open", "yellow"),
    "dropped": ("documents were dropped", "red"),
    "drift": ("drift", "yellow"),
    "missing": ("the pinned revision is missing", "red"),
    "no_pin": ("no pin", "yellow"),
    "malformed": ("the pin cannot be read", "red"),
    "not_initialized": ("no knowledge base", "yellow"),
    "files": ("files of the repository, no stored documents", "green"),
}


@vmrag_command("status")
def command(invocation: Invocation) -> int:
    """Show the state of the pin, the documents and the index.

    It shows whether the pin, the knowledge base and the index agree. It lists uncommitted
    documents, files of sources that differ from HEAD, and unpushed revisions. Long lists are
    shortened; -v and --json show all.

    It never changes documents. It uses the network only to fetch a pinned revision that is
    missing. The exit code is 1 if pin, knowledge base and index do not agree.
    """
    with invocation.workspace(warn=False) as ws:  # the report has the warnings among its reasons
        report = operation.status(ws, with_changes=True, ask_remote=True)
        chroma_is_set = ws.chroma.local.is_set
        empty = _describe_empty_pin(ws, report) if not invocation.as_json else ""
    limit = None if invocation.verbosity > 0 else MAX_ROWS
    lines = [*_status_lines(report, limit, chroma_is_set=chroma_is_set), *([f"hint: {empty}"] if empty else [])]
    invocation.emit_report(report, lines)
    return 0 if report.in_sync else FAILED_CHECK


def _describe_empty_pin(ws: Workspace, report: operation.StatusReport) -> str:
    """Return how to remove an empty pin, once in a clone."""
    if report.state != "in_sync" or report.kb.documents or not report.sources:
        return ""
    from vmrag_link.workspace.pins.empty_pin import describe_once

    return describe_once(ws)


def _describe_chroma(chroma: ChromaState) -> str:
    at = (chroma.revision or chroma.commit or "")[:7]
    if chroma.state == "failed":
        return hints.append_to(f"{at}, failed: {chroma.error}", chroma.hint)
    if chroma.state == "following":
        return f"{at}, following{f': {chroma.completed} of {chroma.total} chunks' if chroma.total else ''}"
    return f"{at}, {chroma.state}"


def _describe_server(shared: SharingState) -> str:
    at = (shared.revision or "")[:7]
    if shared.state == "failed":
        return hints.append_to(f"{at}, failed: {shared.error}", shared.hint)
    if shared.state == "off":
        return f"{shared.server}, only for downloads"
    return f"{at}, {shared.state} ({shared.server})"


def _describe_sources(sources: SourcesStatus) -> list[str]:
    if sources.problem:
        return [f"  files      {sources.problem}"]
    problems = [f"             could not read {name}: {reason}" for name, reason in sources.unavailable.items()]
    return [f"  files      {sources.sentence}", *problems]


def _status_lines(report: operation.StatusReport, limit: int | None, *, chroma_is_set: bool) -> list[str]:
    title, colour = TITLES[report.state]
    lines = [output.style_text(title, fg=colour, bold=True)]
    lines.append(
        f"  code       {report.git.branch or 'detached HEAD'} {report.git.head[:10] if report.git.head else '(no commit yet)'}"
    )
    if report.pin:
        lines.append(f"  pin        {report.pin.dolt_commit[:7]}, linked {report.pin.linked_at}")
    if report.kb.revision:
        place = f"branch {report.kb.branch}" if not report.kb.detached else "read by revision"
        place += ", in Dolt" if report.kb.engine == "dolt" else ""
        dirty = ", uncommitted changes" if report.kb.dirty else ""
        lines.append(f"  knowledge  {report.kb.revision[:7]} ({place}), {_count_documents(report.kb.documents)}{dirty}")
    if report.index.revision and (report.index.documents or report.kb.documents):
        chunks = plural(report.index.chunks, "chunk")
        more = (
            ", and a working copy" if report.kb.dirty and not report.kb.detached and report.index.working_copy else ""
        )
        lines.append(
            f"  index      {report.index.revision[:7]}, {plural(report.index.documents, 'document')}, {chunks}{more}"
        )
    if report.sources:
        lines += _describe_sources(report.sources)
    if report.chroma and report.chroma.state != "off" and chroma_is_set:
        lines.append(f"  chroma     {_describe_chroma(report.chroma)}")
    if report.server:
        lines.append(f"  server     {_describe_server(report.server)}")
    if report.changes and report.changes.unpushed:
        lines.append(f"  remote     {describe_unpushed(report.changes.unpushed)}")
    lines += [f"  {reason}" for reason in report.reasons]
    if report.hint:
        lines.append(f"hint: {report.hint}")
    files = report.sources.changed if report.sources else ()
    return [*lines, *_file_lines(files, limit), *(format_changes(report.changes, limit) if report.changes else ())]


def _count_documents(number: int) -> str:
    return plural(number, "document") if number else "no documents"


_COLOURS = {"added": "green", "modified": "yellow", "removed": "red", "unmerged": "red"}
_COLLECTION_CHANGES = {
    "added": "a new collection",
    "modified": "the collection's settings",
    "removed": "the collection",
}
_INDENT = "    "
_WIDTH = max(map(len, _COLOURS)) + 3


class _Line(Record, frozen=True):
    """A line of a list.

    Some lines of each `group` are shown, however many others there are.
    """

    kind: str
    group: Hashable
    text: str


def describe_unpushed(remote: Unpushed) -> str:
    """Return the text for the line of the remote."""
    if remote.revisions is None:
        return f"{remote.remote}: {remote.problem}"
    if not remote.revisions:
        return f"{remote.remote}, nothing to push"
    return f"{remote.remote}, {plural(remote.revisions, 'revision')} not pushed; run 'vmrag push' to push them"


def format_changes(changes: PendingChanges, limit: int | None) -> Iterator[str]:
    """Yield the lists with commands for them.

    A list has at most `limit` lines; None shows all.
    """
    lines = [
        _Line(collection.kind, "", f"{collection.name}/ ({_COLLECTION_CHANGES[collection.kind]})")
        for collection in changes.collections
    ]
    lines += [
        _Line(
            document.kind,
            (document.collection, document.kind),
            f"{document.shown_name}{format_title(document.doc_id, document.title)}",
        )
        for document in changes.documents
    ]
    if lines:
        yield ""
        yield "Documents not committed:"
        yield '  (use "vmrag diff" to see, "vmrag commit" to keep them)'
        yield '  (use "vmrag restore NAME" to discard them)'
        yield from _share_lines(lines, limit)


def _file_lines(files: Sequence[SourceChange], limit: int | None) -> Iterator[str]:
    if files:
        yield ""
        yield "Files not committed:"
        yield from _share_lines([_Line(file.kind, file.kind, file.shown_name) for file in files], limit)


def _share_lines(lines: Sequence[_Line], limit: int | None) -> Iterator[str]:
    """Yield lines of each group in equal numbers.

    The groups share what smaller groups do not need.
    """
    groups: dict[Hashable, list[_Line]] = {}
    for line in lines:
        groups.setdefault(line.group, []).append(line)
    free = len(lines) if limit is None else limit
    hidden: dict[str, int] = {}
    shares: dict[Hashable, int] = {}
    for number, group in enumerate(sorted(groups, key=lambda key: len(groups[key]))):
        shares[group] = min(len(groups[group]), max(1, free // (len(groups) - number)))
        free -= shares[group]
    for group, members in groups.items():
        yield from (_coloured_line(member) for member in members[: shares[group]])
        for member in members[shares[group] :]:
            hidden[member.kind] = hidden.get(member.kind, 0) + 1
    if hidden:
        more = enumerated([f"{number} more {kind}" for kind, number in hidden.items()])
        yield f"{_INDENT}… and {more} (-v shows all)"


def _coloured_line(line: _Line) -> str:
    label = output.style_text(f"{line.kind}:".ljust(_WIDTH), fg=_COLOURS[line.kind])
    return f"{_INDENT}{label}{line.text}"
