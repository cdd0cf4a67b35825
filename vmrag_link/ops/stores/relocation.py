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
    private = _create_missing(store, PRIVATE_COLLECTIONS)
    versioned = _create_missing(ws, (CODEBASE,))
    report = SetupReport(
        created=[*versioned.report.created, *private.report.created],
        existing=[*versioned.report.existing, *private.report.existing],
    )
    return versioned._replace(report=report)


def _create_missing(store: DocumentStore, names: Sequence[str]) -> WriteResult[SetupReport]:
    def plan_creation(at: At) -> Planned[SetupReport]:
        puts: list[CollectionPut] = []
        existing: list[str] = []
        for name in names:
            chunking = stores.read_chunking(store) if name == CODEBASE else stores.WHOLE_TEXT
            collection, is_new = stores.find_or_define(store, at, name, chunking=chunking)
            if is_new:
                puts.append(CollectionPut(collection, is_new, ()))
            else:
                existing.append(collection.name)
        write = stores.prepare_write(store, puts) if puts else None
        return Planned(write, SetupReport([put.collection.name for put in puts], existing))

    return writing.write_rows(store, plan_creation, "make the system collections")


class MoveReport(Record, frozen=True):
    """Numbers of documents by collection."""

    versioned: bool
    """True if the documents are part of the knowledge base now."""
    moved: dict[str, int]
    kept: dict[str, int]
    """Documents that were not moved, because the other place has different ones with their ids."""


class _Contents(NamedTuple):
    """A collection with its documents by id."""

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
        _Contents(collection, {doc_id: row for doc_id, row in rows.items() if doc_id not in kept[collection.name]})
        for collection, rows in read
    ]
    removed = writing.write_rows(source, lambda place: _plan_removing(source, place, moved), "move system collections")
    report = MoveReport(
        versioned=versioned,
        moved={collection.name: len(rows) for collection, rows in moved if rows},
        kept={name: len(ids) for name, ids in kept.items() if ids},
    )
    return WriteResult(report, stored.branch or removed.branch, stored.pending or removed.pending, versioned=versioned)


def _read_collections(store: DocumentStore, at: At) -> list[_Contents]:
    return [
        _Contents(collection, {row.doc_id: row for row in store.engine.read_documents(at, collection=collection.name)})
        for collection in list_private(store, at)
    ]


def _plan_storing(target: DocumentStore, at: At, read: Sequence[_Contents]) -> Planned[dict[str, set[str]]]:
    """Plan to store the documents. Report the ids, by collection, that other documents already
    have.
    """
    puts: list[CollectionPut] = []
    kept: dict[str, set[str]] = {}
    for collection, rows in read:
        existing, is_new = stores.find_or_define(target, at, collection.name)
        present = {} if is_new else _read_documents(target, at, existing.name, rows)
        kept[existing.name] = {doc_id for doc_id, row in present.items() if not _is_same(row, rows[doc_id])}
        missing = [row for doc_id, row in rows.items() if doc_id not in present]
        puts.append(CollectionPut(collection if is_new else existing, is_new, missing))
    has_changes = any(put.new or put.documents for put in puts)
    return Planned(stores.prepare_write(target, puts) if has_changes else None, kept)


def _plan_removing(source: DocumentStore, at: At, moved: Sequence[_Contents]) -> Planned[None]:
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
