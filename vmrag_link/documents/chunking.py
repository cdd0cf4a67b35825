"""How a document's text is cut into the pieces that are indexed."""

from __future__ import annotations

import re

from vmrag_link.errors import UsageInvalid
from vmrag_link.models import Chunk, Chunking

# Where a text may be cut, best first; a cut lies after the match.
_PARAGRAPH = re.compile(r"\n[ \t\r]*\n")
_SENTENCE_OR_LINE = re.compile(r"[.!?]['\")\]]?\s|[\u3002\uff01\uff1f]|\n")
_SPACE = re.compile(r"\s")
_BOUNDARIES = (_PARAGRAPH, _SENTENCE_OR_LINE, _SPACE)


def chunks(text: str, chunking: Chunking) -> list[Chunk]:
    """The pieces of a text, in order; every character is in at least one of them, `size` characters at most in each.

    A piece ends at the last paragraph, else sentence or line, else space in the second half of its room, else where the
    room ends. The next begins up to `overlap` characters earlier, at a word where there is one. Starts and ends both
    increase strictly, so no piece lies within its predecessor. An empty text is one empty piece: it is listed, too.
    Raises `UsageInvalid` for sizes that cannot be.
    """
    require_possible(chunking)
    size, overlap = chunking.size, chunking.overlap
    pieces: list[Chunk] = []
    start = 0
    while start + size < len(text):
        end = _cut(text, start + max(overlap, size // 2), start + size)
        pieces.append(Chunk(len(pieces), text[start:end], start, end))
        start = _word(text, end - overlap, end)
    pieces.append(Chunk(len(pieces), text[start:], start, len(text)))
    return pieces


def require_possible(chunking: Chunking) -> None:
    """Raises `UsageInvalid` for sizes that cannot be."""
    size, overlap = chunking.size, chunking.overlap
    if size < 1 or not 0 <= overlap < size:
        raise UsageInvalid(
            f"Chunks of {size} characters cannot overlap by {overlap}: it needs size >= 1 and 0 <= overlap < size.",
            hint="Correct chunking.size and chunking.overlap in .vmrag.yaml.",
            size=size,
            overlap=overlap,
        )


def _cut(text: str, floor: int, limit: int) -> int:
    """The best place to end a piece, in (floor, limit]: above `floor` the next piece is sure to end later."""
    for boundary in _BOUNDARIES:
        last = 0
        for match in boundary.finditer(text, floor, limit):
            last = match.end()
        if last > floor:
            return last
    return limit


def _word(text: str, earliest: int, end: int) -> int:
    """Where the piece after one that ends at `end` begins: at the first word from `earliest` on, else right there."""
    if earliest == 0 or text[earliest - 1].isspace():
        return earliest
    space = _SPACE.search(text, earliest, end)
    return space.end() if space else earliest
