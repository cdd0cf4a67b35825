"""Print a passage of a document on a terminal, with the matched words marked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from vmrag_link import terminal_text
from vmrag_link.cli import output
from vmrag_link.models import Record

MAX_LINES = 3
"""Maximum number of lines of a passage of text."""

MAX_CODE_LINES = 8
"""Maximum number of lines of a piece of code."""

MAX_LINE_CHARS = 1000
"""Maximum length of a line that is shown whole. Some documents are one line."""

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*$", re.MULTILINE)

INDENT = "   "

Span = tuple[int, int]
"""The beginning and the end of a part of a text, in characters."""


class _Word(Record, frozen=True):
    """A word, or a part of a word that is longer than a line, from `start` to `end` of the text."""

    start: int
    end: int


class _Line(Record, frozen=True):
    """A line of a wrapped paragraph.

    `begins` and `ends` are True for its first and its last line.
    """

    words: list[_Word]
    begins: bool
    ends: bool


def mark_spans(text: str, spans: Sequence[Span]) -> str:
    """Colour these characters of a text, on a terminal."""
    parts: list[str] = []
    position = 0
    for start, end in spans:
        parts += [text[position:start], output.style_text(text[start:end], fg="yellow", bold=True)]
        position = end
    return "".join([*parts, text[position:]])


def shorten_line(line: str, spans: Sequence[Span], max_characters: int = MAX_LINE_CHARS) -> str:
    """Mark the matches in a line.

    A line of more than `max_characters` is cut to the part around its first match.
    """
    start = max(0, spans[0][0] - max_characters // 2) if spans and spans[0][1] > max_characters else 0
    end = start + max_characters
    if end >= len(line):
        start = max(0, len(line) - max_characters) if start else 0
    shown_spans = [
        (max(0, first - start), min(end, last) - start) for first, last in spans if start < last and first < end
    ]
    return f"{'…' if start else ''}{mark_spans(line[start:end], shown_spans)}{'…' if end < len(line) else ''}"


def cut_lines(text: str, at: int, spans: Sequence[Span]) -> Iterator[str]:
    """Yield a few lines of a text that are not blank, from the character `at` if there are enough.

    Paragraphs are wrapped. The marks of code blocks are left out.
    """
    text = _FENCE.sub(lambda mark: " " * len(mark[0]), text)
    lines = list(_wrap_line(text, output.terminal_columns() - len(INDENT) - len("… ") - len(" …")))
    first = next((number for number, line in enumerate(lines) if at < line.words[-1].end), 0)
    first = max(0, min(first, len(lines) - MAX_LINES))
    excerpt = lines[first : first + MAX_LINES]
    for line in excerpt:
        before = "" if line.begins or line is not excerpt[0] else "… "
        after = "" if line.ends or line is not excerpt[-1] else " …"
        yield f"{INDENT}{before}{' '.join(_cut_word(text, word, spans) for word in line.words)}{after}"


def cut_code_lines(text: str, at: int, spans: Sequence[Span]) -> Iterator[str]:
    """Yield a few lines of code unchanged, without empty ones at the ends.

    They are the first ones, or those around the character `at` if it is below these.
    """
    lines = text.rstrip().split("\n")
    top = next((number for number, line in enumerate(lines) if line.strip()), 0)
    best = text.count("\n", 0, at)
    if best >= top + MAX_CODE_LINES:
        top = min(best - MAX_CODE_LINES // 2, len(lines) - MAX_CODE_LINES)
    end = min(top + MAX_CODE_LINES, len(lines))
    while top < end - 1 and not lines[top].strip():
        top += 1
    while top < end - 1 and not lines[end - 1].strip():
        end -= 1
    start = sum(len(line) + 1 for line in lines[:top])
    max_characters = output.terminal_columns() - len(INDENT) - len("……")
    for line in lines[top:end]:
        yield f"{INDENT}{shorten_line(line.rstrip(), _cut_spans(spans, start, len(line)), max_characters)}"
        start += len(line) + 1


def number_lines(first: int, lines: Sequence[str], spans: Sequence[Span]) -> Iterator[str]:
    """Yield lines unchanged, each with its number.

    `spans` are in the lines, joined by newlines.
    """
    gutter = len(str(first + len(lines) - 1))
    at = 0
    for number, line in enumerate(lines, start=first):
        line_spans = _cut_spans(spans, at, len(line))
        yield f"{INDENT}{output.style_text(f'{number:>{gutter}}', dim=True)}  {mark_spans(line, line_spans)}"
        at += len(line) + 1


def _wrap_line(text: str, width: int) -> Iterator[_Line]:
    for paragraph in _split_paragraphs(text):
        lines: list[list[_Word]] = []
        filled = width
        for word in (part for whole in paragraph for part in _split_word(whole, width)):
            length = len(terminal_text.escape_line(text[word.start : word.end]))
            if filled + 1 + length > width:
                lines.append([])
                filled = -1
            lines[-1].append(word)
            filled += 1 + length
        for number, words in enumerate(lines):
            yield _Line(words, begins=number == 0, ends=number == len(lines) - 1)


def _split_paragraphs(text: str) -> Iterator[list[_Word]]:
    """Yield the words of each paragraph, heading, indented line, and line of a list or a table."""
    words: list[_Word] = []
    for match in re.finditer(r"(\n\s*)?(\S+)", text.rstrip()):  # whose end would take long
        gap = match[1] or ""
        begins = gap.count("\n") > 1 or (gap and (gap != "\n" or not match[2][0].isalnum()))
        if words and (begins or (gap and text[words[0].start] == "#")):
            yield words
            words = []
        words.append(_Word(match.start(2), match.end()))
    if words:
        yield words


def _split_word(word: _Word, width: int) -> Iterator[_Word]:
    for start in range(word.start, word.end, width):
        yield _Word(start, min(start + width, word.end))


def _cut_word(text: str, word: _Word, spans: Sequence[Span]) -> str:
    return mark_spans(text[word.start : word.end], _cut_spans(spans, word.start, word.end - word.start))


def _cut_spans(spans: Sequence[Span], at: int, length: int) -> list[Span]:
    """Return the parts of the spans in `length` characters from `at`, relative to `at`."""
    return [(max(0, start - at), min(length, end - at)) for start, end in spans if start < at + length and end > at]
