"""Reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009) of several rankings."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

K = 60
Item = TypeVar("Item", bound=Hashable)


def fuse(rankings: Iterable[Sequence[Item]]) -> dict[Item, float]:
    """Sum of 1 / (60 + rank) over the rankings that hold an item; ranks count from 1."""
    scores: dict[Item, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, start=1):
            scores[item] = scores.get(item, 0.0) + 1.0 / (K + rank)
    return scores
