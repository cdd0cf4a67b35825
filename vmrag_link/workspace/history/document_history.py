"""List the revisions that a name means, or the revisions that changed one document: `vmrag log`.

`list_history` returns `Revisions`, which computes changes and diffs of the listed revisions only
when they are printed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from vmrag_link.errors import CollectionMissing, GitReferenceMissing, UsageInvalid
from vmrag_link.models import ChangeCounts, HeaderChange, Record
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow.follow_pin import follow_and_warn
from vmrag_link.workspace.history import log
from vmrag_link.workspace.history.log import LogRange, PinnedRevision

# A log of the latest revisions needs neither names nor texts.

if TYPE_CHECKING:
    from vmrag_link.workspace.history.document_names import DocumentName
    from vmrag_link.workspace.history.trail import DocumentVisit, Trail
    from vmrag_link.workspace.history.word_diff import Detail, DiffReport, WordDiff

_MAX_NAMES = 2
_MAX_TRIED_SLASHES = 16
"""Maximum number of slashes in the name of a removed document at which its collection may end.

The history is read for each slash.
"""
_EXAMPLE = "write a range, such as 'vmrag log v1.0..v2.0 guide/faq.md'"


class LogStep(Record, frozen=True):
    """A listed revision."""

    info: PinnedRevision
    parents: tuple[str, ...]
    """The listed revisions to which the graph leads."""
    document: HeaderChange | None = None
    """The change of the requested document."""


class RevisionReport(PinnedRevision, frozen=True):
    """A revision with the numbers of its changes."""

    changes: ChangeCounts
    """Compared with the first parent."""
    diff: DiffReport | None
    """The diff of the requested document, or of all documents if requested. Otherwise None."""


class Revisions:
    """Listed revisions. Changes and diffs are computed on demand.

    `more`: True if there are older revisions.
    """

    def __init__(self, ws: Workspace, steps: Sequence[LogStep], *, more: bool) -> None:
        self._ws = ws
        self.steps = steps
        self.more = more

    def count_changes(self, step: LogStep) -> ChangeCounts:
        """Return the numbers of changes of all documents, compared with the first parent."""
        return log.changes_of(self._ws.engine, step.info)

    def diff_step(self, step: LogStep, detail: Detail) -> WordDiff:
        """Return the diff to the first parent, only of the requested document if there is one."""
        from vmrag_link.workspace.history import diff as diffs
        from vmrag_link.workspace.history.word_diff import WordDiff

        old = step.info.parents[0] if step.info.parents else None
        if step.document is None:
            diff = diffs.diff_documents(self._ws.engine, old, step.info.revision)
        else:
            diff = diffs.Diff(old, step.info.revision, (step.document,), ())
        return WordDiff(diffs.stored_texts(self._ws.engine, old, step.info.revision), diff, detail)

    def list_reports(self, detail: Detail | None) -> Iterator[RevisionReport]:
        """Yield the revisions with diffs in this detail. None: only names of the document."""
        for step in self.steps:
            step_detail = detail or ("names" if step.document else None)
            diff = self.diff_step(step, step_detail).form_report() if step_detail else None
            yield form_report(step.info, self.count_changes(step), diff)


def form_report(info: PinnedRevision, changes: ChangeCounts, diff: DiffReport | None) -> RevisionReport:
    """Return the revision with its changes."""
    return RevisionReport(**asdict(info), changes=changes, diff=diff)


def list_history(ws: Workspace, names: Sequence[str], *, limit: int) -> Revisions:
    """Return up to `limit` revisions, newest first. `names`: `[RANGE] [DOCUMENT]`.

    With a document, only revisions that changed it are returned. Raises `DocumentMissing` or
    `CollectionMissing` for a document that no revision has, `DocumentAmbiguous`, `UsageInvalid`,
    and the errors of `ranges.find_log_range`.
    """
    if len(names) > _MAX_NAMES:
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
    for name in _list_possible_names(ws, document):
        if visits := _read_visits(trail, name, limit):
            return _list_document_steps(ws, visits, limit)
    if document_names.find_candidates(ws.engine, ws.locate_documents(), document):
        return Revisions(ws, [], more=False)  # nothing changed it in the range
    unknown = document_names.missing_document(ws.engine, ws.locate_documents(), document)
    if len(names) == 1 and isinstance(unknown, CollectionMissing):
        ranges.find_log_range(ws, document)  # raises, because it looks more like the name of a revision
    raise unknown


def _split_names(ws: Workspace, names: Sequence[str]) -> tuple[LogRange, str | None]:
    """Return the revisions to list, and the name of a document or None.

    A single name means a document if a document has it. If no revision has it either, it may be the
    name of a removed document.
    """
    if not names:
        return LogRange((ws.require_stored_revision(),)), None
    from vmrag_link.workspace.history import document_names, ranges

    if len(names) == _MAX_NAMES:
        return ranges.find_log_range(ws, names[0]), names[1]
    if document_names.find_candidates(ws.engine, ws.locate_documents(), names[0]):
        return ranges.find_log_range(ws, None), names[0]
    try:
        return ranges.find_log_range(ws, names[0]), None
    except GitReferenceMissing:
        if "/" not in names[0]:
            raise
        return ranges.find_log_range(ws, None), names[0]


def _list_possible_names(ws: Workspace, name: str) -> Iterator[DocumentName]:
    """Yield the documents that a name may mean: an existing one, otherwise removed ones."""
    from vmrag_link.workspace.history import document_names
    from vmrag_link.workspace.history.document_names import DocumentName

    if document_names.find_candidates(ws.engine, ws.locate_documents(), name):
        yield document_names.find_document(ws.engine, [ws.locate_documents()], name)
        return
    for slashes in islice(re.finditer("//?", name), _MAX_TRIED_SLASHES):
        collection, doc_id = name[: slashes.start()], name[slashes.end() :]
        if collection and doc_id:
            yield DocumentName(collection, doc_id)


def _read_visits(trail: Trail, name: DocumentName, limit: int) -> list[DocumentVisit]:
    """Return the revisions with a document, newest first, up to one change beyond the limit.

    Empty if no revision changed it.
    """
    visits: list[DocumentVisit] = []
    change_count = 0
    for visit in trail.list_visits(name):
        visits.append(visit)
        change_count += visit.changed
        if change_count > limit:
            break
    return visits if change_count else []


def _list_document_steps(ws: Workspace, visits: Sequence[DocumentVisit], limit: int) -> Revisions:
    """Return the revisions that changed a document, each with its nearest ancestors that did."""
    from vmrag_link.workspace.history.compare import change_of

    nearest_changes: dict[tuple[str, DocumentName], tuple[str, ...]] = {}
    parents: dict[str, tuple[str, ...]] = {}
    for visit in reversed(visits):  # oldest first
        before = (nearest_changes.get(origin, (origin.revision,)) for origin in visit.origins)
        ancestors = tuple(dict.fromkeys(chain.from_iterable(before)))
        parents[visit.info.revision] = ancestors
        nearest_changes[visit.info.revision, visit.name] = (visit.info.revision,) if visit.changed else ancestors
    changing_visits = {visit.info.revision: visit for visit in reversed(visits) if visit.changed}
    newest_first = [*reversed(changing_visits.values())]
    page = newest_first[:limit]
    infos = log.add_pins(ws, (visit.info for visit in page))
    steps = [
        LogStep(info, parents[info.revision], change_of(visit.before, visit.after))
        for info, visit in zip(infos, page, strict=True)
    ]
    return Revisions(ws, steps, more=len(newest_first) > limit)
