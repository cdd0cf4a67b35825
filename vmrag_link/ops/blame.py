"""`vmrag blame`: which revision each line of a document comes from, and what code pins that.

A line goes back to the first parent that has it in the same order; what no parent has, the revision
wrote. So a merge is named only for lines that it made itself.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vmrag_link.engines.base import Engine
from vmrag_link.merging.text import find_matching_blocks
from vmrag_link.models import At, Record, RevisionInfo, content_hash
from vmrag_link.terminal_text import split_lines as lines_of
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.history import document_names, known, log
from vmrag_link.workspace.history.document_names import DocumentName
from vmrag_link.workspace.history.log import PinnedRevision
from vmrag_link.workspace.history.revparse import WORKING
from vmrag_link.workspace.history.trail import DocumentVisit, Trail

_KEPT = 8
"""Texts of versions that stay in memory."""


class BlamedLine(Record, frozen=True):
    """`revision` wrote it, or it is uncommitted: `WORKING`; there the document was called `name`,
    and the line was its `number`th, from 1.
    """

    text: str
    revision: str
    name: str
    number: int


class BlameReport(Record, frozen=True):
    """`revisions`: those that the lines name."""

    collection: str
    doc_id: str
    revision: str
    lines: list[BlamedLine]
    revisions: list[PinnedRevision]


class _Line(NamedTuple):
    """A line of a version, by its number there, and which one of the asked text it is."""

    there: int
    here: int


def blame_document(ws: Workspace, name: str) -> BlameReport:
    """Of `[REF:]NAME`, as `document_names.find_at` takes it and raises."""
    with known.explain_missing_file(ws, name):
        place, found = document_names.find_at(ws, name)
    text = _text(ws.engine, place.at, found)
    finder = _Finder(ws.engine, Trail(ws.engine, [place.revision], log.list_hidden(ws.engine)))
    origins = finder.origins(place.revision, found, text)
    lines = [
        BlamedLine(line, *origins.get(number, (WORKING, str(found), number + 1)))
        for number, line in enumerate(lines_of(text))
    ]
    return BlameReport(*found.key, place.revision, lines, log.add_pins(ws, finder.infos()))


class _Finder:
    def __init__(self, engine: Engine, trail: Trail) -> None:
        self._engine = engine
        self._trail = trail
        self._texts: OrderedDict[str, list[str]] = OrderedDict()
        self._found: dict[int, tuple[str, str, int]] = {}
        self._infos: dict[str, RevisionInfo] = {}

    def infos(self) -> Iterator[RevisionInfo]:
        """The revisions that were found, newest first."""
        return iter(self._infos.values())

    def origins(self, revision: str, name: DocumentName, text: str) -> dict[int, tuple[str, str, int]]:
        """By number of a line: revision, name and number there. Lines that are not in the
        revision's text are left out.
        """
        start = (revision, name)
        committed = self._trail.find_header(*start)
        if committed is None:
            return {}
        lines = [_Line(number, number) for number in range(len(lines_of(text)))]
        if committed.content_hash != content_hash(text):
            lines, _ = _divided(lines, self._version(*start), lines_of(text))
        waiting = {start: lines}
        for visit in self._trail.list_visits(name):
            mine = waiting.pop((visit.info.revision, visit.name), [])
            for origin, passed in self._passed_on(visit, mine):
                waiting.setdefault(origin, []).extend(passed)
            if not any(waiting.values()):
                break
        return self._found

    def _passed_on(
        self, visit: DocumentVisit, mine: Sequence[_Line]
    ) -> Iterator[tuple[tuple[str, DocumentName], Sequence[_Line]]]:
        """The lines that parents have, by parent; the others are the revision's own."""
        if not visit.changed or not mine:
            if visit.origins:
                yield visit.origins[0], mine
            return
        own = self._version(visit.info.revision, visit.name)
        for origin in visit.origins:
            theirs, mine = _divided(mine, self._version(*origin), own)
            yield origin, theirs
        if mine:
            self._infos.setdefault(visit.info.revision, visit.info)
        for line in mine:
            self._found[line.here] = (visit.info.revision, str(visit.name), line.there + 1)

    def _version(self, revision: str, name: DocumentName) -> list[str]:
        """The lines of the document there; a text that was read before is not read again."""
        header = self._trail.find_header(revision, name)
        digest = header.content_hash if header else ""
        if digest not in self._texts:
            self._texts[digest] = lines_of(_text(self._engine, revision, name))
            if len(self._texts) > _KEPT:
                self._texts.popitem(last=False)
        self._texts.move_to_end(digest)
        return self._texts[digest]


def _divided(lines: Sequence[_Line], old: Sequence[str], new: Sequence[str]) -> tuple[list[_Line], list[_Line]]:
    """Those of the lines, numbered as in `new`, that `old` has, with their numbers there; and the
    others.
    """
    old_numbers = {
        after + step: before + step
        for before, after, length in find_matching_blocks(old, new)
        for step in range(length)
    }
    same = [_Line(old_numbers[line.there], line.here) for line in lines if line.there in old_numbers]
    return same, [line for line in lines if line.there not in old_numbers]


def _text(engine: Engine, at: At, name: DocumentName) -> str:
    document = engine.find_document(at, *name.key)
    if document is None:  # removed since it was looked up
        raise document_names.no_document(engine, at, *name.key)
    return document.content
