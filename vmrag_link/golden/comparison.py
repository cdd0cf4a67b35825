"""What became of each chunk of a ranking."""

from __future__ import annotations

from collections.abc import Sequence

from vmrag_link.golden.queries import RankedChunk
from vmrag_link.models import Record


class RankChange(Record, frozen=True):
    """A chunk's places and scores in two rankings, from 1; None where it is not in that one."""

    document: str
    chunk: int
    rank_before: int | None
    rank_after: int | None
    score_before: float | None
    score_after: float | None

    @property
    def same(self) -> bool:
        return (self.rank_before, self.score_before) == (self.rank_after, self.score_after)

    def __str__(self) -> str:
        before, after = (str(rank or "-") for rank in (self.rank_before, self.rank_after))
        known = dict.fromkeys(score for score in (self.score_before, self.score_after) if score is not None)
        scores = " -> ".join(f"{score:g}" for score in known)
        return f"{before:>4} -> {after:<4} {self.document} #{self.chunk}  {scores}"


def ranking_changes(before: Sequence[RankedChunk], after: Sequence[RankedChunk]) -> list[RankChange]:
    """In the order of `after`; what is gone comes last."""
    old = {(each.document, each.chunk): (rank, each.score) for rank, each in enumerate(before, start=1)}
    found = []
    for rank, each in enumerate(after, start=1):
        rank_before, score_before = old.pop((each.document, each.chunk), (None, None))
        found.append(RankChange(each.document, each.chunk, rank_before, rank, score_before, each.score))
    gone = (RankChange(*key, rank, None, score, None) for key, (rank, score) in old.items())
    return [*found, *gone]
