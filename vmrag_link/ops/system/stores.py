"""Where system collections are kept: in the knowledge base, or, where `system.versioned` is false,
on this machine alone.

The code index is always part of the knowledge base: it is about the commit that is checked out.
"""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.errors import UsageInvalid, enumerated
from vmrag_link.models import At
from vmrag_link.ops.documents.collections import exact
from vmrag_link.ops.follow.follow_pin import move_for_reading
from vmrag_link.ops.system.collections import CODEBASE, SYSTEM_COLLECTIONS
from vmrag_link.workspace import DocumentStore, Workspace, local_store, reasons

PRIVATE = tuple(each for each in SYSTEM_COLLECTIONS if each != CODEBASE)
"""The collections that the setting is about. Others are where those of their name are."""


def for_tools(ws: Workspace, *names: str) -> DocumentStore:
    """Where the tools of `thinking` and `learning` read and write the collections of these names.

    Raises `NotInitialized`, and `UsageInvalid` for one that is in the knowledge base, where only
    this machine is allowed.
    """
    if ws.config.system.versioned:
        return ws
    if not ws.initialized:
        raise reasons.uninitialized(ws)
    at = knowledge_at(ws) if any(each not in PRIVATE for each in names) else None
    for name in names:
        if name == CODEBASE or (at is not None and name not in PRIVATE and exact(ws, at, name)):
            raise UsageInvalid(
                f"Collection {name!r} is part of the knowledge base, and system.versioned is false: nothing of this "
                "may be stored there.",
                hint="Leave collection_name out, or take a name of its own.",
                parameter="collection_name",
                value=name,
            )
    return ws.local


def holding(ws: Workspace, name: str) -> DocumentStore:
    """Where a collection is that somebody names."""
    if ws.config.system.versioned:
        return ws
    kept = name in PRIVATE or (ws.local.there and exact(ws.local, local_store.AT, name))
    return ws.local if kept else ws


def holding_all(ws: Workspace, names: Sequence[str]) -> DocumentStore:
    """As `holding`, for those that one command names; the knowledge base if there are none.

    Raises `UsageInvalid` for some of here and some of there.
    """
    found = {name: holding(ws, name) for name in names}
    if len(here := [name for name, store in found.items() if store is not ws]) in (0, len(found)):
        return ws.local if here else ws
    raise UsageInvalid(
        f"{enumerated(here)} of this machine alone cannot be named together with what is versioned.",
        hint="Name them in a command of their own.",
        parameter="collection",
    )


def require_versioned(ws: Workspace, name: str) -> None:
    """Raises `UsageInvalid` for a collection that its own tools write, on this machine alone: from
    the knowledge base it would be pushed.
    """
    if holding(ws, name) is not ws:
        raise UsageInvalid(
            f"Collection {name!r} stays on this machine (system.versioned is false), and only the tools for thoughts, "
            "chats and evidence write it.",
            hint="Name another collection.",
            parameter="collection_name",
            value=name,
        )


def knowledge_at(ws: Workspace) -> At | None:
    """Where the knowledge base is read; None where this code pins none."""
    move_for_reading(ws)
    return ws.at() if ws.standing_revision else None
