"""Two rankings beside each other."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

from vmrag_link.cli import output
from vmrag_link.golden.queries import RankedChunk

GONE = "-"


def changes(before: Sequence[RankedChunk], after: Sequence[RankedChunk]) -> Iterator[str]:
    """A line for each chunk of either ranking: the places before and after, the chunk, the scores.
    What is gone comes last.
    """
    ranks = {(each.document, each.chunk) for each in after}
    old = {(each.document, each.chunk): (rank, each.score) for rank, each in enumerate(before, start=1)}
    if not before and not after:
        yield "nothing is found"
        return
    for rank, each in enumerate(after, start=1):
        if known := old.get((each.document, each.chunk)):
            was, score = known
            scores = f"{each.score:g}" if score == each.score else f"{score:g} -> {each.score:g}"
            line = _row(str(was), str(rank), each, scores)
            yield line if known != (rank, each.score) else output.style(line, dim=True)
        else:
            yield output.style(_row(GONE, str(rank), each, f"{each.score:g}"), fg="green")
    for rank, each in enumerate(before, start=1):
        if (each.document, each.chunk) not in ranks:
            yield output.style(_row(str(rank), GONE, each, f"{each.score:g}"), fg="red")


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


def _row(before: str, after: str, chunk: RankedChunk, scores: str) -> str:
    return f"{before:>4} -> {after:<4} {chunk.document} #{chunk.chunk}  {scores}"
