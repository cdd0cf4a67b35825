"""The revisions at the ends of a report, and what one end contains and another one does not."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from itertools import chain

from vmrag_link.models import Record, RevisionInfo
from vmrag_link.ops.history import log
from vmrag_link.ops.history.log import PinnedRevision
from vmrag_link.ops.report.ends import ComparedPlace, ComparedPlaces
from vmrag_link.ops.report.records import ReportEnd, RevisionList
from vmrag_link.workspace import Workspace

MOST = 50
"""Revisions of a list that are shown, with their messages."""


class RevisionsBetween(Record, frozen=True):
    """As the fields of these names in `ReportSummary`."""

    base: ReportEnd
    start: ReportEnd
    head: ReportEnd
    gained: RevisionList
    lost: RevisionList
    missing: int


def between(ws: Workspace, places: ComparedPlaces) -> RevisionsBetween:
    """Which code has which revision is asked once for all of them: it takes a look at all of git's
    history.
    """
    base, start, head = (_behind(ws, each) for each in places)
    gained, lost = _only_in(ws, places.head, start), _only_in(ws, places.start, head)
    at_ends = [log.info(ws.engine, each.revision) for each in places if each.revision]
    shown = {each.revision: each for each in chain(at_ends, gained[:MOST], lost[:MOST])}
    code = [each.commit for each in places if each.commit]
    known = {each.revision: each for each in log.pinned(ws, shown.values(), also=code)} if shown else {}
    one, parted, other = (
        ReportEnd(each.name, each.commit, known[each.revision] if each.revision else None, each.names_sources)
        for each in places
    )
    return RevisionsBetween(
        one,
        parted,
        other,
        _listed(gained, known),
        _listed(lost, known),
        len(base - start - head - log.hidden(ws.engine)) if base else 0,
    )


def _behind(ws: Workspace, place: ComparedPlace) -> AbstractSet[str]:
    return ws.engine.parents([place.revision]).keys() if place.revision else frozenset()


def _only_in(ws: Workspace, place: ComparedPlace, others: AbstractSet[str]) -> list[RevisionInfo]:
    """Newest first."""
    if not place.revision or place.revision in others:
        return []
    return list(log.reached(ws.engine, [place.revision], log.hidden(ws.engine) | others))


def _listed(found: list[RevisionInfo], known: dict[str, PinnedRevision]) -> RevisionList:
    return RevisionList(tuple(known[each.revision] for each in found[:MOST]), len(found))
