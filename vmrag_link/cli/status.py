"""`vmrag status`: the state, and what is not committed and not pushed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from vmrag_link.cli import output
from vmrag_link.cli.base import Invocation, format_title
from vmrag_link.cli.base import command as vmrag_command
from vmrag_link.errors import FAILED_CHECK, enumerated, plural
from vmrag_link.models import Record
from vmrag_link.ops.status import status as operation
from vmrag_link.ops.status.changes import PendingChanges, SourceChange, SourcesStatus, Unpushed
from vmrag_link.sync.chroma_state import ChromaState, SharingState
from vmrag_link.workspace import Workspace

TITLES = {
    "in_sync": ("in sync", "green"),
    "merging": ("a merge is open", "yellow"),
    "dropped": ("knowledge was dropped", "red"),
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

    It shows whether pin, knowledge base and index agree, uncommitted documents, files of
    sources that differ from HEAD, and unpushed revisions. Long lists are shortened; -v and
    --json show all.

    It changes no document. It uses the network only to fetch a pinned revision that is
    missing. The exit code is 1 if pin, knowledge base and index do not agree.
    """
    with invocation.workspace(warn=False) as ws:  # the report has the warnings among its reasons
        report = operation.status(ws, with_changes=True, ask_remote=True)
        chroma_is_set = ws.chroma.local.is_set
        empty = _describe_empty_pin(ws, report) if not invocation.as_json else ""
    most = None if invocation.verbosity > 0 else SHOWN
    lines = [*_status_lines(report, most, chroma_is_set=chroma_is_set), *([f"hint: {empty}"] if empty else [])]
    invocation.emit_report(report, lines)
    return 0 if report.in_sync else FAILED_CHECK


def _describe_empty_pin(ws: Workspace, report: operation.StatusReport) -> str:
    """Return how to remove an empty pin, once in a clone."""
    if report.state != "in_sync" or report.kb.documents or not report.sources:
        return ""
    from vmrag_link.workspace.pins.empty_pin import describe_once

    return describe_once(ws)


def _chroma(chroma: ChromaState) -> str:
    at = (chroma.revision or chroma.commit or "")[:7]
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
        return [f"  files      {found.problem}"]
    problems = [f"             {name} cannot be asked: {why}" for name, why in found.unavailable.items()]
    return [f"  files      {found.sentence}", *problems]


def _status_lines(report: operation.StatusReport, most: int | None, *, chroma_is_set: bool) -> list[str]:
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
        lines += _sources(report.sources)
    if report.chroma and report.chroma.state != "off" and chroma_is_set:
        lines.append(f"  chroma     {_chroma(report.chroma)}")
    if report.server:
        lines.append(f"  server     {_server(report.server)}")
    if report.changes and report.changes.unpushed:
        lines.append(f"  remote     {describe_unpushed(report.changes.unpushed)}")
    lines += [f"  {reason}" for reason in report.reasons]
    if report.hint:
        lines.append(f"hint: {report.hint}")
    files = report.sources.changed if report.sources else ()
    return [*lines, *_file_lines(files, most), *(format_changes(report.changes, most) if report.changes else ())]


def _count_documents(number: int) -> str:
    return plural(number, "document") if number else "no documents"


SHOWN = 20
"""Lines of each list."""

_COLOURS = {"added": "green", "modified": "yellow", "removed": "red", "unmerged": "red"}
_OF_COLLECTION = {"added": "a new collection", "modified": "the collection's settings", "removed": "the collection"}
_INDENT = "    "
_WIDTH = max(map(len, _COLOURS)) + 3


class _Line(Record, frozen=True):
    """`group`: what must be seen of, however many others there are."""

    kind: str
    group: Hashable
    text: str


def describe_unpushed(found: Unpushed) -> str:
    """For the line of the remote."""
    if found.revisions is None:
        return f"{found.remote}: {found.problem}"
    if not found.revisions:
        return f"{found.remote}, nothing to push"
    return f"{found.remote}, {plural(found.revisions, 'revision')} not pushed: vmrag push"


def format_changes(changes: PendingChanges, most: int | None) -> Iterator[str]:
    """The lists, with what to type; `most` lines each, None for all."""
    yield from _uncommitted(changes, most)


def _uncommitted(changes: PendingChanges, most: int | None) -> Iterator[str]:
    lines = [
        _Line(collection.kind, "", f"{collection.name}/ ({_OF_COLLECTION[collection.kind]})")
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
        yield from _fair_share(lines, most)


def _file_lines(files: Sequence[SourceChange], most: int | None) -> Iterator[str]:
    if files:
        yield ""
        yield "Files not committed:"
        yield from _fair_share([_Line(file.kind, file.kind, file.shown_name) for file in files], most)


def _fair_share(lines: Sequence[_Line], most: int | None) -> Iterator[str]:
    """Each group gets as many lines as any other; what one does not need is shared by the rest."""
    groups: dict[Hashable, list[_Line]] = {}
    for line in lines:
        groups.setdefault(line.group, []).append(line)
    left = len(lines) if most is None else most
    hidden: dict[str, int] = {}
    shares: dict[Hashable, int] = {}
    for number, group in enumerate(sorted(groups, key=lambda each: len(groups[each]))):
        shares[group] = min(len(groups[group]), max(1, left // (len(groups) - number)))
        left -= shares[group]
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
