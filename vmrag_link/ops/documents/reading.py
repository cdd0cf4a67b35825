"""Reading documents here or at another place, and in which collections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from vmrag_link.git import plumbing
from vmrag_link.models import SYSTEM, At
from vmrag_link.ops.follow.follow_pin import read_consistently
from vmrag_link.ops.follow.provenance import KbBlock, Standing, standing
from vmrag_link.ops.history import revparse
from vmrag_link.suggest import no_collection
from vmrag_link.workspace import Workspace

T = TypeVar("T")


def read(ws: Workspace, ref: str | None, look: Callable[[Standing], T]) -> T:
    """What `look` returns, of the work tree at its pin, or of `ref` (as `revparse.resolve_at`).

    It may be called again, where the pin moves meanwhile.
    """
    if ref is None or ref == revparse.WORKING:
        return read_consistently(ws, lambda: look(standing(ws)), index=False)
    revision = revparse.resolve_rev(ws, ref)
    head = plumbing.head(ws.places).commit
    block = KbBlock(str(ws.places.top), head, None, revision, dirty=False, in_sync=True)
    return look(Standing(revision, revision, block, ()))


def collection_names(ws: Workspace, at: At, wanted: Sequence[str], *, searched: bool = False) -> list[str]:
    """These collections; if none are named, all but those in which tools write for themselves, or
    all that are `searched`.

    Raises `CollectionMissing`.
    """
    there = {each.name: each for each in ws.engine.collections(at)}
    for name in wanted:
        if name not in there:
            raise no_collection(name, sorted(there))
    return sorted(
        set(wanted) or {name for name, each in there.items() if each.kind != SYSTEM or (searched and each.searched)}
    )
