"""How far branches are apart, in commits."""

from __future__ import annotations

from collections.abc import Collection

from vmrag_link.engines.base import Engine
from vmrag_link.ops import revisions


def beyond(engine: Engine, heads: Collection[str], others: Collection[str] = ()) -> int:
    """How many commits these heads reach and the others do not, however many those are. What is not here counts for nothing."""
    if not heads:
        return 0
    return len(engine.parents(heads).keys() - engine.parents(others).keys() - revisions.beginning(engine))
