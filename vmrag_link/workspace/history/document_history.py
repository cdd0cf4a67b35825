"""List the revisions that a name means, or those that changed one document: `vmrag log`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from vmrag_link.errors import CollectionMissing, GitReferenceMissing, UsageInvalid
from vmrag_link.models import ChangeCounts, ChangeKind, HeaderChange, Record
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.follow_pin import follow_and_warn
from vmrag_link.workspace.history import log
from vmrag_link.workspace.history.log import LogRange, PinnedRevision

# A log of the latest revisions needs neither names nor texts.

if TYPE_CHECKING:
    from vmrag_link.workspace.history.document_names import DocumentName
    from vmrag_link.workspace.history.trail import DocumentVisit, Trail
    from vmrag_link.workspace.history.word_diff import Detail, DiffReport, WordDiff

_MOST = 2
_MOST_SLASHES = 16
"""Maximum number of slashes that are tried as the end of a collection's name. The history is read
for each.
"""
_EXAMPLE = "write a range, such as 'vmrag log v1.0..v2.0 guide/faq.md'"


class LogStep(Record, frozen=True):
    """A listed revision."""

    info: PinnedRevision
    parents: tuple[str, ...]
    """The parents that the graph leads to."""
    document: HeaderChange | None = None
    """The change of the requested document."""


class RevisionReport(PinnedRevision, frozen=True):
    """A revision with the numbers of its changes."""

    changes: ChangeCounts
    """Compared with the first parent."""
    diff: DiffReport | None
    """If requested, or the diff of the requested document."""


class Revisions:
    """Listed revisions.

    Changes and diffs are computed on demand. `more`: there are older revisions.
    """

    def __init__(self, ws: Workspace, steps: Sequence[LogStep], *, more: bool) -> None:
        self._ws = ws
        self.steps = steps
        self.more = more

    def count_changes(self, step: LogStep) -> ChangeCounts:
        """Count the changes of all documents."""
        return log.changes_of(self._ws.engine, step.info)

    def diff_step(self, step: LogStep, detail: Detail) -> WordDiff:
        """Compare with the first parent.

        If one document was requested, compare only this document.
        """
        from vmrag_link.workspace.history import diff as diffs
        from vmrag_link.workspace.history.word_diff import WordDiff

        old = step.info.parents[0] if step.info.parents else None
        if step.document is None:
            diff = diffs.diff_documents(self._ws.engine, old, step.info.revision)
        else:
            diff = diffs.Diff(old, step.info.revision, (step.document,), ())
        return WordDiff(diffs.stored_texts(self._ws.engine, old, step.info.revision), diff, detail)

    def list_reports(self, detail: Detail | None) -> Iterator[RevisionReport]:
        for step in self.steps:
            shown = detail or ("names" if step.document else None)
            yield form_report(
                step.info, self.count_changes(step), self.diff_step(step, shown).form_report() if shown else None
            )


def form_report(info: PinnedRevision, changes: ChangeCounts, diff: DiffReport | None) -> RevisionReport:
    return RevisionReport(**asdict(info), changes=changes, diff=diff)


def list_history(ws: Workspace, names: Sequence[str], *, limit: int) -> Revisions:
    """Return up to `limit` revisions of what `[RANGE] [DOCUMENT]` means, newest first.

    Raises `DocumentMissing` or `CollectionMissing` for a document that no revision has,
    `DocumentAmbiguous`, `UsageInvalid`, and the errors of `ranges.find_log_range`.
    """
    if len(names) > _MOST:
        raise UsageInvalid("vmrag log takes one revision or range, and one document.", hint=_EXAMPLE)
    follow_and_warn(ws)
    reach, document = _split_names(ws, names)
    hidden = log.list_hidden(ws.engine, reach)
    if document is None:
        infos = list(islice(log.list_revisions(ws.engine, reach.heads, hidden), limit + 1))
        pinned = log.add_pins(ws, infos[:limit])
        steps = [LogStep(info, tuple(parent for parent in info.parents if parent not in hidden)) for info in pinned]
        return Revisions(ws, steps, more=len(infos) > limit)
    from vmrag_link.workspace.history import document_names, ranges
    from vmrag_link.workspace.history.trail import Trail

    trail = Trail(ws.engine, reach.heads, hidden)
    for name in _list_readings(ws, document):
        if visits := _read_visits(trail, name, limit):
            return _list_document_steps(ws, visits, limit)
    if document_names.find_candidates(ws.engine, ws.locate_documents(), document):
        return Revisions(ws, [], more=False)  # nothing changed it in the range
    unknown = document_names.missing_document(ws.engine, ws.locate_documents(), document)
    if len(names) == 1 and isinstance(unknown, CollectionMissing):
        ranges.find_log_range(ws, document)  # raises, because it looks more like the name of a revision
    raise unknown


def _split_names(ws: Workspace, names: Sequence[str]) -> tuple[LogRange, str | None]:
    """Return the revisions and the name of a document.

    A single name means a document if one has it, or if it is not the name of a revision and may be
    that of a removed document.
    """
    if not names:
        return LogRange((ws.require_stored_revision(),)), None
    from vmrag_link.workspace.history import document_names, ranges

    if len(names) == _MOST:
        return ranges.find_log_range(ws, names[0]), names[1]
    if document_names.find_candidates(ws.engine, ws.locate_documents(), names[0]):
        return ranges.find_log_range(ws, None), names[0]
    try:
        return ranges.find_log_range(ws, names[0]), None
    except GitReferenceMissing:
        if "/" not in names[0]:
            raise
        return ranges.find_log_range(ws, None), names[0]


def _list_readings(ws: Workspace, name: str) -> Iterator[DocumentName]:
    """Yield the documents that a name may mean: an existing one, otherwise removed ones."""
    from vmrag_link.workspace.history import document_names
    from vmrag_link.workspace.history.document_names import DocumentName

    if document_names.find_candidates(ws.engine, ws.locate_documents(), name):
        yield document_names.find_document(ws.engine, [ws.locate_documents()], name)
        return
    for slashes in islice(re.finditer("//?", name), _MOST_SLASHES):
        collection, doc_id = name[: slashes.start()], name[slashes.end() :]
        if collection and doc_id:
            yield DocumentName(collection, doc_id)


def _read_visits(trail: Trail, name: DocumentName, limit: int) -> list[DocumentVisit]:
    """Return the visits of a document up to one change beyond the limit; none if nothing changed
    it.
    """
    visits: list[DocumentVisit] = []
    changed = 0
    for visit in trail.list_visits(name):
        visits.append(visit)
        changed += visit.changed
        if changed > limit:
            break
    return visits if changed else []


def _list_document_steps(ws: Workspace, visits: Sequence[DocumentVisit], limit: int) -> Revisions:
    """Return the revisions that changed a document. Each leads to the next ones that did."""
    next_changed: dict[tuple[str, DocumentName], tuple[str, ...]] = {}
    parents: dict[str, tuple[str, ...]] = {}
    for visit in reversed(visits):
        before = (next_changed.get(origin, (origin.revision,)) for origin in visit.origins)
        ancestors = tuple(dict.fromkeys(chain.from_iterable(before)))
        parents[visit.info.revision] = ancestors
        next_changed[visit.info.revision, visit.name] = (visit.info.revision,) if visit.changed else ancestors
    shown = {visit.info.revision: visit for visit in reversed(visits) if visit.changed}
    chosen = [*reversed(shown.values())]
    infos = log.add_pins(ws, (visit.info for visit in chosen[:limit]))
    steps = [
        LogStep(info, parents[info.revision], _form_change(visit))
        for info, visit in zip(infos, chosen[:limit], strict=True)
    ]
    return Revisions(ws, steps, more=len(chosen) > limit)


def _form_change(visit: DocumentVisit) -> HeaderChange:
    kind: ChangeKind = "modified" if visit.before and visit.after else "added" if visit.after else "removed"
    return HeaderChange(kind, visit.before, visit.after)
