"""What the pin of a merge must be, given those of its parents. Pure but for questions about ancestry.

A side whose pin is that of a merge base did not move and says nothing. What every other side pins must be contained in the merge's pin.
What came on top, documents committed during the merge say, does no harm.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vmrag_link.engines.base import Engine


def dropped(engine: Engine, merged: str, *, bases: Collection[str], sides: Sequence[str]) -> tuple[str, ...]:
    """The sides' revisions that should be contained in the merged one and are not; one that is not here counts as dropped."""
    moved = [side for side in dict.fromkeys(sides) if side not in bases]
    return tuple(side for side in moved if not _contains(engine, merged, side))


def _contains(engine: Engine, revision: str, part: str) -> bool:
    if revision == part:
        return True
    return engine.has_revision(revision) and engine.has_revision(part) and engine.is_ancestor(part, revision)
