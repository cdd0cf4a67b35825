"""Tell other programs where the knowledge base, the index and Chroma's store are: `vmrag path`."""

from __future__ import annotations

from typing import Literal

from vmrag_link.chroma.bindings import DATABASE, TENANT
from vmrag_link.models import Record
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.follow import sync
from vmrag_link.workspace.follow.follow_pin import follow_and_warn

Place = Literal["kb", "index", "chroma"]


class PathsReport(Record, frozen=True):
    """Paths of stores. Collections have their own names."""

    kb: str | None
    """None in a repository without stored documents. Then `index` is the index of its files."""
    index: str
    chroma: str | None
    """Folder for a Chroma client, with `tenant` and `database`; None if not requested. It has the
    documents of `revision` and the files of `commit`.
    """
    tenant: str
    database: str
    revision: str | None = None
    commit: str | None = None


def find_paths(ws: Workspace, *, what: Place = "kb", working: bool = False) -> PathsReport:
    """Return the paths for the workspace at its pin.

    The next sync creates another index, so call this again after it. `what`: the path that is
    needed. `chroma` waits for Chroma's store, which has the pinned documents and the committed
    files. `working`: Chroma's store with uncommitted documents and files. Raises `NotInitialized`
    if stored documents are needed, or if no file is a document.
    """
    with_chroma = what == "chroma" or working
    files_only = ws.stores_nothing and bool(ws.sources.configured) and (with_chroma or what == "index")
    if not files_only:
        follow_and_warn(ws, index=True)
    with (ws.files.reader if files_only else ws.reader).view() as view:
        index = str(view.folder)
    kb = None if files_only else str(ws.places.kb)
    if not with_chroma:
        return PathsReport(kb, index, None, TENANT, DATABASE)
    store = sync.store_of_working_copy(ws) if working else sync.wait_for_store(ws, lend=True)
    files = ws.chroma.local.committed
    bound = ws.binding
    return PathsReport(
        kb=kb,
        index=index,
        chroma=str(store),
        tenant=TENANT,
        database=DATABASE,
        revision=bound.revision if bound else None,
        commit=files.commit if files and files.view else None,
    )
