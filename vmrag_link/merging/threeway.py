"""Three-way merge: the rows to write on our side so that it contains the changes of both sides.

It uses the engine's row diffs against the base, so its cost depends on the number of changes. Any
revision can be the base, for example git's merge base if the engine's would differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple

import msgspec

from vmrag_link.engines import logical
from vmrag_link.engines.base import Engine, Write
from vmrag_link.engines.tables import DOCUMENTS, find_table
from vmrag_link.merging.choices import Choices, Decisions
from vmrag_link.merging.conflicts import COLLECTION, DOCUMENT, PROJECT, Conflict, find_conflict
from vmrag_link.merging.rows import R
from vmrag_link.models import At, Collection, Difference, Document, DocumentChange, Project, ProjectChange, Record

Key = tuple[str, str]

Derived = Callable[[Collection, str], bool]
"""Return True if a file is a document of the code's tree and needs no stored document. Gets a
collection and the `Document.source` of a document in it.
"""


def stored_alone(_collection: Collection, _source: str) -> bool:
    """Return False: a `Derived` for a knowledge base without files as documents."""
    return False


class MergeResult(Record, frozen=True):
    """The result of a merge."""

    rows: Write
    """The rows that turn our side into the result, except open conflicts."""
    conflicts: tuple[Conflict, ...]
    """The open conflicts."""
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
    merger = _Merger(engine=engine, base=base, ours=ours, theirs=theirs, decisions=decisions or {}, derived=derived)
    return merger.merge_differences(engine.diff(base, ours), engine.diff(base, theirs))


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


class _CollectionSides(NamedTuple):
    """A collection's row on each side, and whether that side changed it or its documents."""

    base: Collection | None
    ours: Collection | None
    theirs: Collection | None
    ours_changed: bool
    theirs_changed: bool

    @property
    def is_contested(self) -> bool:
        """True if one side removed the collection and the other wrote to it."""
        is_written = self.theirs_changed if self.ours is None else self.ours_changed
        return self.base is not None and (self.ours is None) != (self.theirs is None) and is_written


class _Merged(NamedTuple, Generic[R]):
    """A merged row, None if it is removed."""

    row: R | None
    is_resolved: bool = True
    """False if the row has an open conflict. Then `row` has no meaning."""


class _Merger(msgspec.Struct):
    """One merge: its inputs, and the rows and conflicts so far."""

    engine: Engine
    base: str
    ours: At
    theirs: At
    decisions: Decisions
    derived: Derived
    collections: dict[str, Collection] | None = None
    """The collections of all three sides by name, read when they are needed first."""
    whole_collections: set[str] = set()
    """Names of collections that are removed or kept with all their documents."""
    put_collections: list[Collection] = []
    remove_collections: list[str] = []
    put_documents: list[Document] = []
    remove_documents: list[Key] = []
    put_projects: list[Project] = []
    remove_projects: list[str] = []
    open_conflicts: list[Conflict] = []
    decided_conflicts: list[Conflict] = []

    def merge_differences(self, our_changes: Difference, their_changes: Difference) -> MergeResult:
        """Merge all rows. Collections come first, because a removed one decides about its
        documents.
        """
        self._merge_collections(our_changes, their_changes)
        our_documents = _group_by_key(our_changes.documents)
        added = {_identify_row(change.after): key for key, change in our_documents.items() if change.kind == "added"}
        for key, change in _group_by_key(their_changes.documents).items():
            our_key = added.get(_identify_row(change.after), key) if change.kind == "added" else key
            self._merge_document(our_key, our_documents.get(our_key), change)
        our_projects = {change.key: change for change in our_changes.projects}
        for project in their_changes.projects:
            self._merge_project(our_projects.get(project.key), project)
        rows = Write(
            put_collections=tuple(self.put_collections),
            remove_collections=tuple(self.remove_collections),
            put_documents=tuple(self.put_documents),
            remove_documents=tuple(self.remove_documents),
            put_projects=tuple(self.put_projects),
            remove_projects=tuple(self.remove_projects),
        )
        return MergeResult(rows, tuple(self.open_conflicts), tuple(self.decided_conflicts))

    # -- collections: a collection that a side removed is removed or kept with all its documents

    def _merge_collections(self, our_changes: Difference, their_changes: Difference) -> None:
        for name, sides in _list_collections(our_changes, their_changes).items():
            row, is_resolved = self._merge_collection(name, sides)
            if sides.is_contested or row is None:
                self.whole_collections.add(name)
            if not is_resolved:
                continue
            if row is None:
                if sides.ours is not None:
                    self.remove_collections.append(name)
                continue
            if row != sides.ours:
                self.put_collections.append(row)
            if sides.is_contested and sides.ours is None:
                self.put_documents += self.engine.read_documents(self.theirs, collection=name)

    def _merge_collection(self, name: str, sides: _CollectionSides) -> _Merged[Collection]:
        base, ours, theirs, _, theirs_changed = sides
        if ours is not None and theirs is not None:
            return self._resolve_conflict(*find_conflict(name, "", base, ours, theirs))
        if sides.is_contested:
            written_side = self.theirs if ours is None else self.ours
            if self._are_all_derived(ours or theirs, written_side):
                return _Merged(None)
            documents = self.engine.count_documents(written_side, collection=name)
            conflict = Conflict(
                collection=name,
                doc_id="",
                fields=(COLLECTION,),
                base=base,
                ours=ours,
                theirs=theirs,
                merged=None,
                documents=documents,
            )
            return self._resolve_conflict(conflict, ours)
        return _Merged(theirs if theirs_changed else ours)

    # -- documents

    def _merge_document(self, key: Key, our_change: DocumentChange | None, their_change: DocumentChange) -> None:
        """Apply their change. `our_change` is our change of the same document, and `key` its key in
        the base.
        """
        if (their_change.after.collection if their_change.after else key[0]) in self.whole_collections:
            return
        if our_change is None:
            self._put_document(key if their_change.before else None, their_change.after)
            return
        if our_change.after == their_change.after:
            return
        base = self.engine.find_document(self.base, *key) if their_change.before else None
        row, is_resolved = self._merge_row(*key, base, our_change.after, their_change.after)
        if row and their_change.after and row.table == DOCUMENTS.name:  # a row of a separate table stays in it
            row = msgspec.structs.replace(row, table=their_change.after.table)
        if is_resolved and row != our_change.after:
            self._put_document(our_change.after.key if our_change.after else None, row)

    def _merge_project(self, our_change: ProjectChange | None, their_change: ProjectChange) -> None:
        key = their_change.key
        base = their_change.before
        theirs = their_change.after
        ours = our_change.after if our_change else base
        row, is_resolved = self._merge_row("", key, base, ours, theirs) if our_change else _Merged(theirs)
        if not is_resolved or row == ours:
            return
        if row is None:
            self.remove_projects.append(key)
        else:
            self.put_projects.append(row)

    def _merge_row(self, collection: str, doc_id: str, base: R | None, ours: R | None, theirs: R | None) -> _Merged[R]:
        if ours is None or theirs is None:
            if ours == theirs:
                return _Merged(None)
            remaining = ours or theirs
            if isinstance(remaining, Document) and self._is_derived(remaining):
                return _Merged(None)
            field = PROJECT if isinstance(remaining, Project) else DOCUMENT
            conflict = Conflict(
                collection=collection,
                doc_id=doc_id,
                fields=(field,),
                base=base,
                ours=ours,
                theirs=theirs,
                merged=None,
            )
            return self._resolve_conflict(conflict, ours)
        return self._resolve_conflict(*find_conflict(collection, doc_id, base, ours, theirs))

    def _is_derived(self, document: Document) -> bool:
        """Return whether a document that one side removed is a file of the code's tree."""
        if document.table != DOCUMENTS.name or not document.source:
            return False
        if self.collections is None:
            sides: tuple[At, ...] = (self.base, self.theirs, self.ours)
            self.collections = {row.name: row for at in sides for row in self.engine.list_collections(at)}
        collection = self.collections.get(document.collection)
        return collection is not None and self.derived(collection, document.source)

    def _are_all_derived(self, collection: Collection | None, at: At) -> bool:
        """Return whether all documents of a collection that one side removed, and the other has at
        this place, are files of the code's tree.
        """
        if collection is None:
            return False
        sources = self.engine.list_sources(at, collection.name)
        have_all_sources = len(sources) == self.engine.count_documents(at, collection=collection.name)
        return have_all_sources and all(source and self.derived(collection, source) for _, source in sources)

    def _put_document(self, our_key: Key | None, row: Document | None) -> None:
        """Put a document in place of our document with the key `our_key`."""
        row = row and logical.normalize_document(row)
        if row is not None:
            self.put_documents.append(row)
        if our_key and (row is None or row.key != our_key):
            self.remove_documents.append(our_key)

    def _resolve_conflict(self, conflict: Conflict, merged: R | None) -> _Merged[R]:
        """Return `merged` if nothing is in conflict, or else the row that the decisions choose."""
        if not conflict.fields:
            return _Merged(merged)
        choices: Choices = self.decisions.get(conflict.id, {})
        if conflict.list_open_fields(choices):
            self.open_conflicts.append(conflict)
            return _Merged(None, is_resolved=False)
        self.decided_conflicts.append(conflict)
        return _Merged(conflict.resolve_row(choices))  # type: ignore[arg-type]  # a conflict's rows are all of one kind


def _group_by_key(changes: Sequence[DocumentChange]) -> dict[Key, DocumentChange]:
    """Return the changes by their key in the base revision.

    If a row of a separate table moved to another collection, the difference contains a removal and
    an addition. The result contains one modification.
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


def _list_collections(our_changes: Difference, their_changes: Difference) -> dict[str, _CollectionSides]:
    """Return the collections to merge: collections that theirs changed, and collections that ours
    removed although theirs wrote documents to them.
    """
    ours = {change.key: change for change in our_changes.collections}
    theirs = {change.key: change for change in their_changes.collections}
    written_by_ours = {document.key[0] for document in our_changes.documents if document.after}
    written_by_theirs = {document.key[0] for document in their_changes.documents if document.after}
    removed_by_ours = {name for name, change in ours.items() if change.after is None}
    sides = {}
    for name in sorted(theirs.keys() | (removed_by_ours & written_by_theirs)):
        our_change, their_change = ours.get(name), theirs.get(name)
        change = our_change or their_change
        base = change.before if change else None
        sides[name] = _CollectionSides(
            base,
            our_change.after if our_change else base,
            their_change.after if their_change else base,
            our_change is not None or name in written_by_ours,
            their_change is not None or name in written_by_theirs,
        )
    return sides
