"""Find the revision that each line of a document comes from, and the code that pins it: `vmrag
blame`.

A line goes back to the first parent that has it in the same order. A line that no parent has comes
from the revision itself. So a line comes from a merge only if the merge wrote it.
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
from vmrag_link.workspace.history import document_names, log, named_places
from vmrag_link.workspace.history.document_names import DocumentName
from vmrag_link.workspace.history.log import PinnedRevision
from vmrag_link.workspace.history.revparse import WORKING
from vmrag_link.workspace.history.trail import DocumentVisit, Trail

_KEPT = 8
"""Number of versions whose texts stay in memory."""


class BlamedLine(Record, frozen=True):
    """A line with its origin."""

    text: str
    revision: str
    """The revision that wrote it; `WORKING` if it is uncommitted."""
    name: str
    """The name of the document in that revision."""
    number: int
    """The number of the line in that revision, from 1."""


class BlameReport(Record, frozen=True):
    """The lines of a document with their origins."""

    collection: str
    doc_id: str
    revision: str
    lines: list[BlamedLine]
    revisions: list[PinnedRevision]
    """The revisions that the lines name."""


class _Line(NamedTuple):
    """A line of a version."""

    version_number: int
    """Its number in the version, from 0."""
    number: int
    """Its number in the blamed text, from 0."""


def blame_document(ws: Workspace, name: str) -> BlameReport:
    """Return the origins of the lines of `[REF:]NAME`.

    Raises the errors of `document_names.find_at`.
    """
    with named_places.explain_missing_file(ws, name):
        place, document_name = document_names.find_at(ws, name)
    text = _read_text(ws.engine, place.at, document_name)
    finder = _OriginFinder(ws.engine, Trail(ws.engine, [place.revision], log.list_hidden(ws.engine)))
    origins = finder.find_origins(place.revision, document_name, text)
    lines = [
        BlamedLine(line, *origins.get(number, (WORKING, str(document_name), number + 1)))
        for number, line in enumerate(lines_of(text))
    ]
    return BlameReport(*document_name.key, place.revision, lines, log.add_pins(ws, finder.list_infos()))


class _OriginFinder:
    def __init__(self, engine: Engine, trail: Trail) -> None:
        self._engine = engine
        self._trail = trail
        self._texts: OrderedDict[str, list[str]] = OrderedDict()
        self._origins: dict[int, tuple[str, str, int]] = {}
        self._infos: dict[str, RevisionInfo] = {}

    def list_infos(self) -> Iterator[RevisionInfo]:
        """Return the revisions that were found, newest first."""
        return iter(self._infos.values())

    def find_origins(self, revision: str, name: DocumentName, text: str) -> dict[int, tuple[str, str, int]]:
        """Return revision, name and number for each line of a text, by its number.

        Lines that are not in the revision's text are left out.
        """
        start = (revision, name)
        committed = self._trail.find_header(*start)
        if committed is None:
            return {}
        lines = [_Line(number, number) for number in range(len(lines_of(text)))]
        if committed.content_hash != content_hash(text):
            lines, _ = _divide_lines(lines, self._read_version(*start), lines_of(text))
        waiting = {start: lines}
        for visit in self._trail.list_visits(name):
            version_lines = waiting.pop((visit.info.revision, visit.name), [])
            for origin, parent_lines in self._pass_on(visit, version_lines):
                waiting.setdefault(origin, []).extend(parent_lines)
            if not any(waiting.values()):
                break
        return self._origins

    def _pass_on(
        self, visit: DocumentVisit, lines: Sequence[_Line]
    ) -> Iterator[tuple[tuple[str, DocumentName], Sequence[_Line]]]:
        """Yield the lines that each parent has. Record the revision as the origin of the others."""
        if not visit.changed or not lines:
            if visit.origins:
                yield visit.origins[0], lines
            return
        text = self._read_version(visit.info.revision, visit.name)
        for origin in visit.origins:
            parent_lines, lines = _divide_lines(lines, self._read_version(*origin), text)
            yield origin, parent_lines
        if lines:
            self._infos.setdefault(visit.info.revision, visit.info)
        for line in lines:
            self._origins[line.number] = (visit.info.revision, str(visit.name), line.version_number + 1)

    def _read_version(self, revision: str, name: DocumentName) -> list[str]:
        """Return the lines of the document in a revision. Recent texts are cached."""
        header = self._trail.find_header(revision, name)
        digest = header.content_hash if header else ""
        if digest not in self._texts:
            self._texts[digest] = lines_of(_read_text(self._engine, revision, name))
            if len(self._texts) > _KEPT:
                self._texts.popitem(last=False)
        self._texts.move_to_end(digest)
        return self._texts[digest]


def _divide_lines(lines: Sequence[_Line], old: Sequence[str], new: Sequence[str]) -> tuple[list[_Line], list[_Line]]:
    """Divide lines of `new` into those that `old` has, with their numbers there, and the others."""
    old_numbers = {
        after + step: before + step
        for before, after, length in find_matching_blocks(old, new)
        for step in range(length)
    }
    same = [
        _Line(old_numbers[line.version_number], line.number) for line in lines if line.version_number in old_numbers
    ]
    return same, [line for line in lines if line.version_number not in old_numbers]


def _read_text(engine: Engine, at: At, name: DocumentName) -> str:
    document = engine.find_document(at, *name.key)
    if document is None:  # another process removed it after the search
        raise document_names.no_document(engine, at, *name.key)
    return document.content
