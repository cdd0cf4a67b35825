"""Make the system collections before they are needed, and move them after `system.versioned` was
changed: what is not where it says.
"""

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
    """Make those that are not there, each where it is kept. Raises as `writing.write`."""
    store = stores.find_tools_store(ws)
    if store is ws:
        return _made(ws, SYSTEM_COLLECTIONS)
    here, there = _made(store, PRIVATE_COLLECTIONS), _made(ws, (CODEBASE,))
    both = SetupReport([*there.report.created, *here.report.created], [*there.report.existing, *here.report.existing])
    return there._replace(report=both)


def _made(store: DocumentStore, names: Sequence[str]) -> WriteResult[SetupReport]:
    def plan(at: At) -> Planned[SetupReport]:
        chunking = {CODEBASE: stores.read_chunking(store)}
        found = [
            stores.find_or_define(store, at, name, chunking=chunking.get(name, stores.WHOLE_TEXT)) for name in names
        ]
        puts = [stores.CollectionPut(collection, new, ()) for collection, new in found if new]
        created = [put.collection.name for put in puts]
        existing = [collection.name for collection, new in found if not new]
        write = stores.prepare_write(store, puts) if puts else None
        return Planned(write, SetupReport(created, existing))

    return writing.write_rows(store, plan, "make the system collections")


class MoveReport(Record, frozen=True):
    """Numbers of documents by collection, `moved` and `kept`: for those the other place has
    something else under their ids. `versioned`: they are part of the knowledge base now.
    """

    versioned: bool
    moved: dict[str, int]
    kept: dict[str, int]


class _Read(NamedTuple):
    """A collection as it was read, with its documents by id."""

    collection: Collection
    documents: dict[str, Document]


def move_documents(ws: Workspace) -> WriteResult[MoveReport]:
    """Move them: stored there first, and removed here then, so that a kill leaves them in both.

    The history of the knowledge base keeps what was committed. Raises as `writing.write`.
    """
    follow(ws, index=False, tolerate="failures")
    versioned = ws.config.system.versioned
    source, at = find_source(ws)
    target: DocumentStore = ws if versioned else ws.local
    read = [] if at is None else _read(source, at)
    if not any(each.documents for each in read):
        return WriteResult(MoveReport(versioned, {}, {}), None, versioned=versioned)
    stored = writing.write_rows(target, lambda place: _plan_storing(target, place, read), "move system collections")
    kept = stored.report
    moved = [_Read(each, {i: row for i, row in rows.items() if i not in kept[each.name]}) for each, rows in read]
    removed = writing.write_rows(source, lambda place: _plan_removing(source, place, moved), "move system collections")
    report = MoveReport(
        versioned,
        {each.name: len(rows) for each, rows in moved if rows},
        {name: len(ids) for name, ids in kept.items() if ids},
    )
    branch, pending = stored.branch or removed.branch, stored.pending or removed.pending
    return WriteResult(report, branch, pending, versioned=versioned)


def _read(store: DocumentStore, at: At) -> list[_Read]:
    return [
        _Read(each, {row.doc_id: row for row in store.engine.read_documents(at, collection=each.name)})
        for each in list_private(store, at)
    ]


def _plan_storing(target: DocumentStore, at: At, read: Sequence[_Read]) -> Planned[dict[str, set[str]]]:
    """Reports the ids, by collection, under which something else is there already."""
    puts, kept = [], {}
    for collection, rows in read:
        found, new = stores.find_or_define(target, at, collection.name)
        there = {} if new else _documents(target, at, found.name, rows)
        kept[found.name] = {doc_id for doc_id, row in there.items() if not _same(row, rows[doc_id])}
        puts.append(
            CollectionPut(collection if new else found, new, [row for i, row in rows.items() if i not in there])
        )
    wanted = any(put.new or put.documents for put in puts)
    return Planned(stores.prepare_write(target, puts) if wanted else None, kept)


def _plan_removing(source: DocumentStore, at: At, moved: Sequence[_Read]) -> Planned[None]:
    """What was changed here since it was read stays; a collection goes with its last document."""
    gone: list[tuple[str, str]] = []
    empty: list[str] = []
    for collection, rows in moved:
        if find_exact(source, at, collection.name) is None:
            continue
        same = [doc_id for doc_id, row in _documents(source, at, collection.name, rows).items() if row == rows[doc_id]]
        if source.engine.count_documents(at, collection=collection.name) == len(same):
            empty.append(collection.name)
        else:
            gone += [(collection.name, doc_id) for doc_id in same]
    return Planned(Write(remove_documents=gone, remove_collections=empty) if gone or empty else None, None)


def _documents(store: DocumentStore, at: At, name: str, ids: Mapping[str, object]) -> dict[str, Document]:
    found = store.engine.read_documents(at, collection=name, ids=[*ids]) if ids else ()
    return {each.doc_id: each for each in found}


def _same(one: Document, other: Document) -> bool:
    return (one.header, one.source_key) == (other.header, other.source_key)
