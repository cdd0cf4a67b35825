"""One document through the history: which revisions changed it, and by what name it went before.

As with git, what a revision has from one of its parents, it did not change, and the other parents
are not looked at. A document that is new in a revision and takes the place of one that is removed
there goes on as that one: with an equal text, or with half of its lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from vmrag_link.engines.base import Engine
from vmrag_link.models import DocumentHeader, RevisionInfo
from vmrag_link.ops.history import log
from vmrag_link.ops.history.document_names import DocumentName
from vmrag_link.ops.history.moved import ALIKE, MOST_CANDIDATES, file_name, likeness, lines_of


class DocumentOrigin(NamedTuple):
    """The document in a parent of the revision."""

    revision: str
    name: DocumentName


class DocumentVisit(NamedTuple):
    """The document in one revision; `after` and `before` as there and in the first of `origins`.

    `origins`: the parents that have it. Where `changed` is false it is equal in the only one.
    """

    info: RevisionInfo
    name: DocumentName
    changed: bool
    before: DocumentHeader | None
    after: DocumentHeader | None
    origins: tuple[DocumentOrigin, ...]


class Trail:
    """Of what the heads contain, without some revisions."""

    def __init__(self, engine: Engine, heads: Sequence[str], without: AbstractSet[str]) -> None:
        self._engine = engine
        self._heads = heads
        self._without = without
        self._headers: dict[DocumentName, dict[str, DocumentHeader]] = {}

    def visits(self, name: DocumentName) -> Iterator[DocumentVisit]:
        """Newest first. None where nothing ever had the name."""
        asked = {head: {name} for head in self._heads}
        for info in log.reached(self._engine, self._heads, self._without):
            for each in sorted(asked.pop(info.revision, ())):
                visit = self._visit(info, each)
                yield visit
                for origin in visit.origins:
                    asked.setdefault(origin.revision, set()).add(origin.name)
            if not asked:
                return

    def header(self, revision: str, name: DocumentName) -> DocumentHeader | None:
        if name not in self._headers:
            found: dict[str, DocumentHeader] = {}
            for head in self._heads:
                found |= self._engine.document_history(head, *name.key)
            self._headers[name] = found
        return self._headers[name].get(revision)

    def _visit(self, info: RevisionInfo, name: DocumentName) -> DocumentVisit:
        after = self.header(info.revision, name)
        befores = [(parent, self.header(parent, name)) for parent in info.parents]
        for parent, before in befores:
            if before == after:
                return DocumentVisit(info, name, False, before, after, self._followed([DocumentOrigin(parent, name)]))
        origins = [DocumentOrigin(parent, name) for parent, before in befores if before]
        if after and info.parents and not origins and (old := self._renamed(info, after)):
            origins = [DocumentOrigin(info.parents[0], old)]
        before = self.header(*origins[0]) if origins else None
        changed = bool(before or after)
        return DocumentVisit(info, name, changed, before, after, self._followed(origins))

    def _followed(self, origins: Sequence[DocumentOrigin]) -> tuple[DocumentOrigin, ...]:
        return tuple(each for each in origins if each.revision not in self._without)

    def _renamed(self, info: RevisionInfo, after: DocumentHeader) -> DocumentName | None:
        """The document of the first parent that this one was."""
        parent = info.parents[0]
        if not self._engine.count(parent):  # as before the first import, which may be large
            return None
        changes = self._engine.diff_headers(parent, info.revision).documents
        gone = [each.before for each in changes if each.before and not each.after]
        gone.sort(key=lambda each: (file_name(each) != file_name(after), each.collection != after.collection))
        equal = next((each for each in gone if each.content_hash == after.content_hash), None)
        found = equal or self._most_alike(parent, gone[:MOST_CANDIDATES], info.revision, after)
        return DocumentName(*found.key) if found else None

    def _most_alike(
        self, parent: str, gone: Sequence[DocumentHeader], revision: str, after: DocumentHeader
    ) -> DocumentHeader | None:
        if not gone:
            return None
        new = self._lines(revision, after)
        shares = [(likeness(self._lines(parent, each), new), each) for each in gone]
        share, found = max(shares, key=lambda each: each[0])
        return found if share >= ALIKE else None

    def _lines(self, revision: str, header: DocumentHeader) -> Counter[int]:
        document = self._engine.document(revision, *header.key)
        return lines_of(document.content if document else "")
