"""Find documents of system collections that are not where the setting `system.versioned` requires.

Tools write system collections, such as learned rules. The setting decides whether they are in the
knowledge base or only on this machine (`LocalStore`). After a change of the setting, existing
documents stay until `vmrag learning move` moves them.
"""

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
"""Names of collections to which the setting applies, of any kind."""


def count_misplaced(ws: Workspace, *, committed: bool) -> dict[str, int]:
    """Return the numbers of misplaced documents by collection. Change nothing.

    `committed`: False to count only uncommitted documents of the knowledge base, because others may
    share committed ones intentionally.
    """
    store, at = find_source(ws)
    if at is None:
        return {}
    names = [collection.name for collection in list_private(store, at)]
    if store is not ws or committed:
        counts = Counter({name: store.engine.count_documents(at, collection=name) for name in names})
    else:
        changes = ws.engine.diff(ws.require_revision(), at).documents if isinstance(at, WorkingSet) else ()
        counts = Counter(change.key[0] for change in changes if change.after and change.key[0] in names)
    return {name: counts[name] for name in names if counts[name]}


def describe_misplaced(ws: Workspace, *, committed: bool) -> str:
    """Return a sentence about misplaced documents with the command that moves them, or ""."""
    counts = count_misplaced(ws, committed=committed)
    if not counts:
        return ""
    documents = f"{plural(sum(counts.values()), 'document')} of {', '.join(counts)}"
    if ws.config.system.versioned:
        return f"{documents} are only on this machine, because system.versioned was false; run '{MOVE_COMMAND}' to version them"
    return f"{documents} are in the knowledge base, but system.versioned is false; run '{MOVE_COMMAND}' to move them to this machine"


def find_source(ws: Workspace) -> tuple[DocumentStore, At | None]:
    """Return the store that should have no document of these collections, and where to read it.

    If the store has no documents, there is nothing to read (None).
    """
    if ws.config.system.versioned:
        from vmrag_link.workspace import local_store

        return ws.local, local_store.AT if ws.local.exists else None
    revision = ws.current_revision
    return ws, ws.locate_documents() if revision and ws.engine.has_revision(revision) else None


def list_private(store: DocumentStore, at: At) -> list[Collection]:
    """Return the collections of a store that the setting applies to."""
    rows = (row for row in store.engine.list_collections(at) if row.kind == SYSTEM or row.name in PRIVATE_COLLECTIONS)
    return [row for row in rows if row.name != CODEBASE]
