"""Documents of system collections that are not where `system.versioned` says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from vmrag_link.errors import plural
from vmrag_link.models import CODEBASE, SYSTEM, SYSTEM_COLLECTIONS, At, Collection, WorkingSet
from vmrag_link.workspace import Workspace

if TYPE_CHECKING:
    from vmrag_link.workspace import DocumentStore

MOVE_COMMAND = "vmrag learning move"

PRIVATE_COLLECTIONS = tuple(name for name in SYSTEM_COLLECTIONS if name != CODEBASE)
"""The collections that the setting is about. Others are where those of their name are."""


def count_misplaced(ws: Workspace, *, committed: bool) -> dict[str, int]:
    """Numbers of documents that are not where the setting says, by collection. Changes nothing.

    Without `committed` those of a revision are left out: other people may have put them there, and
    want to share them.
    """
    store, at = find_source(ws)
    if at is None:
        return {}
    names = [each.name for each in list_private(store, at)]
    if store is not ws or committed:
        counts = Counter({name: store.engine.count_documents(at, collection=name) for name in names})
    else:
        changes = ws.engine.diff(ws.require_revision(), at).documents if isinstance(at, WorkingSet) else ()
        counts = Counter(change.key[0] for change in changes if change.after and change.key[0] in names)
    return {name: counts[name] for name in names if counts[name]}


def describe_misplaced(ws: Workspace, *, committed: bool) -> str:
    """Return a sentence about them with the command that helps; empty if there are none."""
    found = count_misplaced(ws, committed=committed)
    if not found:
        return ""
    what = f"{plural(sum(found.values()), 'document')} of {', '.join(found)}"
    if ws.config.system.versioned:
        return (
            f"{what} are on this machine alone, from when system.versioned was false; to version them: {MOVE_COMMAND}"
        )
    return f"{what} are part of the knowledge base, though system.versioned is false; to keep them here: {MOVE_COMMAND}"


def find_source(ws: Workspace) -> tuple[DocumentStore, At | None]:
    """Where the setting says that none of them should be; None: there is no such place."""
    if ws.config.system.versioned:
        from vmrag_link.workspace import local_store

        return ws.local, local_store.AT if ws.local.exists else None
    revision = ws.current_revision
    return ws, ws.locate_documents() if revision and ws.engine.has_revision(revision) else None


def list_private(store: DocumentStore, at: At) -> list[Collection]:
    """Return the collections of a store that the setting is about."""
    rows = (row for row in store.engine.list_collections(at) if row.kind == SYSTEM or row.name in PRIVATE_COLLECTIONS)
    return [row for row in rows if row.name != CODEBASE]
