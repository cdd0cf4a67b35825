"""One document through the history: which revisions changed it, and by what name it went before.

As with git, what a revision has from one of its parents, it did not change, and the other parents
are not looked at. A document that is new in a revision and takes the place of one that is removed
there goes on as that one: with an equal text, or with half of its lines. A diff of two places knows
moved documents by the same rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import msgspec

from vmrag_link.engines.base import Engine
from vmrag_link.models import DocumentHeader, HeaderChange, RevisionInfo, content_hash
from vmrag_link.workspace.history import diff as diffs
from vmrag_link.workspace.history import log
from vmrag_link.workspace.history.diff import Diff, DiffTexts
from vmrag_link.workspace.history.document_names import DocumentName

MOST_CANDIDATES = 100
"""Documents whose texts are compared with each other; those of one file name go first."""

ALIKE = 0.5
"""Share of the lines that a renamed document has kept, at least."""

_LINES = 5000
"""Of a document that are compared, so that a hundred long ones fit in memory."""

_Trait = Callable[[DocumentHeader], object]
"""What two documents have in common that may be one."""


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

    def list_visits(self, name: DocumentName) -> Iterator[DocumentVisit]:
        """Newest first. None where nothing ever had the name."""
        asked = {head: {name} for head in self._heads}
        for info in log.list_revisions(self._engine, self._heads, self._without):
            for each in sorted(asked.pop(info.revision, ())):
                visit = self._visit(info, each)
                yield visit
                for origin in visit.origins:
                    asked.setdefault(origin.revision, set()).add(origin.name)
            if not asked:
                return

    def find_header(self, revision: str, name: DocumentName) -> DocumentHeader | None:
        if name not in self._headers:
            found: dict[str, DocumentHeader] = {}
            for head in self._heads:
                found |= self._engine.read_document_history(head, *name.key)
            self._headers[name] = found
        return self._headers[name].get(revision)

    def _visit(self, info: RevisionInfo, name: DocumentName) -> DocumentVisit:
        after = self.find_header(info.revision, name)
        befores = [(parent, self.find_header(parent, name)) for parent in info.parents]
        for parent, before in befores:
            if before == after:
                return DocumentVisit(info, name, False, before, after, self._followed([DocumentOrigin(parent, name)]))
        origins = [DocumentOrigin(parent, name) for parent, before in befores if before]
        if after and info.parents and not origins and (old := self._renamed(info, after)):
            origins = [DocumentOrigin(info.parents[0], old)]
        before = self.find_header(*origins[0]) if origins else None
        changed = bool(before or after)
        return DocumentVisit(info, name, changed, before, after, self._followed(origins))

    def _followed(self, origins: Sequence[DocumentOrigin]) -> tuple[DocumentOrigin, ...]:
        return tuple(origin for origin in origins if origin.revision not in self._without)

    def _renamed(self, info: RevisionInfo, after: DocumentHeader) -> DocumentName | None:
        """The document of the first parent that this one was."""
        parent = info.parents[0]
        if not self._engine.count_documents(parent):  # as before the first import, which may be large
            return None
        changes = self._engine.diff_headers(parent, info.revision).documents
        gone = [change.before for change in changes if change.before and not change.after]
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
        shares = [(measure_likeness(self._lines(parent, each), new), each) for each in gone]
        share, found = max(shares, key=lambda each: each[0])
        return found if share >= ALIKE else None

    def _lines(self, revision: str, header: DocumentHeader) -> Counter[int]:
        document = self._engine.find_document(revision, *header.key)
        return count_lines(document.content if document else "")


def with_moves(read: DiffTexts, found: Diff) -> Diff:
    """The same differences, but with one change for each document that moved: `modified`, from the
    header under its old name to that under its new one.

    Raises `KnowledgeMoved`.
    """
    pairs = {new: old for old, new in _Matching(read, found).pairs()}
    gone = set(pairs.values())
    documents = []
    for document in found.documents:
        if document.before is None and document.after in pairs:
            documents.append(HeaderChange("modified", pairs[document.after], document.after))
        elif document.after or document.before not in gone:
            documents.append(document)
    return msgspec.structs.replace(found, documents=tuple(documents))


def file_name(header: DocumentHeader) -> str:
    return header.doc_id.rpartition("/")[2]


def count_lines(text: str) -> Counter[int]:
    """How often it has each line. A line is its hash in this process."""
    return Counter(map(hash, text.splitlines()[:_LINES]))


def measure_likeness(old: Counter[int], new: Counter[int]) -> float:
    """The share of lines that both have, of the longer one's."""
    return (old & new).total() / (max(old.total(), new.total()) or 1)


class _Matching:
    """Removed documents and new ones, fewer with every pair that is found."""

    def __init__(self, read: DiffTexts, found: Diff) -> None:
        self._read = read
        self._gone = dict.fromkeys(
            document.before for document in found.documents if document.before and not document.after
        )
        self._new = dict.fromkeys(
            document.after for document in found.documents if document.after and not document.before
        )

    def pairs(self) -> Iterator[tuple[DocumentHeader, DocumentHeader]]:
        """The old document and the new one that it is."""
        equal: tuple[_Trait, ...] = (
            lambda each: (each.content_hash, each.doc_id),
            lambda each: (each.content_hash, file_name(each)),
            lambda each: each.content_hash,
        )
        empty = content_hash("")
        for trait in equal:
            for gone, new in self._groups(trait):
                if gone[0].content_hash != empty:
                    yield from self._taken(zip(gone, new, strict=False))
        for trait in (file_name, lambda _: ""):
            for gone, new in self._groups(trait):
                if max(len(gone), len(new)) <= MOST_CANDIDATES:
                    yield from self._taken(self._alike(gone, new))

    def _groups(self, trait: _Trait) -> list[tuple[list[DocumentHeader], list[DocumentHeader]]]:
        """What is left, removed and new, by a trait that both have."""
        groups: dict[object, tuple[list[DocumentHeader], list[DocumentHeader]]] = {}
        for each in self._gone:
            groups.setdefault(trait(each), ([], []))[0].append(each)
        for each in self._new:
            if group := groups.get(trait(each)):
                group[1].append(each)
        return [group for group in groups.values() if group[1]]

    def _taken(
        self, pairs: Iterable[tuple[DocumentHeader, DocumentHeader]]
    ) -> Iterator[tuple[DocumentHeader, DocumentHeader]]:
        for gone, new in pairs:
            if gone in self._gone and new in self._new:
                del self._gone[gone], self._new[new]
                yield gone, new

    def _alike(
        self, gone: Sequence[DocumentHeader], new: Sequence[DocumentHeader]
    ) -> Iterator[tuple[DocumentHeader, DocumentHeader]]:
        """The most alike first."""
        before = self._lines(HeaderChange("removed", each, None) for each in gone)
        after = self._lines(HeaderChange("added", None, each) for each in new)
        shares = (
            (measure_likeness(old_lines, new_lines), old, other)
            for old, old_lines in zip(gone, before, strict=True)
            for other, new_lines in zip(new, after, strict=True)
        )
        found = [share for share in shares if share[0] >= ALIKE]
        found.sort(key=lambda each: (-each[0], each[1].key, each[2].key))
        return ((old, other) for _, old, other in found)

    def _lines(self, changes: Iterable[HeaderChange]) -> list[Counter[int]]:
        read = diffs.read_sides(self._read, changes)
        return [count_lines(document.content) for _, before, after in read if (document := before or after)]
