"""Two rankings beside each other."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

from vmrag_link.cli import output
from vmrag_link.golden.queries import RankedChunk, ranking_changes


def changes(before: Sequence[RankedChunk], after: Sequence[RankedChunk]) -> Iterator[str]:
    """A line for each chunk of either ranking (`ranking_changes`)."""
    if not before and not after:
        yield "nothing is found"
    for each in ranking_changes(before, after):
        if each.rank_after is None:
            yield output.style(str(each), fg="red")
        elif each.rank_before is None:
            yield output.style(str(each), fg="green")
        else:
            yield output.style(str(each), dim=True) if each.same else str(each)


def side_by_side(names: tuple[str, str], before: Sequence[RankedChunk], after: Sequence[RankedChunk]) -> Iterator[str]:
    """A line for each place, below a line with the names. `-` and `+`: only in this ranking."""
    left = _column(before, {(each.document, each.chunk) for each in after}, "-")
    right = _column(after, {(each.document, each.chunk) for each in before}, "+")
    width = max(len(each) for each in (names[0], *left))
    yield f"{'':4}{names[0]:<{width + 2}}  {names[1]}"
    for rank, (one, other) in enumerate(itertools.zip_longest(left, right, fillvalue=""), start=1):
        shown = output.style(other, fg="green") if other.startswith("+") else other
        padded = one.ljust(width + 2)
        yield f"{rank:>3} {output.style(padded, fg='red') if one.startswith('-') else padded}  {shown}"


def _column(ranking: Sequence[RankedChunk], others: Collection[tuple[str, int]], mark: str) -> list[str]:
    return [
        f"{' ' if (each.document, each.chunk) in others else mark} {each.document} #{each.chunk}  {each.score:g}"
        for each in ranking
    ]
