"""The three-way merge: the rows to write on our side so that it holds the changes of both.

It starts from the engine's row diffs against the base, so it costs by the number of changes, and
any revision can be the base: git's, where the engine's own merge base would be another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from vmrag_link.engines import logical
from vmrag_link.engines.base import Engine, Write
from vmrag_link.engines.tables import DOCUMENTS
from vmrag_link.merging.choices import Choices, Decisions
from vmrag_link.merging.conflicts import COLLECTION, DOCUMENT, PROJECT, Conflict, find_conflict
from vmrag_link.merging.rows import R
from vmrag_link.models import (
    At,
    Collection,
    CollectionChange,
    Difference,
    Document,
    DocumentChange,
    Project,
    ProjectChange,
    Record,
)

Key = tuple[str, str]

Derived = Callable[[Collection, str], bool]
"""Whether a file is a document of the code's tree, and needs no stored one: of a collection by the
`Document.source` in it.
"""


def stored_alone(_collection: Collection, _source: str) -> bool:
    """A `Derived` for knowledge that no file stands for."""
    return False


class MergeResult(Record, frozen=True):
    """`rows` turn our side into the result, except undecided `conflicts`.

    `decided` are the conflicts that the decisions settled.
    """

    rows: Write
    conflicts: tuple[Conflict, ...]
    decided: tuple[Conflict, ...]

    @classmethod
    def from_nothing(cls) -> MergeResult:
        return cls(Write(), (), ())

    @property
    def is_empty(self) -> bool:
        """Whether our side holds everything already, conflicts apart."""
        return self.rows.is_empty


def merge(
    engine: Engine,
    *,
    base: str,
    ours: At,
    theirs: At,
    decisions: Decisions | None = None,
    derived: Derived = stored_alone,
) -> MergeResult:
    """What one side removed and the other changed is in conflict, unless it is `derived`: then the
    removal counts. Raises `RevisionMissing`.
    """
    left, right = engine.diff(base, ours), engine.diff(base, theirs)
    under_way = _Merge(engine, base, ours, theirs, decisions=decisions or {}, derived=derived)
    under_way.collections(left, right)
    ours_changed = _by_key(left.documents)
    new_rows = {_row_of(each.after): key for key, each in ours_changed.items() if each.kind == "added"}
    for key, change in _by_key(right.documents).items():
        met = new_rows.get(_row_of(change.after), key) if change.kind == "added" else key
        under_way.document(met, ours_changed.get(met), change)
    our_projects = {change.key: change for change in left.projects}
    for project in right.projects:
        under_way.project(our_projects.get(project.key), project)
    return under_way.result()


def convert_to_rows(difference: Difference) -> Write:
    """What turns its old state into its new one."""
    removed = {collection.key for collection in difference.collections if collection.after is None}
    return Write(
        put_collections=[collection.after for collection in difference.collections if collection.after],
        remove_collections=sorted(removed),
        put_documents=[document.after for document in difference.documents if document.after],
        remove_documents=[
            document.key for document in difference.documents if not document.after and document.key[0] not in removed
        ],
        put_projects=[project.after for project in difference.projects if project.after],
        remove_projects=[project.key for project in difference.projects if not project.after],
    )


class _Sides(NamedTuple):
    """A collection's row on each side, and whether that side changed it or its documents."""

    base: Collection | None
    ours: Collection | None
    theirs: Collection | None
    ours_changed: bool
    theirs_changed: bool

    @property
    def contested(self) -> bool:
        """Whether one side removed what the other wrote to."""
        kept_changed = self.theirs_changed if self.ours is None else self.ours_changed
        return self.base is not None and (self.ours is None) != (self.theirs is None) and kept_changed


class _Merge:
    """One merge under way."""

    def __init__(
        self, engine: Engine, base: str, ours: At, theirs: At, *, decisions: Decisions, derived: Derived
    ) -> None:
        self._engine = engine
        self._base = base
        self._ours = ours
        self._theirs = theirs
        self._decisions = decisions
        self._derived = derived
        self._rows: dict[str, Collection] | None = None
        self._whole: set[str] = set()
        self._put_collections: list[Collection] = []
        self._remove_collections: list[str] = []
        self._put: list[Document] = []
        self._remove: list[Key] = []
        self._put_projects: list[Project] = []
        self._remove_projects: list[str] = []
        self._open: list[Conflict] = []
        self._decided: list[Conflict] = []

    def result(self) -> MergeResult:
        rows = Write(
            put_collections=tuple(self._put_collections),
            remove_collections=tuple(self._remove_collections),
            put_documents=tuple(self._put),
            remove_documents=tuple(self._remove),
            put_projects=tuple(self._put_projects),
            remove_projects=tuple(self._remove_projects),
        )
        return MergeResult(rows, tuple(self._open), tuple(self._decided))

    # -- collections: one that a side removed goes or stays with all its documents

    def collections(self, left: Difference, right: Difference) -> None:
        for name, sides in _collections(left, right).items():
            row, settled = self._collection(name, sides)
            if sides.contested or row is None:
                self._whole.add(name)
            if not settled:
                continue
            if row is None:
                if sides.ours is not None:
                    self._remove_collections.append(name)
                continue
            if row != sides.ours:
                self._put_collections.append(row)
            if sides.contested and sides.ours is None:
                self._put += self._engine.read_documents(self._theirs, collection=name)

    def _collection(self, name: str, sides: _Sides) -> tuple[Collection | None, bool]:
        """The row that results, and whether that is settled."""
        base, ours, theirs, _, theirs_changed = sides
        if ours is not None and theirs is not None:
            return self._settle(*find_conflict(name, "", base, ours, theirs))
        if sides.contested:
            kept = self._theirs if ours is None else self._ours
            if self._all_derived(ours or theirs, kept):
                return None, True
            documents = self._engine.count_documents(kept, collection=name)
            return self._settle(Conflict(name, "", (COLLECTION,), base, ours, theirs, None, documents), ours)
        return (theirs if theirs_changed else ours), True

    # -- documents

    def document(self, key: Key, left: DocumentChange | None, right: DocumentChange) -> None:
        """Take over a change of theirs; `left` is ours of the same document, `key` the base's."""
        if (right.after.collection if right.after else key[0]) in self._whole:
            return
        if left is None:
            self._take(key if right.before else None, right.after)
            return
        if left.after == right.after:
            return
        base = self._engine.find_document(self._base, *key) if right.before else None
        row, settled = self._row(*key, base, left.after, right.after)
        if row and right.after and row.table == DOCUMENTS.name:  # a row of a table of its own stays one
            row = msgspec.structs.replace(row, table=right.after.table)
        if settled and row != left.after:
            self._take(left.after.key if left.after else None, row)

    def project(self, left: ProjectChange | None, right: ProjectChange) -> None:
        row, settled, ours = right.after, True, right.before
        if left:
            ours = left.after
            row, settled = self._row("", right.key, right.before, ours, right.after)
        if settled and row is not None and row != ours:
            self._put_projects.append(row)
        elif settled and row is None and ours is not None:
            self._remove_projects.append(right.key)

    def _row(
        self, collection: str, doc_id: str, base: R | None, ours: R | None, theirs: R | None
    ) -> tuple[R | None, bool]:
        """The row that results of what both sides changed, and whether that is settled."""
        if ours is None or theirs is None:
            if ours == theirs:
                return None, True
            left = ours or theirs
            if isinstance(left, Document) and self._is_derived(left):
                return None, True
            whole = PROJECT if isinstance(left, Project) else DOCUMENT
            return self._settle(Conflict(collection, doc_id, (whole,), base, ours, theirs, None), ours)
        return self._settle(*find_conflict(collection, doc_id, base, ours, theirs))

    def _is_derived(self, document: Document) -> bool:
        """Of a document that one side has removed."""
        if document.table != DOCUMENTS.name or not document.source:
            return False
        if self._rows is None:
            places: tuple[At, ...] = (self._base, self._theirs, self._ours)
            self._rows = {each.name: each for at in places for each in self._engine.list_collections(at)}
        collection = self._rows.get(document.collection)
        return collection is not None and self._derived(collection, document.source)

    def _all_derived(self, collection: Collection | None, at: At) -> bool:
        """Of a collection that one side has removed, and the other has at this place."""
        if collection is None:
            return False
        found = self._engine.list_sources(at, collection.name)
        every = len(found) == self._engine.count_documents(at, collection=collection.name)
        return every and all(source and self._derived(collection, source) for _, source in found)

    def _take(self, there: Key | None, row: Document | None) -> None:
        """Put a document in the place of ours, which is `there`."""
        row = row and logical.normalize_document(row)
        if row is not None:
            self._put.append(row)
        if there and (row is None or row.key != there):
            self._remove.append(there)

    def _settle(self, conflict: Conflict, merged: R | None) -> tuple[R | None, bool]:
        """The resulting row where nothing is in conflict, or all of it was decided."""
        if not conflict.fields:
            return merged, True
        choices: Choices = self._decisions.get(conflict.id, {})
        if conflict.list_open_fields(choices):
            self._open.append(conflict)
            return None, False
        self._decided.append(conflict)
        return conflict.resolve_row(choices), True  # type: ignore[return-value]  # a conflict's rows are all of one kind


def _by_key(changes: Sequence[DocumentChange]) -> dict[Key, DocumentChange]:
    """By the key in the base.

    A row of another table that implies another collection than before is one change, of a document
    that moved; a difference shows two.
    """
    found = {change.key: change for change in changes}
    gone = {(logical.implied_table(key[0]), key[1]): each for key, each in found.items() if each.kind == "removed"}
    for change in changes:
        if change.kind == "added" and change.after and change.after.table != DOCUMENTS.name:
            before = gone.get((logical.find_document_table(change.after), change.after.doc_id))
            if before:
                del found[change.key]
                found[before.key] = DocumentChange("modified", before.before, change.after)
    return found


def _row_of(document: Document | None) -> tuple[str, ...] | None:
    """By what its table knows a document."""
    if document is None:
        return None
    return document.key if document.table == DOCUMENTS.name else (document.table, "", document.doc_id)


def _collections(left: Difference, right: Difference) -> dict[str, _Sides]:
    """The collections to merge: changed by theirs, or removed by ours under their documents."""
    ours, theirs = (
        {collection.key: collection for collection in left.collections},
        {collection.key: collection for collection in right.collections},
    )
    written = {document.key[0] for document in right.documents if document.after}
    ours_written = {document.key[0] for document in left.documents if document.after}
    removed = {name for name, our in ours.items() if our.after is None}
    found = {}
    for name in sorted(theirs.keys() | (removed & written)):
        one, other = ours.get(name), theirs.get(name)
        base = _before(one, other)
        found[name] = _Sides(
            base,
            one.after if one else base,
            other.after if other else base,
            one is not None or name in ours_written,
            other is not None or name in written,
        )
    return found


def _before(one: CollectionChange | None, other: CollectionChange | None) -> Collection | None:
    change = one or other
    return change.before if change else None
