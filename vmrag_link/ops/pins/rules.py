"""What the pin of a commit must be, given those of its parents.

Pure but for questions about ancestry.

A side of a merge whose pin is that of a merge base did not move and says nothing. What every other
side pins must be contained in the merge's pin. What came on top, documents committed during the
merge say, does no harm. Where nobody moved, and where there is one parent, the pin may go forward,
or back to what it had contained.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple, Protocol

Way = Literal["fine", "back", "dropped"]


class History(Protocol):
    """An engine, or what answers in its place."""

    def has_revision(self, revision: str) -> bool: ...

    def is_ancestor(self, ancestor: str, descendant: str) -> bool: ...


class Verdict(NamedTuple):
    """`lost`: what the pin should contain and does not."""

    way: Way
    lost: tuple[str, ...] = ()


def judged(history: History, pin: str, *, sides: Sequence[str], moved: Collection[str] = ()) -> Verdict:
    """A commit's pin, given those of its parents.

    `moved`: which of these are not those of the merge bases.
    """
    lost = dropped(history, pin, bases=(), sides=sides)
    if moved:
        lost = tuple(side for side in lost if side in moved)
    if not lost:
        return Verdict("fine")
    back = not moved and all(_contains(history, side, pin) for side in lost)
    return Verdict("back" if back else "dropped", lost)


def dropped(history: History, merged: str, *, bases: Collection[str], sides: Sequence[str]) -> tuple[str, ...]:
    """The sides' revisions that the merged one should contain and does not.

    One that is not here counts as dropped.
    """
    moved = [side for side in dict.fromkeys(sides) if side not in bases]
    return tuple(side for side in moved if not _contains(history, merged, side))


def _contains(history: History, revision: str, part: str) -> bool:
    if revision == part:
        return True
    return history.has_revision(revision) and history.has_revision(part) and history.is_ancestor(part, revision)
