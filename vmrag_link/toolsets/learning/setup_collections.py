"""Make the system collections before they are needed."""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.models import At, Record
from vmrag_link.ops.documents import writing
from vmrag_link.ops.documents.writing import Landed, Planned
from vmrag_link.ops.system import collections, stores
from vmrag_link.workspace import DocumentStore, Workspace


class SetupReport(Record, frozen=True):
    created: list[str]
    existing: list[str]


def setup_collections(ws: Workspace) -> Landed[SetupReport]:
    """Make those that are not there, each where it is kept. Raises as `writing.write`."""
    store = stores.for_tools(ws)
    if store is ws:
        return _made(ws, collections.SYSTEM_COLLECTIONS)
    here, there = _made(store, stores.PRIVATE), _made(ws, (collections.CODEBASE,))
    both = SetupReport([*there.report.created, *here.report.created], [*there.report.existing, *here.report.existing])
    return there._replace(report=both)


def _made(store: DocumentStore, names: Sequence[str]) -> Landed[SetupReport]:
    def plan(at: At) -> Planned[SetupReport]:
        chunking = {collections.CODEBASE: collections.ordinary_chunking(store)}
        found = [
            collections.find_or_new(store, at, name, chunking=chunking.get(name, collections.WHOLE)) for name in names
        ]
        puts = [collections.Put(collection, new, ()) for collection, new in found if new]
        created = [each.collection.name for each in puts]
        existing = [collection.name for collection, new in found if not new]
        write = collections.prepared(store, puts) if puts else None
        return Planned(write, SetupReport(created, existing))

    return writing.write(store, plan, "make the system collections")
