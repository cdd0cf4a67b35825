"""Cut the text of a document into the pieces that are indexed: by sections, or by size.

The name of a document determines its format (`outlines`), so every machine cuts it in the same way.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from vmrag_link.conversion.outlines import Line, choose_outline, list_lines
from vmrag_link.errors import LimitExceeded, UsageInvalid
from vmrag_link.models import PAGE_BREAK, Chunk, Chunking, Document, Record, parse_pieces, read_stated_title

# Patterns after which a text may be cut, best first.
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


def split_text(text: str, chunking: Chunking, outline: str = "markdown") -> list[Chunk]:
    """The pieces of a text, in order; every character is in one of them.

    `outline`: a name from `outlines.outline_of`.

    None has text of two pages (`PAGE_BREAK`). `characters`: at most `size` in each. `headings`:
    sections, and of longer ones paragraphs (`parts`), without overlap; a block of code may
    be longer. An empty text is one empty piece, so that it is listed.

    Raises `UsageInvalid` for impossible sizes, and `LimitExceeded` where a text makes too many
    pieces: the sizes may be a stranger's.
    """
    require_valid_sizes(chunking)

    def cut(page: str, chunking: Chunking) -> list[Chunk]:
        return (
            _by_headings(page, chunking, outline) if chunking.strategy == "headings" else _by_characters(page, chunking)
        )

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


def split_document(document: Document, chunking: Chunking) -> list[Chunk]:
    """As `chunks`; of code the pieces that its metadata names, as it was cut when it was read."""
    if chunking.strategy != "code":
        return split_text(document.content, chunking, choose_outline(document.doc_id))
    starts = [each.start for each in parse_pieces(document)]
    ends = [*starts[1:], len(document.content)]
    return [
        Chunk(number, document.content[start:end], start, end)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def _pages(text: str) -> Iterator[str]:
    """The pages of a text, which together are the text; empty ones belong to the next."""
    start = read = 0
    for match in re.finditer(PAGE_BREAK, text):
        if text[read : match.start()].strip():  # what precedes `read` is blank
            yield text[start : match.start()]
            start = match.start()
        read = match.start()
    yield text[start:]


def join_chunks(texts: Sequence[str], chunking: Chunking) -> str:
    """The text that `chunks` has cut into these pieces."""
    if chunking.strategy != "characters":
        return "".join(texts)
    kept = [
        each if after.startswith(PAGE_BREAK) else each[: _word(each, len(each) - chunking.overlap, len(each))]
        for each, after in pairwise(texts)
    ]
    return "".join([*kept, *texts[-1:]])


def _by_headings(text: str, chunking: Chunking, outline: str) -> list[Chunk]:
    pieces: list[Chunk] = []
    for part in split_sections(text, chunking.size, outline):
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


def require_safe_sizes(chunking: Chunking) -> None:
    """Raises `ValueError` for sizes that only serve to keep another person's machine busy."""
    if chunking.size < LEAST_SIZE or chunking.overlap > chunking.size * MOST_OVERLAP:
        raise ValueError(
            f"its chunks of {chunking.size:,} characters that overlap by {chunking.overlap:,} make an index many times as large as its "
            f"documents (at least {LEAST_SIZE} characters, and an overlap of at most {MOST_OVERLAP:.0%}, are taken)"
        )


def require_valid_sizes(chunking: Chunking) -> None:
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


CUT_LEVELS = 4
"""Deepest level of a heading that begins a section."""


class TextPart(Record, frozen=True):
    """Characters `start` to `end` of a text. `code`: a fenced block is in it."""

    start: int
    end: int
    code: bool


def split_sections(text: str, size: int, outline: str) -> Iterator[TextPart]:
    """The sections of a text, and of those with more than `size` characters the paragraphs, as many
    together as fit; together they are the text.

    A paragraph or a block of code that is longer by itself is one part. A heading stays with what
    follows it.
    """
    section: list[Line] = []
    has_text = False
    for line in list_lines(text, outline):
        if has_text and (line.cuts or 0 < line.level <= CUT_LEVELS):
            yield from _section(section, size)
            section, has_text = [], False
        section.append(line)
        has_text = has_text or not (line.blank or line.level)
    yield from _section(section, size) if section else [TextPart(0, 0, code=False)]


def read_header_paths(document: Document) -> HeaderPaths:
    return HeaderPaths(document.content, choose_outline(document.doc_id), read_stated_title(document))


class HeaderPaths:
    """The headings of a text, read once for many offsets.

    `title`: the title in the front matter.
    """

    def __init__(self, text: str, outline: str = "markdown", title: str = "") -> None:
        self._starts: list[int] = []
        self._titles: list[str] = []
        self._above: list[int] = []
        """The number of the heading that each one stands under; -1: none."""
        self._alone: list[bool] = []
        """For each heading, True if only blank lines are between it and the next one."""
        around: list[tuple[int, int]] = []  # level and number
        levels: list[int] = []
        for line in list_lines(text, outline):
            if line.level:
                while around and around[-1][0] >= line.level:
                    around.pop()
                self._above.append(around[-1][1] if around else -1)
                around.append((line.level, len(self._starts)))
                levels.append(line.level)
                self._starts.append(line.start)
                self._titles.append(line.title)
                self._alone.append(True)
            elif self._alone and not line.blank:
                self._alone[-1] = False
        is_title = levels.count(min(levels)) == 1 and levels[0] == min(levels) if levels else False
        self._title = title or (self._titles[0] if is_title else "")

    def find_path(self, offset: int) -> str:
        """Return the headings above an offset, the outermost first; without headings, the title of
        the text.
        """
        return self._join_titles(bisect.bisect_right(self._starts, offset) - 1)

    def find_passage_path(self, start: int) -> str:
        """Return the headings above the first text of a passage, including headings that begin the
        passage.
        """
        number = first = bisect.bisect_right(self._starts, start) - 1
        if first >= 0 and self._starts[first] == start:
            while self._alone[number] and number + 1 < len(self._starts):
                number += 1
        return self._join_titles(number)

    def _join_titles(self, number: int) -> str:
        titles: list[str] = []
        while number >= 0:
            titles.append(self._titles[number])
            number = self._above[number]
        return " > ".join(filter(None, reversed(titles))) or self._title


def _section(lines: list[Line], size: int) -> Iterator[TextPart]:
    if lines[-1].end - lines[0].start <= size:
        yield _part(lines)
        return
    held: TextPart | None = None
    for block in _blocks(lines):
        if held and block.end - held.start <= size:
            held = TextPart(held.start, block.end, held.code or block.code)
        else:
            if held:
                yield held
            held = block
    if held:
        yield held


def _blocks(lines: Iterable[Line]) -> Iterator[TextPart]:
    """Paragraphs with the blank lines after them, and whole blocks of code. A heading stays with
    what follows it.
    """
    block: list[Line] = []
    has_text = False
    for line in lines:
        if has_text and (line.level or line.begins or (block[-1].blank and not line.blank)):
            yield _part(block)
            block, has_text = [], False
        block.append(line)
        has_text = has_text or not (line.blank or line.level)
    if block:
        yield _part(block)


def _part(lines: list[Line]) -> TextPart:
    return TextPart(lines[0].start, lines[-1].end, any(line.fenced for line in lines))
