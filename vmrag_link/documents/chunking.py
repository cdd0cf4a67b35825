"""Split the text of a document into the chunks that are indexed: by sections, or by size.

Also find the headings above a chunk (`HeaderPaths`), which results show. The name of a document
determines its format (`outlines`), so every machine splits it in the same way.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec

from vmrag_link.conversion.outlines import Line, choose_outline, list_lines
from vmrag_link.errors import LimitExceeded, UsageInvalid
from vmrag_link.models import PAGE_BREAK, Chunk, Chunking, Document, Record, parse_pieces, read_stated_title

# Patterns after which a text may be split, the best first.
_PARAGRAPH = re.compile(r"\n[ \t\r]*\n")
_SENTENCE_OR_LINE = re.compile(r"[.!?]['\")\]]?\s|[\u3002\uff01\uff1f]|\n")
_SPACE = re.compile(r"\s")
_BOUNDARIES = (_PARAGRAPH, _SENTENCE_OR_LINE, _SPACE)

MAX_CHUNKS = 1_000_000
"""Maximum number of chunks of a document. A document of 64 MiB has as many with a sixth of the
default size.
"""

MAX_REPETITIONS = 64
"""How often the chunks of a text may repeat it. They repeat text where they overlap."""

_SMALL_TEXT_CHARACTERS = 100_000
"""Number of characters below which the size of a text does not limit its chunks."""

MIN_SIZE = 32
"""Minimum characters of a chunk that another person's settings may ask for."""

MAX_OVERLAP = 0.9
"""The same for the overlap, as a fraction of the size."""

MAX_CODE_SIZES = 8
"""Maximum size of a block of code, in sizes of chunks. A longer block is split."""

MAX_SECTION_LEVEL = 4
"""Deepest level of a heading that begins a section."""


def split_document(document: Document, chunking: Chunking) -> list[Chunk]:
    """Return the chunks of a document. The chunks of code are the pieces in its metadata."""
    if chunking.strategy != "code":
        return split_text(document.content, chunking, choose_outline(document.doc_id))
    starts = [piece.start for piece in parse_pieces(document)]
    ends = [*starts[1:], len(document.content)]
    return [
        Chunk(number, document.content[start:end], start, end)
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
    ]


def split_text(text: str, chunking: Chunking, outline: str = "markdown") -> list[Chunk]:
    """Return the chunks of a text, in order. Every character is in at least one of them.

    `outline`: a name from `outlines.choose_outline`.

    No chunk has text of two pages (`PAGE_BREAK`). With the strategy `characters`, a chunk has at
    most `size` characters. With `headings`, chunks are sections, or paragraphs of longer sections
    (`split_sections`), without overlap. A block of code may be longer. An empty text has one empty
    chunk, so that it is listed.

    Raises `UsageInvalid` for impossible sizes, and `LimitExceeded` if the text has too many chunks.
    (The sizes may come from a clone.)
    """
    require_valid_sizes(chunking)
    if PAGE_BREAK not in text:
        return _split_page(text, chunking, outline)
    chunks: list[Chunk] = []
    start = 0
    for page in _split_pages(text):
        for chunk in _split_page(page, chunking, outline):
            chunks.append(Chunk(len(chunks), chunk.text, start + chunk.start, start + chunk.end))
        if len(chunks) > MAX_CHUNKS:
            raise _make_limit_error(text, chunking)
        start += len(page)
    return chunks


def _split_page(page: str, chunking: Chunking, outline: str) -> list[Chunk]:
    if chunking.strategy == "headings":
        return _split_by_headings(page, chunking, outline)
    return _split_by_characters(page, chunking)


def _split_pages(text: str) -> Iterator[str]:
    """Yield the pages of a text, which together are the text. An empty page belongs to the next
    one.
    """
    start = read = 0
    for match in re.finditer(PAGE_BREAK, text):
        if text[read : match.start()].strip():  # the text before `read` is blank
            yield text[start : match.start()]
            start = match.start()
        read = match.start()
    yield text[start:]


def join_chunks(texts: Sequence[str], chunking: Chunking) -> str:
    """Return the text that `split_text` has split into these chunks."""
    if chunking.strategy != "characters":
        return "".join(texts)
    parts: list[str] = []
    for text, next_text in pairwise(texts):
        end = len(text)
        if not next_text.startswith(PAGE_BREAK):  # chunks of different pages do not overlap
            end = _find_word_start(text, end - chunking.overlap, end)
        parts.append(text[:end])
    return "".join([*parts, *texts[-1:]])


def _split_by_headings(text: str, chunking: Chunking, outline: str) -> list[Chunk]:
    chunks: list[Chunk] = []
    for part in split_sections(text, chunking.size, outline):
        part_text = text[part.start : part.end]
        part_chunks = [Chunk(0, part_text, 0, len(part_text))]
        if len(part_text) > chunking.size * (MAX_CODE_SIZES if part.code else 1):
            part_chunks = _split_by_characters(part_text, Chunking(size=chunking.size, overlap=0))
        if len(chunks) + len(part_chunks) > MAX_CHUNKS:
            raise _make_limit_error(text, chunking)
        for chunk in part_chunks:
            chunks.append(Chunk(len(chunks), chunk.text, part.start + chunk.start, part.start + chunk.end))
    return chunks


def _split_by_characters(text: str, chunking: Chunking) -> list[Chunk]:
    """Return chunks of at most `size` characters.

    A chunk ends at the last paragraph, or else sentence or line, or else space in the second half
    of its room, or else at the end of its room. The next chunk begins up to `overlap` characters
    earlier, at a word if there is one. Starts and ends both increase strictly, so no chunk is
    inside the previous one.
    """
    size, overlap = chunking.size, chunking.overlap
    chunks: list[Chunk] = []
    start = 0
    room = MAX_REPETITIONS * max(len(text), _SMALL_TEXT_CHARACTERS)
    while start + size < len(text):
        room -= size
        if len(chunks) >= MAX_CHUNKS or room < 0:
            raise _make_limit_error(text, chunking)
        end = _find_chunk_end(text, start + max(overlap, size // 2), start + size)
        chunks.append(Chunk(len(chunks), text[start:end], start, end))
        start = _find_word_start(text, end - overlap, end)
    chunks.append(Chunk(len(chunks), text[start:], start, len(text)))
    return chunks


def _make_limit_error(text: str, chunking: Chunking) -> LimitExceeded:
    return LimitExceeded(
        f"cannot index a document of {len(text):,} characters: chunks of {chunking.size:,} characters with an overlap of "
        f"{chunking.overlap:,} are too many.",
        hint="run 'vmrag rm' to remove it, or raise chunking.size in .vmrag.yaml and import it into a new collection",
        size=chunking.size,
        overlap=chunking.overlap,
    )


def require_safe_sizes(chunking: Chunking) -> None:
    """Raise `ValueError` for sizes that would only keep another person's machine busy."""
    if chunking.size < MIN_SIZE or chunking.overlap > chunking.size * MAX_OVERLAP:
        raise ValueError(
            f"its chunks of {chunking.size:,} characters with an overlap of {chunking.overlap:,} would make the index many times as "
            f"large as its documents (minimum {MIN_SIZE} characters, maximum overlap {MAX_OVERLAP:.0%})"
        )


def require_valid_sizes(chunking: Chunking) -> None:
    """Raise `UsageInvalid` for impossible sizes."""
    size, overlap = chunking.size, chunking.overlap
    if size < 1 or not 0 <= overlap < size:
        raise UsageInvalid(
            f"chunks of {size} characters cannot overlap by {overlap}: size must be >= 1, and 0 <= overlap < size.",
            hint="correct chunking.size and chunking.overlap in .vmrag.yaml",
            size=size,
            overlap=overlap,
        )


def _find_chunk_end(text: str, floor: int, limit: int) -> int:
    """Return the best position to end a chunk, in (floor, limit]. Above `floor`, the next chunk
    always ends later.
    """
    for boundary in _BOUNDARIES:
        last = 0
        for match in boundary.finditer(text, floor, limit):
            last = match.end()
        if last > floor:
            return last
    return limit


def _find_word_start(text: str, earliest: int, end: int) -> int:
    """Return the start of the chunk after one that ends at `end`: the first word from `earliest`
    on, or `earliest`.
    """
    if earliest == 0 or text[earliest - 1].isspace():
        return earliest
    space = _SPACE.search(text, earliest, end)
    return space.end() if space else earliest


class TextPart(Record, frozen=True):
    """The characters `start` to `end` of a text."""

    start: int
    end: int
    code: bool
    """True if it contains a fenced block."""


def split_sections(text: str, size: int, outline: str) -> Iterator[TextPart]:
    """Yield the sections of a text. A section with more than `size` characters is split into groups
    of paragraphs.

    Together they are the text. A longer paragraph or block of code is one part. A heading stays
    with the text below it.
    """
    section: list[Line] = []
    has_text = False
    for line in list_lines(text, outline):
        if has_text and (line.cuts or 0 < line.level <= MAX_SECTION_LEVEL):
            yield from _split_section(section, size)
            section, has_text = [], False
        section.append(line)
        has_text = has_text or not (line.blank or line.level)
    yield from _split_section(section, size) if section else [TextPart(0, 0, code=False)]


def _split_section(lines: list[Line], size: int) -> Iterator[TextPart]:
    if lines[-1].end - lines[0].start <= size:
        yield _make_part(lines)
        return
    part: TextPart | None = None
    for block in _split_blocks(lines):
        if part and block.end - part.start <= size:
            part = TextPart(part.start, block.end, part.code or block.code)
        else:
            if part:
                yield part
            part = block
    if part:
        yield part


def _split_blocks(lines: Iterable[Line]) -> Iterator[TextPart]:
    """Yield paragraphs with the blank lines after them, and whole blocks of code.

    A heading stays with the text below it.
    """
    block: list[Line] = []
    has_text = False
    for line in lines:
        if has_text and (line.level or line.begins or (block[-1].blank and not line.blank)):
            yield _make_part(block)
            block, has_text = [], False
        block.append(line)
        has_text = has_text or not (line.blank or line.level)
    if block:
        yield _make_part(block)


def _make_part(lines: list[Line]) -> TextPart:
    return TextPart(lines[0].start, lines[-1].end, any(line.fenced for line in lines))


def read_header_paths(document: Document) -> HeaderPaths:
    """Return the headings of a document."""
    return HeaderPaths(document.content, choose_outline(document.doc_id), read_stated_title(document))


class _Heading(msgspec.Struct):
    """A heading of a text."""

    start: int
    level: int
    title: str
    parent: int
    """The number of the heading above it; -1 for none."""
    is_alone: bool = True
    """True if only blank lines are between it and the next heading."""


class HeaderPaths:
    """The headings of a text, read once for many offsets.

    `title`: the title in the front matter.
    """

    def __init__(self, text: str, outline: str = "markdown", title: str = "") -> None:
        self._headings: list[_Heading] = []
        above = -1  # the heading of the current line
        for line in list_lines(text, outline):
            if line.level:
                while above >= 0 and self._headings[above].level >= line.level:
                    above = self._headings[above].parent
                self._headings.append(_Heading(line.start, line.level, line.title, above))
                above = len(self._headings) - 1
            elif self._headings and not line.blank:
                self._headings[-1].is_alone = False
        self._starts = [heading.start for heading in self._headings]
        levels = [heading.level for heading in self._headings]
        is_title = bool(levels) and levels[0] == min(levels) and levels.count(levels[0]) == 1
        self._title = title or (self._headings[0].title if is_title else "")

    def find_path(self, offset: int) -> str:
        """Return the headings above an offset, the outermost first; without headings, the title of
        the text.
        """
        return self._join_titles(bisect.bisect_right(self._starts, offset) - 1)

    def find_passage_path(self, start: int) -> str:
        """Return the headings above the first text of a passage, including headings that begin the
        passage.
        """
        number = bisect.bisect_right(self._starts, start) - 1
        if number >= 0 and self._starts[number] == start:
            while self._headings[number].is_alone and number + 1 < len(self._headings):
                number += 1
        return self._join_titles(number)

    def _join_titles(self, number: int) -> str:
        titles: list[str] = []
        while number >= 0:
            titles.append(self._headings[number].title)
            number = self._headings[number].parent
        return " > ".join(filter(None, reversed(titles))) or self._title
