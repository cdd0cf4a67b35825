"""`vmrag path`: where things lie, for other programs."""

from __future__ import annotations

from vmrag_link.chroma.bindings import DATABASE, TENANT
from vmrag_link.models import Record
from vmrag_link.ops.follow.follow_pin import sync_and_warn
from vmrag_link.workspace import Workspace


class PathsReport(Record, frozen=True):
    """`chroma`: the directory for a Chroma client, with `tenant` and `database`.

    Collections have their own names.
    """

    kb: str
    index: str
    chroma: str
    tenant: str
    database: str


def paths(ws: Workspace) -> PathsReport:
    """Of the workspace as it stands, uncommitted documents included.

    The next sync makes another index: ask again then.
    """
    sync_and_warn(ws)
    with ws.reader.view() as view:
        return PathsReport(str(ws.places.kb), str(view.folder), str(view.folder / "chroma"), TENANT, DATABASE)
