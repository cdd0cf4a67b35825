"""`vmrag log`: the revisions that a name means, or those that changed one document."""

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

# The latest revisions need nothing of names and texts.

if TYPE_CHECKING:
    from vmrag_link.workspace.history.document_names import DocumentName
    from vmrag_link.workspace.history.trail import DocumentVisit, Trail
    from vmrag_link.workspace.history.word_diff import Detail, DiffReport, WordDiff

_MOST = 2
_MOST_SLASHES = 16
"""Slashes at which a collection's name may end: the history is read for each."""
_EXAMPLE = "vmrag log v1.0..v2.0 guide/faq.md"


class LogStep(Record, frozen=True):
    """A revision that is shown. `parents`: those that the graph leads to.

    `document`: what it did to the document that was asked for.
    """

    info: PinnedRevision
    parents: tuple[str, ...]
    document: HeaderChange | None = None


class RevisionReport(PinnedRevision, frozen=True):
    """`changes` against the first parent; `diff`: if asked for, or of the document asked for."""

    changes: ChangeCounts
    diff: DiffReport | None


class Revisions:
    """What is asked of a step is read then. `more`: there are older ones."""

    def __init__(self, ws: Workspace, steps: Sequence[LogStep], *, more: bool) -> None:
        self._ws = ws
        self.steps = steps
        self.more = more

    def count_changes(self, step: LogStep) -> ChangeCounts:
        """Of all documents."""
        return log.changes_of(self._ws.engine, step.info)

    def diff_step(self, step: LogStep, detail: Detail) -> WordDiff:
        """Against the first parent; of the document alone, if one was asked for."""
        from vmrag_link.workspace.history import diff as diffs
        from vmrag_link.workspace.history.word_diff import WordDiff

        old = step.info.parents[0] if step.info.parents else None
        if step.document is None:
            found = diffs.diff_documents(self._ws.engine, old, step.info.revision)
        else:
            found = diffs.Diff(old, step.info.revision, (step.document,), ())
        return WordDiff(diffs.stored_texts(self._ws.engine, old, step.info.revision), found, detail)

    def list_reports(self, detail: Detail | None) -> Iterator[RevisionReport]:
        for step in self.steps:
            shown = detail or ("names" if step.document else None)
            yield form_report(
                step.info, self.count_changes(step), self.diff_step(step, shown).form_report() if shown else None
            )


def form_report(info: PinnedRevision, changes: ChangeCounts, made: DiffReport | None) -> RevisionReport:
    return RevisionReport(**asdict(info), changes=changes, diff=made)


def list_history(ws: Workspace, names: Sequence[str], *, limit: int) -> Revisions:
    """`limit` revisions of what `[RANGE] [DOCUMENT]` means, newest first.

    Raises `DocumentMissing` or `CollectionMissing` for a document that none of them ever had,
    `DocumentAmbiguous`, `UsageInvalid`, and as `ranges.reach`.
    """
    if len(names) > _MOST:
        raise UsageInvalid("A log is of one revision or range, and of one document.", hint=_EXAMPLE)
    follow_and_warn(ws)
    reach, document = _asked(ws, names)
    hidden = log.list_hidden(ws.engine, reach)
    if document is None:
        found = list(islice(log.list_revisions(ws.engine, reach.heads, hidden), limit + 1))
        infos = log.add_pins(ws, found[:limit])
        steps = [LogStep(info, tuple(one for one in info.parents if one not in hidden)) for info in infos]
        return Revisions(ws, steps, more=len(found) > limit)
    from vmrag_link.workspace.history import document_names, ranges
    from vmrag_link.workspace.history.trail import Trail

    trail = Trail(ws.engine, reach.heads, hidden)
    for name in _readings(ws, document):
        if visits := _visits(trail, name, limit):
            return _of_document(ws, visits, limit)
    if document_names.find_candidates(ws.engine, ws.locate_documents(), document):
        return Revisions(ws, [], more=False)  # of a range in which nothing happened to it
    unknown = document_names.missing_document(ws.engine, ws.locate_documents(), document)
    if len(names) == 1 and isinstance(unknown, CollectionMissing):
        ranges.find_log_range(ws, document)  # raises: it is more like the name of a revision
    raise unknown


def _asked(ws: Workspace, names: Sequence[str]) -> tuple[LogRange, str | None]:
    """Revisions, and the name of a document. One name is that of a document if there is one, or if
    it is that of no revision and may be one that was removed.
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


def _readings(ws: Workspace, name: str) -> Iterator[DocumentName]:
    """What a document's name may mean: the one that is here, else one that was."""
    from vmrag_link.workspace.history import document_names
    from vmrag_link.workspace.history.document_names import DocumentName

    if document_names.find_candidates(ws.engine, ws.locate_documents(), name):
        yield document_names.find_document(ws.engine, [ws.locate_documents()], name)
        return
    for slashes in islice(re.finditer("//?", name), _MOST_SLASHES):
        collection, doc_id = name[: slashes.start()], name[slashes.end() :]
        if collection and doc_id:
            yield DocumentName(collection, doc_id)


def _visits(trail: Trail, name: DocumentName, limit: int) -> list[DocumentVisit]:
    """As far back as the revision after the last one that is shown; none if nothing ever changed
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


def _of_document(ws: Workspace, visits: Sequence[DocumentVisit], limit: int) -> Revisions:
    """The revisions that changed it; each leads to the next ones that did."""
    next_changed: dict[tuple[str, DocumentName], tuple[str, ...]] = {}
    parents: dict[str, tuple[str, ...]] = {}
    for visit in reversed(visits):
        before = (next_changed.get(origin, (origin.revision,)) for origin in visit.origins)
        found = tuple(dict.fromkeys(chain.from_iterable(before)))
        parents[visit.info.revision] = found
        next_changed[visit.info.revision, visit.name] = (visit.info.revision,) if visit.changed else found
    shown = {visit.info.revision: visit for visit in reversed(visits) if visit.changed}
    chosen = [*reversed(shown.values())]
    infos = log.add_pins(ws, (each.info for each in chosen[:limit]))
    steps = [
        LogStep(info, parents[info.revision], _change(each)) for info, each in zip(infos, chosen[:limit], strict=True)
    ]
    return Revisions(ws, steps, more=len(chosen) > limit)


def _change(visit: DocumentVisit) -> HeaderChange:
    kind: ChangeKind = "modified" if visit.before and visit.after else "added" if visit.after else "removed"
    return HeaderChange(kind, visit.before, visit.after)
