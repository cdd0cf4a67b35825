"""Create the system collections in advance, and move them after a change of `system.versioned`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from vmrag_link.engines.base import Write
from vmrag_link.models import CODEBASE, SYSTEM_COLLECTIONS, At, Collection, Document, Record
from vmrag_link.ops.stores import stores
from vmrag_link.ops.stores.stores import CollectionPut
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.documents import writing
from vmrag_link.workspace.documents.collections import find_exact
from vmrag_link.workspace.documents.misplaced import PRIVATE_COLLECTIONS, find_source, list_private
from vmrag_link.workspace.documents.writing import Planned, WriteResult
from vmrag_link.workspace.follow.follow_pin import follow

if TYPE_CHECKING:
    from vmrag_link.workspace import DocumentStore


class SetupReport(Record, frozen=True):
    created: list[str]
    existing: list[str]


def setup_collections(ws: Workspace) -> WriteResult[SetupReport]:
    """Create the system collections that do not exist, each in its place. Raises the errors of
    `writing.write_rows`.
    """
    store = stores.find_tools_store(ws)
    if store is ws:
        return _create_missing(ws, SYSTEM_COLLECTIONS)
    private, versioned = _create_missing(store, PRIVATE_COLLECTIONS), _create_missing(ws, (CODEBASE,))
    report = SetupReport(
        [*versioned.report.created, *private.report.created], [*versioned.report.existing, *private.report.existing]
    )
    return versioned._replace(report=report)


def _create_missing(store: DocumentStore, names: Sequence[str]) -> WriteResult[SetupReport]:
    def plan_move(at: At) -> Planned[SetupReport]:
        chunking = {CODEBASE: stores.read_chunking(store)}
        collections = [
            stores.find_or_define(store, at, name, chunking=chunking.get(name, stores.WHOLE_TEXT)) for name in names
        ]
        puts = [stores.CollectionPut(collection, new, ()) for collection, new in collections if new]
        created = [put.collection.name for put in puts]
        existing = [collection.name for collection, new in collections if not new]
        write = stores.prepare_write(store, puts) if puts else None
        return Planned(write, SetupReport(created, existing))

    return writing.write_rows(store, plan_move, "make the system collections")


class MoveReport(Record, frozen=True):
    """Numbers of documents by collection."""

    versioned: bool
    """True if the documents are part of the knowledge base now."""
    moved: dict[str, int]
    kept: dict[str, int]
    """Documents that were not moved, because the other place has different ones with their ids."""


class _Read(NamedTuple):
    """A collection that was read, with its documents by id."""

    collection: Collection
    documents: dict[str, Document]


def move_documents(ws: Workspace) -> WriteResult[MoveReport]:
    """Move the documents of system collections to the place of the setting.

    They are stored in the new place and then removed from the old one, so that a kill leaves them
    in both. The history of the knowledge base keeps what was committed. Raises the errors of
    `writing.write_rows`.
    """
    follow(ws, index=False, tolerate="failures")
    versioned = ws.config.system.versioned
    source, at = find_source(ws)
    target: DocumentStore = ws if versioned else ws.local
    read = [] if at is None else _read_collections(source, at)
    if not any(contents.documents for contents in read):
        return WriteResult(MoveReport(versioned, {}, {}), None, versioned=versioned)
    stored = writing.write_rows(target, lambda place: _plan_storing(target, place, read), "move system collections")
    kept = stored.report
    moved = [
        _Read(collection, {i: row for i, row in rows.items() if i not in kept[collection.name]})
        for collection, rows in read
    ]
    removed = writing.write_rows(source, lambda place: _plan_removing(source, place, moved), "move system collections")
    report = MoveReport(
        versioned,
        {collection.name: len(rows) for collection, rows in moved if rows},
        {name: len(ids) for name, ids in kept.items() if ids},
    )
    branch, pending = stored.branch or removed.branch, stored.pending or removed.pending
    return WriteResult(report, branch, pending, versioned=versioned)


def _read_collections(store: DocumentStore, at: At) -> list[_Read]:
    return [
        _Read(collection, {row.doc_id: row for row in store.engine.read_documents(at, collection=collection.name)})
        for collection in list_private(store, at)
    ]


def _plan_storing(target: DocumentStore, at: At, read: Sequence[_Read]) -> Planned[dict[str, set[str]]]:
    """Plan to store the documents. Report the ids, by collection, that other documents already
    have.
    """
    puts, kept = [], {}
    for collection, rows in read:
        target_collection, new = stores.find_or_define(target, at, collection.name)
        present = {} if new else _read_documents(target, at, target_collection.name, rows)
        kept[target_collection.name] = {doc_id for doc_id, row in present.items() if not _is_same(row, rows[doc_id])}
        puts.append(
            CollectionPut(
                collection if new else target_collection, new, [row for i, row in rows.items() if i not in present]
            )
        )
    has_changes = any(put.new or put.documents for put in puts)
    return Planned(stores.prepare_write(target, puts) if has_changes else None, kept)


def _plan_removing(source: DocumentStore, at: At, moved: Sequence[_Read]) -> Planned[None]:
    """Plan to remove the moved documents.

    A document that changed since it was read stays. A collection is removed with its last document.
    """
    removed: list[tuple[str, str]] = []
    empty: list[str] = []
    for collection, rows in moved:
        if find_exact(source, at, collection.name) is None:
            continue
        unchanged = [
            doc_id for doc_id, row in _read_documents(source, at, collection.name, rows).items() if row == rows[doc_id]
        ]
        if source.engine.count_documents(at, collection=collection.name) == len(unchanged):
            empty.append(collection.name)
        else:
            removed += [(collection.name, doc_id) for doc_id in unchanged]
    return Planned(Write(remove_documents=removed, remove_collections=empty) if removed or empty else None, None)


def _read_documents(store: DocumentStore, at: At, name: str, ids: Mapping[str, object]) -> dict[str, Document]:
    documents = store.engine.read_documents(at, collection=name, ids=[*ids]) if ids else ()
    return {document.doc_id: document for document in documents}


def _is_same(first: Document, second: Document) -> bool:
    return (first.header, first.source_key) == (second.header, second.source_key)
