"""Follow one document through the history: which revisions changed it, and its former names.

`Trail` does this for `vmrag log` and `vmrag blame`. Like git, it ignores the other parents if the
document is equal in one parent. A document was renamed if a revision removed it and added another
one with an equal text, or with at least half of its lines. `with_moves` finds renamed documents in
a diff by the same rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from operator import itemgetter
from typing import NamedTuple

import msgspec

from vmrag_link.engines.base import Engine
from vmrag_link.models import DocumentHeader, HeaderChange, RevisionInfo, content_hash
from vmrag_link.workspace.history import diff as diffs
from vmrag_link.workspace.history import log
from vmrag_link.workspace.history.diff import Diff, DiffTexts
from vmrag_link.workspace.history.document_names import DocumentName

MAX_RENAME_CANDIDATES = 100
"""Maximum number of documents whose texts are compared. Those with the same file name are first."""

MIN_EQUAL_SHARE = 0.5
"""Minimum share of equal lines in a renamed document."""

_MAX_COMPARED_LINES = 5000
"""Further lines of a document are ignored, so that a hundred long ones fit in memory."""

_Trait = Callable[[DocumentHeader], object]
"""Return a value that a removed and a new document must share to be compared."""


class DocumentOrigin(NamedTuple):
    """The document in a parent of the revision."""

    revision: str
    name: DocumentName


class DocumentVisit(NamedTuple):
    """The document in one revision."""

    info: RevisionInfo
    name: DocumentName
    """Its name in this revision."""
    changed: bool
    """False if it is equal in a parent, which is then the only origin."""
    before: DocumentHeader | None
    """Its header in the first origin."""
    after: DocumentHeader | None
    """Its header in the revision."""
    origins: tuple[DocumentOrigin, ...]
    """The document in the parents that have it, perhaps under another name."""


class Trail:
    """The history of documents in the heads and their ancestors, except `without`."""

    def __init__(self, engine: Engine, heads: Sequence[str], without: AbstractSet[str]) -> None:
        self._engine = engine
        self._heads = heads
        self._without = without
        self._headers: dict[DocumentName, dict[str, DocumentHeader]] = {}

    def list_visits(self, name: DocumentName) -> Iterator[DocumentVisit]:
        """Yield the document in each revision, newest first. Renames are followed."""
        names_by_revision = {head: {name} for head in self._heads}
        for info in log.list_revisions(self._engine, self._heads, self._without):
            for document_name in sorted(names_by_revision.pop(info.revision, ())):
                visit = self._compare_parents(info, document_name)
                yield visit
                for origin in visit.origins:
                    names_by_revision.setdefault(origin.revision, set()).add(origin.name)
            if not names_by_revision:
                return

    def find_header(self, revision: str, name: DocumentName) -> DocumentHeader | None:
        """Return the header of a document in a revision, or None."""
        if name not in self._headers:
            headers: dict[str, DocumentHeader] = {}
            for head in self._heads:
                headers |= self._engine.read_document_history(head, *name.key)
            self._headers[name] = headers
        return self._headers[name].get(revision)

    def _compare_parents(self, info: RevisionInfo, name: DocumentName) -> DocumentVisit:
        """Return the document in a revision, compared with the parents of the revision."""
        after = self.find_header(info.revision, name)
        in_parents = {parent: self.find_header(parent, name) for parent in info.parents}
        equal_parent = next((parent for parent, before in in_parents.items() if before == after), None)
        if equal_parent is not None:
            origins = [DocumentOrigin(equal_parent, name)]
            before = after
            changed = False
        else:
            origins = [DocumentOrigin(parent, name) for parent, header in in_parents.items() if header]
            if after and info.parents and not origins:
                old_name = self._find_renamed(info, after)
                origins = [DocumentOrigin(info.parents[0], old_name)] if old_name else []
            before = self.find_header(*origins[0]) if origins else None
            changed = bool(before or after)
        listed = tuple(origin for origin in origins if origin.revision not in self._without)
        return DocumentVisit(info=info, name=name, changed=changed, before=before, after=after, origins=listed)

    def _find_renamed(self, info: RevisionInfo, after: DocumentHeader) -> DocumentName | None:
        """Return the document of the first parent that became this one, or None."""
        parent = info.parents[0]
        if not self._engine.count_documents(parent):  # for example before the first import, which may be large
            return None
        changes = self._engine.diff_headers(parent, info.revision).documents
        removed = [change.before for change in changes if change.before and not change.after]
        removed.sort(key=lambda header: (file_name(header) != file_name(after), header.collection != after.collection))
        match = next((header for header in removed if header.content_hash == after.content_hash), None)
        if match is None:
            match = self._find_most_alike(parent, removed[:MAX_RENAME_CANDIDATES], info.revision, after)
        return DocumentName(*match.key) if match else None

    def _find_most_alike(
        self, parent: str, removed: Sequence[DocumentHeader], revision: str, after: DocumentHeader
    ) -> DocumentHeader | None:
        """Return the removed document with most equal lines, or None if they are too few."""
        if not removed:
            return None
        new_lines = self._count_document_lines(revision, after)
        shares = [
            (measure_likeness(self._count_document_lines(parent, header), new_lines), header) for header in removed
        ]
        share, best = max(shares, key=itemgetter(0))
        return best if share >= MIN_EQUAL_SHARE else None

    def _count_document_lines(self, revision: str, header: DocumentHeader) -> Counter[int]:
        document = self._engine.find_document(revision, *header.key)
        return count_lines(document.content if document else "")


def with_moves(texts: DiffTexts, diff: Diff) -> Diff:
    """Return the diff with one change for each renamed document, instead of a removed and an added
    one.

    The change is `modified`, from the header with the old name to the header with the new one.
    Raises `KnowledgeMoved`.
    """
    old_by_new = {new: old for old, new in _DocumentPairs(texts, diff).match_pairs()}
    renamed = set(old_by_new.values())
    documents = []
    for change in diff.documents:
        if change.before is None and change.after in old_by_new:
            documents.append(HeaderChange("modified", old_by_new[change.after], change.after))
        elif change.after or change.before not in renamed:
            documents.append(change)
    return msgspec.structs.replace(diff, documents=tuple(documents))


def file_name(header: DocumentHeader) -> str:
    """Return the last part of a document's id."""
    return header.doc_id.rpartition("/")[2]


def count_lines(text: str) -> Counter[int]:
    """Count each line of a text. A line is its hash in this process."""
    return Counter(map(hash, text.splitlines()[:_MAX_COMPARED_LINES]))


def measure_likeness(old: Counter[int], new: Counter[int]) -> float:
    """Return how many lines both texts have, as a share of the longer text."""
    return (old & new).total() / (max(old.total(), new.total()) or 1)


class _DocumentPairs:
    """Removed and new documents that are not paired yet."""

    def __init__(self, texts: DiffTexts, diff: Diff) -> None:
        self._texts = texts
        self._removed = dict.fromkeys(
            document.before for document in diff.documents if document.before and not document.after
        )
        self._new = dict.fromkeys(
            document.after for document in diff.documents if document.after and not document.before
        )

    def match_pairs(self) -> Iterator[tuple[DocumentHeader, DocumentHeader]]:
        """Yield pairs of a removed document and the new one that it became, most certain first."""
        equal: tuple[_Trait, ...] = (
            lambda header: (header.content_hash, header.doc_id),
            lambda header: (header.content_hash, file_name(header)),
            lambda header: header.content_hash,
        )
        empty = content_hash("")
        for trait in equal:
            for removed, new in self._group_documents(trait):
                if removed[0].content_hash != empty:
                    yield from self._take_pairs(zip(removed, new, strict=False))
        for trait in (file_name, lambda _: ""):
            for removed, new in self._group_documents(trait):
                if max(len(removed), len(new)) <= MAX_RENAME_CANDIDATES:
                    yield from self._take_pairs(self._pair_alike(removed, new))

    def _group_documents(self, trait: _Trait) -> list[tuple[list[DocumentHeader], list[DocumentHeader]]]:
        """Group the remaining removed and new documents by a common trait."""
        groups: dict[object, tuple[list[DocumentHeader], list[DocumentHeader]]] = {}
        for header in self._removed:
            groups.setdefault(trait(header), ([], []))[0].append(header)
        for header in self._new:
            if group := groups.get(trait(header)):
                group[1].append(header)
        return [group for group in groups.values() if group[1]]

    def _take_pairs(
        self, pairs: Iterable[tuple[DocumentHeader, DocumentHeader]]
    ) -> Iterator[tuple[DocumentHeader, DocumentHeader]]:
        """Yield the pairs whose documents are not paired yet, and remove these documents."""
        for removed, new in pairs:
            if removed in self._removed and new in self._new:
                del self._removed[removed], self._new[new]
                yield removed, new

    def _pair_alike(
        self, removed: Sequence[DocumentHeader], new: Sequence[DocumentHeader]
    ) -> Iterator[tuple[DocumentHeader, DocumentHeader]]:
        """Pair documents, the most alike first."""
        before = self._count_document_lines(HeaderChange("removed", header, None) for header in removed)
        after = self._count_document_lines(HeaderChange("added", None, header) for header in new)
        shares = (
            (measure_likeness(old_lines, new_lines), old, other)
            for old, old_lines in zip(removed, before, strict=True)
            for other, new_lines in zip(new, after, strict=True)
        )
        alike = [share for share in shares if share[0] >= MIN_EQUAL_SHARE]
        alike.sort(key=lambda share: (-share[0], share[1].key, share[2].key))
        return ((old, other) for _, old, other in alike)

    def _count_document_lines(self, changes: Iterable[HeaderChange]) -> list[Counter[int]]:
        sides = diffs.read_sides(self._texts, changes)
        return [count_lines(document.content) for _, before, after in sides if (document := before or after)]
