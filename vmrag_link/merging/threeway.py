"""Three-way merge: the rows to write on our side so that it contains the changes of both sides.

It uses the engine's row diffs against the base, so its cost depends on the number of changes. Any
revision can be the base, for example git's merge base if the engine's would differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from vmrag_link.engines import logical
from vmrag_link.engines.base import Engine, Write
from vmrag_link.engines.tables import DOCUMENTS, find_table
from vmrag_link.merging.choices import Choices, Decisions
from vmrag_link.merging.conflicts import COLLECTION, DOCUMENT, PROJECT, Conflict, find_conflict
from vmrag_link.merging.rows import R
from vmrag_link.models import (
    At,
    Collection,
    Difference,
    Document,
    DocumentChange,
    Project,
    ProjectChange,
    Record,
)

Key = tuple[str, str]

Derived = Callable[[Collection, str], bool]
"""Return True if a file is a document of the code's tree and needs no stored document. Gets a
collection and the `Document.source` of a document in it.
"""


def stored_alone(_collection: Collection, _source: str) -> bool:
    """Return False: a `Derived` for a knowledge base without files as documents."""
    return False


class MergeResult(Record, frozen=True):
    """The result of a merge. `rows` turn our side into the result, except undecided `conflicts`."""

    rows: Write
    conflicts: tuple[Conflict, ...]
    decided: tuple[Conflict, ...]
    """The conflicts that the decisions resolved."""

    @classmethod
    def from_nothing(cls) -> MergeResult:
        """Return the result of a merge without changes."""
        return cls(Write(), (), ())

    @property
    def is_empty(self) -> bool:
        """True if our side already contains everything, conflicts excepted."""
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
    """Merge the changes from `base` to `theirs` into `ours`.

    A row that one side removed and the other changed is in conflict, unless it is `derived`: then
    the removal wins. Raises `RevisionMissing`.
    """
    our_changes, their_changes = engine.diff(base, ours), engine.diff(base, theirs)
    merger = _Merger(engine, base, ours, theirs, decisions=decisions or {}, derived=derived)
    merger.merge_collections(our_changes, their_changes)
    ours_changed = _group_by_key(our_changes.documents)
    new_rows = {_identify_row(change.after): key for key, change in ours_changed.items() if change.kind == "added"}
    for key, change in _group_by_key(their_changes.documents).items():
        our_key = new_rows.get(_identify_row(change.after), key) if change.kind == "added" else key
        merger.merge_document(our_key, ours_changed.get(our_key), change)
    our_projects = {change.key: change for change in our_changes.projects}
    for project in their_changes.projects:
        merger.merge_project(our_projects.get(project.key), project)
    return merger.build_result()


def convert_to_rows(difference: Difference) -> Write:
    """Return the rows that turn the old state of a difference into the new one."""
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
    def is_contested(self) -> bool:
        """True if one side removed the collection and the other wrote to it."""
        kept_changed = self.theirs_changed if self.ours is None else self.ours_changed
        return self.base is not None and (self.ours is None) != (self.theirs is None) and kept_changed


class _Merger:
    """State of one merge."""

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

    def build_result(self) -> MergeResult:
        rows = Write(
            put_collections=tuple(self._put_collections),
            remove_collections=tuple(self._remove_collections),
            put_documents=tuple(self._put),
            remove_documents=tuple(self._remove),
            put_projects=tuple(self._put_projects),
            remove_projects=tuple(self._remove_projects),
        )
        return MergeResult(rows, tuple(self._open), tuple(self._decided))

    # -- collections: a collection that a side removed is removed or kept with all its documents

    def merge_collections(self, our_changes: Difference, their_changes: Difference) -> None:
        for name, sides in _list_collections(our_changes, their_changes).items():
            row, is_settled = self._merge_collection(name, sides)
            if sides.is_contested or row is None:
                self._whole.add(name)
            if not is_settled:
                continue
            if row is None:
                if sides.ours is not None:
                    self._remove_collections.append(name)
                continue
            if row != sides.ours:
                self._put_collections.append(row)
            if sides.is_contested and sides.ours is None:
                self._put += self._engine.read_documents(self._theirs, collection=name)

    def _merge_collection(self, name: str, sides: _Sides) -> tuple[Collection | None, bool]:
        """Return the resulting row, and whether there is no open conflict."""
        base, ours, theirs, _, theirs_changed = sides
        if ours is not None and theirs is not None:
            return self._resolve_conflict(*find_conflict(name, "", base, ours, theirs))
        if sides.is_contested:
            kept = self._theirs if ours is None else self._ours
            if self._are_all_derived(ours or theirs, kept):
                return None, True
            documents = self._engine.count_documents(kept, collection=name)
            return self._resolve_conflict(Conflict(name, "", (COLLECTION,), base, ours, theirs, None, documents), ours)
        return (theirs if theirs_changed else ours), True

    # -- documents

    def merge_document(self, key: Key, our_change: DocumentChange | None, their_change: DocumentChange) -> None:
        """Apply their change. `our_change` is our change of the same document, and `key` its key in
        the base.
        """
        if (their_change.after.collection if their_change.after else key[0]) in self._whole:
            return
        if our_change is None:
            self._put_document(key if their_change.before else None, their_change.after)
            return
        if our_change.after == their_change.after:
            return
        base = self._engine.find_document(self._base, *key) if their_change.before else None
        row, is_settled = self._merge_row(*key, base, our_change.after, their_change.after)
        if row and their_change.after and row.table == DOCUMENTS.name:  # a row of a separate table stays in it
            row = msgspec.structs.replace(row, table=their_change.after.table)
        if is_settled and row != our_change.after:
            self._put_document(our_change.after.key if our_change.after else None, row)

    def merge_project(self, our_change: ProjectChange | None, their_change: ProjectChange) -> None:
        row, is_settled, ours = their_change.after, True, their_change.before
        if our_change:
            ours = our_change.after
            row, is_settled = self._merge_row("", their_change.key, their_change.before, ours, their_change.after)
        if is_settled and row is not None and row != ours:
            self._put_projects.append(row)
        elif is_settled and row is None and ours is not None:
            self._remove_projects.append(their_change.key)

    def _merge_row(
        self, collection: str, doc_id: str, base: R | None, ours: R | None, theirs: R | None
    ) -> tuple[R | None, bool]:
        """Return the row that results from the changes of both sides, and whether there is no open
        conflict.
        """
        if ours is None or theirs is None:
            if ours == theirs:
                return None, True
            remaining = ours or theirs
            if isinstance(remaining, Document) and self._is_derived(remaining):
                return None, True
            field = PROJECT if isinstance(remaining, Project) else DOCUMENT
            return self._resolve_conflict(Conflict(collection, doc_id, (field,), base, ours, theirs, None), ours)
        return self._resolve_conflict(*find_conflict(collection, doc_id, base, ours, theirs))

    def _is_derived(self, document: Document) -> bool:
        """Return whether a document that one side removed is a file of the code's tree."""
        if document.table != DOCUMENTS.name or not document.source:
            return False
        if self._rows is None:
            places: tuple[At, ...] = (self._base, self._theirs, self._ours)
            self._rows = {row.name: row for at in places for row in self._engine.list_collections(at)}
        collection = self._rows.get(document.collection)
        return collection is not None and self._derived(collection, document.source)

    def _are_all_derived(self, collection: Collection | None, at: At) -> bool:
        """Return whether all documents of a collection that one side removed, and the other has at
        this place, are files of the code's tree.
        """
        if collection is None:
            return False
        sources = self._engine.list_sources(at, collection.name)
        have_all_sources = len(sources) == self._engine.count_documents(at, collection=collection.name)
        return have_all_sources and all(source and self._derived(collection, source) for _, source in sources)

    def _put_document(self, our_key: Key | None, row: Document | None) -> None:
        """Put a document in place of our document with the key `our_key`."""
        row = row and logical.normalize_document(row)
        if row is not None:
            self._put.append(row)
        if our_key and (row is None or row.key != our_key):
            self._remove.append(our_key)

    def _resolve_conflict(self, conflict: Conflict, merged: R | None) -> tuple[R | None, bool]:
        """Return the resulting row, and whether nothing is in conflict or everything was
        decided.
        """
        if not conflict.fields:
            return merged, True
        choices: Choices = self._decisions.get(conflict.id, {})
        if conflict.list_open_fields(choices):
            self._open.append(conflict)
            return None, False
        self._decided.append(conflict)
        return conflict.resolve_row(choices), True  # type: ignore[return-value]  # a conflict's rows are all of one kind


def _group_by_key(changes: Sequence[DocumentChange]) -> dict[Key, DocumentChange]:
    """Return the changes by their key in the base revision.

    A row of a separate table that now implies another collection is one change, of a document that
    moved. The difference contains two changes for it.
    """
    by_key = {change.key: change for change in changes}
    removed = {
        (logical.implied_table(key[0]), key[1]): change for key, change in by_key.items() if change.kind == "removed"
    }
    for change in changes:
        if change.kind == "added" and change.after and change.after.table != DOCUMENTS.name:
            before = removed.get((find_table(change.after), change.after.doc_id))
            if before:
                del by_key[change.key]
                by_key[before.key] = DocumentChange("modified", before.before, change.after)
    return by_key


def _identify_row(document: Document | None) -> tuple[str, ...] | None:
    """Return the key of a document in its table."""
    if document is None:
        return None
    return document.key if document.table == DOCUMENTS.name else (document.table, "", document.doc_id)


def _list_collections(our_changes: Difference, their_changes: Difference) -> dict[str, _Sides]:
    """Return the collections to merge: those that theirs changed, and those that ours removed
    although theirs wrote documents to them.
    """
    ours, theirs = (
        {collection.key: collection for collection in our_changes.collections},
        {collection.key: collection for collection in their_changes.collections},
    )
    written = {document.key[0] for document in their_changes.documents if document.after}
    ours_written = {document.key[0] for document in our_changes.documents if document.after}
    removed = {name for name, our in ours.items() if our.after is None}
    sides = {}
    for name in sorted(theirs.keys() | (removed & written)):
        one, other = ours.get(name), theirs.get(name)
        change = one or other
        base = change.before if change else None
        sides[name] = _Sides(
            base,
            one.after if one else base,
            other.after if other else base,
            one is not None or name in ours_written,
            other is not None or name in written,
        )
    return sides
