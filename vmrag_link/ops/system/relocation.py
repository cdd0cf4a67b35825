"""Make the system collections before they are needed, and move them after `system.versioned` was
changed: what is not where it says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vmrag_link.engines.base import Write
from vmrag_link.errors import plural
from vmrag_link.models import SYSTEM, SYSTEM_COLLECTIONS, At, Collection, Document, Record, Working
from vmrag_link.ops.documents import writing
from vmrag_link.ops.documents.writing import Planned, WriteResult
from vmrag_link.ops.follow.follow_pin import follow
from vmrag_link.ops.system import stores
from vmrag_link.ops.system.stores import CODEBASE, PRIVATE, Put
from vmrag_link.workspace import DocumentStore, Workspace, local_store


class SetupReport(Record, frozen=True):
    created: list[str]
    existing: list[str]


def setup_collections(ws: Workspace) -> WriteResult[SetupReport]:
    """Make those that are not there, each where it is kept. Raises as `writing.write`."""
    store = stores.store_for_tools(ws)
    if store is ws:
        return _made(ws, SYSTEM_COLLECTIONS)
    here, there = _made(store, stores.PRIVATE), _made(ws, (stores.CODEBASE,))
    both = SetupReport([*there.report.created, *here.report.created], [*there.report.existing, *here.report.existing])
    return there._replace(report=both)


def _made(store: DocumentStore, names: Sequence[str]) -> WriteResult[SetupReport]:
    def plan(at: At) -> Planned[SetupReport]:
        chunking = {stores.CODEBASE: stores.ordinary_chunking(store)}
        found = [stores.find_or_new(store, at, name, chunking=chunking.get(name, stores.WHOLE)) for name in names]
        puts = [stores.Put(collection, new, ()) for collection, new in found if new]
        created = [each.collection.name for each in puts]
        existing = [collection.name for collection, new in found if not new]
        write = stores.prepared(store, puts) if puts else None
        return Planned(write, SetupReport(created, existing))

    return writing.write(store, plan, "make the system collections")


COMMAND = "vmrag learning move"


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


def misplaced(ws: Workspace, *, committed: bool) -> dict[str, int]:
    """Numbers of documents that are not where the setting says, by collection. Changes nothing.

    Without `committed` those of a revision are left out: other people may have put them there, and
    want to share them.
    """
    store, at = _source(ws)
    if at is None:
        return {}
    names = [each.name for each in _private_collections(store, at)]
    if store is not ws or committed:
        counts = Counter({name: store.engine.count(at, collection=name) for name in names})
    else:
        changes = ws.engine.diff(ws.revision(), at).documents if isinstance(at, Working) else ()
        counts = Counter(each.key[0] for each in changes if each.after and each.key[0] in names)
    return {name: counts[name] for name in names if counts[name]}


def told(ws: Workspace, *, committed: bool) -> str:
    """As a sentence with the command that helps; empty if there are none."""
    found = misplaced(ws, committed=committed)
    if not found:
        return ""
    what = f"{plural(sum(found.values()), 'document')} of {', '.join(found)}"
    if ws.config.system.versioned:
        return f"{what} are on this machine alone, from when system.versioned was false; to version them: {COMMAND}"
    return f"{what} are part of the knowledge base, though system.versioned is false; to keep them here: {COMMAND}"


def move(ws: Workspace) -> WriteResult[MoveReport]:
    """Move them: stored there first, and removed here then, so that a kill leaves them in both.

    The history of the knowledge base keeps what was committed. Raises as `writing.write`.
    """
    from vmrag_link.ops.documents import writing
    from vmrag_link.ops.documents.writing import WriteResult

    follow(ws, index=False, tolerate="failures")
    versioned = ws.config.system.versioned
    source, at = _source(ws)
    target: DocumentStore = ws if versioned else ws.local
    read = [] if at is None else _read(source, at)
    if not any(each.documents for each in read):
        return WriteResult(MoveReport(versioned, {}, {}), None, versioned=versioned)
    stored = writing.write(target, lambda place: _plan_storing(target, place, read), "move system collections")
    kept = stored.report
    moved = [_Read(each, {i: row for i, row in rows.items() if i not in kept[each.name]}) for each, rows in read]
    removed = writing.write(source, lambda place: _plan_removing(source, place, moved), "move system collections")
    report = MoveReport(
        versioned,
        {each.name: len(rows) for each, rows in moved if rows},
        {name: len(ids) for name, ids in kept.items() if ids},
    )
    branch, pending = stored.branch or removed.branch, stored.pending or removed.pending
    return WriteResult(report, branch, pending, versioned=versioned)


def _source(ws: Workspace) -> tuple[DocumentStore, At | None]:
    """Where the setting says that none of them should be; None: there is no such place."""
    if ws.config.system.versioned:
        return ws.local, local_store.AT if ws.local.there else None
    revision = ws.standing_revision
    return ws, ws.at() if revision and ws.engine.has_revision(revision) else None


def _private_collections(store: DocumentStore, at: At) -> list[Collection]:
    private = (each for each in store.engine.collections(at) if each.kind == SYSTEM or each.name in PRIVATE)
    return [each for each in private if each.name != CODEBASE]


def _read(store: DocumentStore, at: At) -> list[_Read]:
    return [
        _Read(each, {row.doc_id: row for row in store.engine.documents(at, collection=each.name)})
        for each in _private_collections(store, at)
    ]


def _plan_storing(target: DocumentStore, at: At, read: Sequence[_Read]) -> Planned[dict[str, set[str]]]:
    """Reports the ids, by collection, under which something else is there already."""
    from vmrag_link.ops.documents.writing import Planned

    puts, kept = [], {}
    for collection, rows in read:
        found, new = stores.find_or_new(target, at, collection.name)
        there = {} if new else _documents(target, at, found.name, rows)
        kept[found.name] = {doc_id for doc_id, row in there.items() if not _same(row, rows[doc_id])}
        puts.append(Put(collection if new else found, new, [row for i, row in rows.items() if i not in there]))
    wanted = any(each.new or each.documents for each in puts)
    return Planned(stores.prepared(target, puts) if wanted else None, kept)


def _plan_removing(source: DocumentStore, at: At, moved: Sequence[_Read]) -> Planned[None]:
    """What was changed here since it was read stays; a collection goes with its last document."""
    from vmrag_link.ops.documents.collections import exact
    from vmrag_link.ops.documents.writing import Planned

    gone: list[tuple[str, str]] = []
    empty: list[str] = []
    for collection, rows in moved:
        if exact(source, at, collection.name) is None:
            continue
        same = [doc_id for doc_id, row in _documents(source, at, collection.name, rows).items() if row == rows[doc_id]]
        if source.engine.count(at, collection=collection.name) == len(same):
            empty.append(collection.name)
        else:
            gone += [(collection.name, doc_id) for doc_id in same]
    return Planned(Write(remove_documents=gone, remove_collections=empty) if gone or empty else None, None)


def _documents(store: DocumentStore, at: At, name: str, ids: Mapping[str, object]) -> dict[str, Document]:
    found = store.engine.documents(at, collection=name, ids=[*ids]) if ids else ()
    return {each.doc_id: each for each in found}


def _same(one: Document, other: Document) -> bool:
    return (one.header, one.source_key) == (other.header, other.source_key)
