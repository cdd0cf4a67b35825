"""Make the system collections before they are needed."""

from __future__ import annotations

from vmrag_link.models import At, Record
from vmrag_link.ops.documents import writing
from vmrag_link.ops.documents.writing import Landed, Planned
from vmrag_link.ops.system import collections
from vmrag_link.workspace import Workspace


class SetupReport(Record, frozen=True):
    created: list[str]
    existing: list[str]


def setup_collections(ws: Workspace) -> Landed[SetupReport]:
    """Make those that are not there. Raises as `writing.write`."""

    def plan(at: At) -> Planned[SetupReport]:
        found = [collections.find_or_new(ws, at, name) for name in collections.SYSTEM_COLLECTIONS]
        puts = [collections.Put(collection, new, ()) for collection, new in found if new]
        created = [each.collection.name for each in puts]
        existing = [collection.name for collection, new in found if not new]
        write = collections.prepared(ws, puts) if puts else None
        return Planned(write, SetupReport(created, existing))

    return writing.write(ws, plan, "make the system collections")
