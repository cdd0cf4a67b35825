"""What a library is: a collection whose documents are files and pages, each known by its source."""

from __future__ import annotations

from vmrag_link.errors import LibraryRefused, quoted
from vmrag_link.models import LIBRARY, At, Chunking, Collection
from vmrag_link.ops.documents import collections
from vmrag_link.workspace import Workspace

DEFAULT = "default"
"""The library of whoever names none."""

CHUNKING = Chunking(size=2048, overlap=256)
"""Longer than elsewhere: whole pages are asked for a passage, not notes for a fact."""


def check(name: str) -> None:
    """Raises `NameInvalid`."""
    collections.require_name(name, option="--library")


def find(ws: Workspace, at: At, name: str) -> Collection | None:
    """The library of exactly this name; None if there is nothing of this name.

    Raises `LibraryRefused` for a collection of another kind.
    """
    found = collections.exact(ws, at, name)
    if found and found.kind != LIBRARY:
        raise LibraryRefused(
            f"There is a collection {name!r} already, and it is no library: its documents come from elsewhere.",
            hint=f"Take another library, for example: --library {quoted(collections.similar_name(f'{name}-library'))}",
            collection_name=name,
            kind=found.kind,
        )
    return found


def new(ws: Workspace, name: str) -> Collection:
    """An empty library, embedded as new collections are."""
    model = ws.models.named(ws.config.embedding.model)
    return collections.empty(name, model, CHUNKING, kind=LIBRARY)


def libraries(ws: Workspace, at: At) -> list[Collection]:
    """All libraries, by name."""
    return [each for each in ws.engine.collections(at) if each.kind == LIBRARY]
