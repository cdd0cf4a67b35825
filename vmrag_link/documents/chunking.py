"""How a document's text is cut into the pieces that are indexed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from vmrag_link.documents import headings
from vmrag_link.errors import LimitExceeded, UsageInvalid
from vmrag_link.models import PAGE_BREAK, Chunk, Chunking, Document, pieces_of

# Where a text may be cut, best first; a cut lies after the match.
_PARAGRAPH = re.compile(r"\n[ \t\r]*\n")
_SENTENCE_OR_LINE = re.compile(r"[.!?]['\")\]]?\s|[\u3002\uff01\uff1f]|\n")
_SPACE = re.compile(r"\s")
_BOUNDARIES = (_PARAGRAPH, _SENTENCE_OR_LINE, _SPACE)

MOST_CHUNKS = 1_000_000
"""Of one document: as many as one of 64 MiB has with a sixth of the usual size."""

MOST_COPIES = 64
"""How often chunks may repeat a text, which they do where they overlap."""

_SMALL = 100_000
"""Characters of a text below which nothing is too much."""

LEAST_SIZE, MOST_OVERLAP = 32, 0.9


LONGEST_CODE = 8
"""In sizes of chunks: a longer block of code is cut, too."""


def chunks(text: str, chunking: Chunking) -> list[Chunk]:
    """The pieces of a text, in order; every character is in one of them.

    None has text of two pages (`PAGE_BREAK`). `characters`: at most `size` in each. `headings`:
    sections, and of longer ones paragraphs (`headings.parts`), without overlap; a block of code may
    be longer. An empty text is one empty piece, so that it is listed.

    Raises `UsageInvalid` for impossible sizes, and `LimitExceeded` where a text makes too many
    pieces: the sizes may be a stranger's.
    """
    require_possible(chunking)
    cut = _by_headings if chunking.strategy == "headings" else _by_characters
    if PAGE_BREAK not in text:
        return cut(text, chunking)
    pieces: list[Chunk] = []
    start = 0
    for page in _pages(text):
        for each in cut(page, chunking):
            pieces.append(Chunk(len(pieces), each.text, start + each.start, start + each.end))
        if len(pieces) > MOST_CHUNKS:
            raise _too_many(text, chunking)
        start += len(page)
    return pieces


def document_chunks(document: Document, chunking: Chunking) -> list[Chunk]:
    """As `chunks`; of code the pieces that its metadata names, as it was cut when it was read."""
    if chunking.strategy != "code":
        return chunks(document.content, chunking)
    starts = [each.start for each in pieces_of(document)]
    ends = [*starts[1:], len(document.content)]
    return [
        Chunk(number, document.content[start:end], start, end)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def _pages(text: str) -> Iterator[str]:
    """The pages of a text, which together are the text; empty ones belong to the next."""
    start = 0
    for match in re.finditer(PAGE_BREAK, text):
        if text[start : match.start()].strip():
            yield text[start : match.start()]
            start = match.start()
    yield text[start:]


def joined(texts: Sequence[str], chunking: Chunking) -> str:
    """The text that `chunks` has cut into these pieces."""
    if chunking.strategy != "characters":
        return "".join(texts)
    kept = [
        each if after.startswith(PAGE_BREAK) else each[: _word(each, len(each) - chunking.overlap, len(each))]
        for each, after in pairwise(texts)
    ]
    return "".join([*kept, *texts[-1:]])


def _by_headings(text: str, chunking: Chunking) -> list[Chunk]:
    pieces: list[Chunk] = []
    for part in headings.parts(text, chunking.size):
        length = part.end - part.start
        cut = [Chunk(0, text[part.start : part.end], 0, length)]
        if length > chunking.size * (LONGEST_CODE if part.code else 1):
            cut = _by_characters(text[part.start : part.end], Chunking(size=chunking.size, overlap=0))
        if len(pieces) + len(cut) > MOST_CHUNKS:
            raise _too_many(text, chunking)
        for each in cut:
            pieces.append(Chunk(len(pieces), each.text, part.start + each.start, part.start + each.end))
    return pieces


def _by_characters(text: str, chunking: Chunking) -> list[Chunk]:
    """A piece ends at the last paragraph, else sentence or line, else space in the second half of
    its room, else at the end of its room. The next begins up to `overlap` characters earlier, at a
    word if there is one. Starts and ends both increase strictly, so no piece lies within its
    predecessor.
    """
    size, overlap = chunking.size, chunking.overlap
    pieces: list[Chunk] = []
    start, room = 0, MOST_COPIES * max(len(text), _SMALL)
    while start + size < len(text):
        room -= size
        if len(pieces) >= MOST_CHUNKS or room < 0:
            raise _too_many(text, chunking)
        end = _piece_end(text, start + max(overlap, size // 2), start + size)
        pieces.append(Chunk(len(pieces), text[start:end], start, end))
        start = _word(text, end - overlap, end)
    pieces.append(Chunk(len(pieces), text[start:], start, len(text)))
    return pieces


def _too_many(text: str, chunking: Chunking) -> LimitExceeded:
    return LimitExceeded(
        f"A document of {len(text):,} characters cannot be indexed: its collection wants chunks of {chunking.size:,} characters, "
        f"of which neighbours share {chunking.overlap:,}, and that makes too many.",
        hint="Take it out (vmrag rm), or make a collection for it with larger chunks: chunking.size in .vmrag.yaml",
        size=chunking.size,
        overlap=chunking.overlap,
    )


def require_modest(chunking: Chunking) -> None:
    """Raises `ValueError` for sizes that only serve to keep another person's machine busy."""
    if chunking.size < LEAST_SIZE or chunking.overlap > chunking.size * MOST_OVERLAP:
        raise ValueError(
            f"its chunks of {chunking.size:,} characters that overlap by {chunking.overlap:,} make an index many times as large as its "
            f"documents (at least {LEAST_SIZE} characters, and an overlap of at most {MOST_OVERLAP:.0%}, are taken)"
        )


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


def _piece_end(text: str, floor: int, limit: int) -> int:
    """The best place to end a piece, in (floor, limit]. Above `floor` the next piece ends later for
    sure.
    """
    for boundary in _BOUNDARIES:
        last = 0
        for match in boundary.finditer(text, floor, limit):
            last = match.end()
        if last > floor:
            return last
    return limit


def _word(text: str, earliest: int, end: int) -> int:
    """The start of the piece after one that ends at `end`: the first word from `earliest` on, or
    `earliest`.
    """
    if earliest == 0 or text[earliest - 1].isspace():
        return earliest
    space = _SPACE.search(text, earliest, end)
    return space.end() if space else earliest
