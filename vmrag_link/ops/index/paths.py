"""`vmrag path`: where things lie, for other programs."""

from __future__ import annotations

from vmrag_link.chroma.bindings import DATABASE, TENANT
from vmrag_link.models import Record
from vmrag_link.ops.follow import sync
from vmrag_link.ops.follow.follow_pin import sync_and_warn
from vmrag_link.workspace import Workspace


class PathsReport(Record, frozen=True):
    """`chroma`: the directory for a Chroma client, with `tenant` and `database`; None where it was
    not asked for.

    Collections have their own names.
    """

    kb: str
    index: str
    chroma: str | None
    tenant: str
    database: str


def paths(ws: Workspace, *, with_chroma: bool = False, working: bool = False) -> PathsReport:
    """Of the workspace as it stands. The next sync makes another index: ask again then.

    `with_chroma` waits for Chroma's store, which holds the pinned documents; `working`: as they are
    now, uncommitted ones included.
    """
    sync_and_warn(ws)
    with ws.reader.view() as view:
        index = str(view.folder)
    store = None
    if with_chroma:
        store = str(sync.store_of_working_copy(ws) if working else sync.wait_for_store(ws, lend=True))
    return PathsReport(str(ws.places.kb), index, store, TENANT, DATABASE)
