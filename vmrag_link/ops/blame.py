"""`vmrag blame`: find the revision that each line of a document comes from, and the code that pins
it.

A line goes back to the first parent that has it in the same order. A line that no parent has comes
from the revision itself. So a line comes from a merge only if the merge wrote it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
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
from vmrag_link.workspace.history.trail import Trail

_MAX_CACHED_VERSIONS = 8
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


def blame_document(ws: Workspace, name: str) -> BlameReport:
    """Return the origins of the lines of `[REF:]NAME`.

    Raises the errors of `document_names.find_at`.
    """
    with named_places.explain_missing_file(ws, name):
        place, document_name = document_names.find_at(ws, name)
    text = _read_text(ws.engine, place.at, document_name)
    versions = _Versions(ws.engine, Trail(ws.engine, [place.revision], log.list_hidden(ws.engine)))
    origins = _find_origins(versions, place.revision, document_name, text)
    lines = []
    for number, line in enumerate(lines_of(text)):
        uncommitted = _Origin(WORKING, str(document_name), number + 1)
        origin = origins.by_line.get(number, uncommitted)
        lines.append(BlamedLine(line, origin.revision, origin.name, origin.number))
    collection, doc_id = document_name.key
    return BlameReport(collection, doc_id, place.revision, lines, log.add_pins(ws, origins.revisions))


class _Line(NamedTuple):
    """A line of a version."""

    version_number: int
    """Its number in the version, from 0."""
    number: int
    """Its number in the blamed text, from 0."""


class _Origin(NamedTuple):
    """The fields `revision`, `name` and `number` of a `BlamedLine`."""

    revision: str
    name: str
    number: int


class _Origins(NamedTuple):
    """The origins of the committed lines of a text."""

    by_line: dict[int, _Origin]
    """By the number of the line in the text, from 0."""
    revisions: list[RevisionInfo]
    """The revisions of the origins, newest first."""


class _Versions:
    """Reads the versions of a document. Recent texts are cached."""

    def __init__(self, engine: Engine, trail: Trail) -> None:
        self.trail = trail
        self._engine = engine
        self._lines_by_hash: OrderedDict[str, list[str]] = OrderedDict()

    def read_lines(self, revision: str, name: DocumentName) -> list[str]:
        header = self.trail.find_header(revision, name)
        digest = header.content_hash if header else ""
        if digest not in self._lines_by_hash:
            self._lines_by_hash[digest] = lines_of(_read_text(self._engine, revision, name))
            if len(self._lines_by_hash) > _MAX_CACHED_VERSIONS:
                self._lines_by_hash.popitem(last=False)
        self._lines_by_hash.move_to_end(digest)
        return self._lines_by_hash[digest]


def _find_origins(versions: _Versions, revision: str, name: DocumentName, text: str) -> _Origins:
    """Return the origins of the lines of a text that the document in the revision has.

    Each visit of the trail is a version of the document, newest first. Its lines wait until the
    visit, which passes them on to the parents that have them.
    """
    origins = _Origins({}, [])
    header = versions.trail.find_header(revision, name)
    if header is None:
        return origins
    lines = [_Line(number, number) for number in range(len(lines_of(text)))]
    if header.content_hash != content_hash(text):
        lines, _ = _divide_lines(lines, versions.read_lines(revision, name), lines_of(text))
    waiting = {(revision, name): lines}
    for visit in versions.trail.list_visits(name):
        lines = waiting.pop((visit.info.revision, visit.name), [])
        if lines and visit.changed:
            new_lines = versions.read_lines(visit.info.revision, visit.name)
            for parent in visit.origins:
                parent_lines, lines = _divide_lines(lines, versions.read_lines(*parent), new_lines)
                waiting.setdefault(parent, []).extend(parent_lines)
            if lines and visit.info not in origins.revisions:
                origins.revisions.append(visit.info)
            for line in lines:
                origins.by_line[line.number] = _Origin(visit.info.revision, str(visit.name), line.version_number + 1)
        elif visit.origins:
            waiting.setdefault(visit.origins[0], []).extend(lines)
        if not any(waiting.values()):
            break
    return origins


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
