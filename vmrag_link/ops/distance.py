"""How far branches are apart, in commits."""

from __future__ import annotations

from collections.abc import Collection

from vmrag_link.engines.base import Engine, root_of


def beyond(engine: Engine, heads: Collection[str], others: Collection[str] = ()) -> int:
    """How many commits these heads reach and the others do not, however many those are. What is not here counts for nothing."""
    if not heads:
        return 0
    root = root_of(engine)
    before = engine.parents([root]).keys() - {
        root
    }  # what an engine needed before it could begin is no commit of anybody
    return len(engine.parents(heads).keys() - engine.parents(others).keys() - before)
