"""An answer without a language model: sentences of the sources, word for word."""

from __future__ import annotations

import array
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from vmrag_link.embedding.base import Model
from vmrag_link.index import vectors
from vmrag_link.models import Record

MOST = 3
"""Sentences of one source."""

CANDIDATES = 200
_SHORTEST = 20
"""Characters: shorter ones say nothing by themselves."""

_SHARE = 0.25
"""Of the best sentence's similarity that another one of the same source has."""

_LONGEST = 500
_FENCE = re.compile(r"^ {0,3}(?:`{3,}|~{3,})")
_NO_PROSE = re.compile(r"\s*(?:#|\||<|>|[-=*_]{3,}\s*$)")
_MARKER = re.compile(r"\s*(?:[-*+]|\d{1,9}[.)])\s+")
_END = re.compile(r"[.!?][\"')\]*_`]{0,3}(?=\s)|[\u3002\uff01\uff1f]")


class Quoted(Record, frozen=True):
    """A sentence as it stands in its source, and where it begins."""

    text: str
    start: int


def nearest(model: Model, query: str, text: str) -> list[str]:
    """The one to three sentences nearest to the query, in the order of the text; as they stand
    there. Equal for the same model on every machine.
    """
    candidates = [each for _, each in zip(range(CANDIDATES), sentences(text), strict=False)]
    if not candidates:
        return []
    asked = _whole(model.embed_queries([query])[0])
    scores = [_product(asked, _whole(each)) for each in model.embed([each.text for each in candidates])]
    ranked = sorted(zip(scores, candidates, strict=True), key=lambda each: (-each[0], each[1].start))
    best = ranked[0][0]
    chosen = [each for score, each in ranked[:MOST] if score >= _SHARE * best or score == best]
    return [each.text for each in sorted(chosen, key=lambda each: each.start)]


def sentences(text: str) -> Iterator[Quoted]:
    """The sentences of a Markdown text's paragraphs and list items, each a piece of the text as it
    is.
    """
    for start, end in _paragraphs(text):
        ends = [start, *(match.end() for match in _END.finditer(text, start, end)), end]
        for first, last in pairwise(ends):
            piece = text[first:last]
            bare = piece.strip()
            if _SHORTEST <= len(bare) <= _LONGEST:
                yield Quoted(bare, first + len(piece) - len(piece.lstrip()))


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each, without the mark of a list item."""
    fenced, position, start = False, 0, -1
    for line in text.splitlines(keepends=True):
        begins, position = position, position + len(line)
        fence, marker = _FENCE.match(line), _MARKER.match(line)
        prose = not (fenced or fence or _NO_PROSE.match(line) or not line.strip())
        if start >= 0 and (not prose or marker):
            yield start, begins
            start = -1
        if prose and start < 0:
            start = begins + (marker.end() if marker else 0)
        fenced = fenced != bool(fence)
    if start >= 0:
        yield start, position


def _whole(vector: bytes) -> Sequence[int]:
    """As the index rounds it: whole numbers multiply to the same on every machine."""
    return array.array("b", vectors.quantise(vector))


def _product(one: Sequence[int], other: Sequence[int]) -> int:
    return sum(a * b for a, b in zip(one, other, strict=True))
