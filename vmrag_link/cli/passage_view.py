"""A passage of a document on a terminal, with the words that were asked for marked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vmrag_link import terminal_text
from vmrag_link.cli import output

LINES = 3
MOST_CHARACTERS = 1000
"""Of one line that is shown whole: some documents are one line."""

INDENT = "   "

Span = tuple[int, int]
"""Characters of a text, from and to."""


class _Word(NamedTuple):
    """A word, or a part of one that is longer than a line, from `start` to `end` of the text."""

    start: int
    end: int


class _Line(NamedTuple):
    """`begins`, `ends`: whether it is the first and the last line of its paragraph."""

    words: list[_Word]
    begins: bool
    ends: bool


def marked(text: str, spans: Sequence[Span]) -> str:
    """The text with these characters in another colour, on a terminal."""
    parts, at = [], 0
    for start, end in spans:
        parts += [text[at:start], output.style(text[start:end], fg="yellow", bold=True)]
        at = end
    return "".join([*parts, text[at:]])


def shortened(line: str, spans: Sequence[Span]) -> str:
    """A line with its matches marked, and if it is much longer than people read, without what is
    far from the first one.
    """
    start = max(0, spans[0][0] - MOST_CHARACTERS // 2) if spans else 0
    end = start + MOST_CHARACTERS
    if end >= len(line):
        start = max(0, len(line) - MOST_CHARACTERS) if start else 0
    near = [(max(0, one - start), min(end, other) - start) for one, other in spans if start < other and one < end]
    return f"{'…' if start else ''}{marked(line[start:end], near)}{'…' if end < len(line) else ''}"


def lines_from(text: str, at: int, spans: Sequence[Span]) -> Iterator[str]:
    """A few lines of a text that are not blank, those from the character `at` on if there are that
    many; paragraphs are wrapped anew.
    """
    lines = list(_wrapped(text, output.columns() - len(INDENT) - len("… ") - len(" …")))
    first = next((number for number, line in enumerate(lines) if at < line.words[-1].end), 0)
    first = max(0, min(first, len(lines) - LINES))
    shown = lines[first : first + LINES]
    for line in shown:
        before = "" if line.begins or line is not shown[0] else "… "
        after = "" if line.ends or line is not shown[-1] else " …"
        yield f"{INDENT}{before}{' '.join(_cut(text, word, spans) for word in line.words)}{after}"


def whole_lines(first: int, lines: Sequence[str], spans: Sequence[Span]) -> Iterator[str]:
    """Lines as they are, each with its number; `spans` in the lines with newlines between them."""
    gutter = len(str(first + len(lines) - 1))
    at = 0
    for number, line in enumerate(lines, start=first):
        own = [
            (max(0, start - at), min(len(line), end - at))
            for start, end in spans
            if start < at + len(line) and end > at
        ]
        yield f"{INDENT}{output.style(f'{number:>{gutter}}', dim=True)}  {marked(line, own)}"
        at += len(line) + 1


def _wrapped(text: str, width: int) -> Iterator[_Line]:
    for paragraph in _paragraphs(text):
        lines: list[list[_Word]] = []
        used = width
        for word in (part for whole in paragraph for part in _parts(whole, width)):
            length = len(terminal_text.one_line(text[word.start : word.end]))
            if used + 1 + length > width:
                lines.append([])
                used = -1
            lines[-1].append(word)
            used += 1 + length
        for number, words in enumerate(lines):
            yield _Line(words, begins=number == 0, ends=number == len(lines) - 1)


def _paragraphs(text: str) -> Iterator[list[_Word]]:
    """The words of each paragraph, heading, indented line, and line of a list or a table."""
    words: list[_Word] = []
    for found in re.finditer(r"(\n\s*)?(\S+)", text.rstrip()):  # whose end would take long
        gap = found[1] or ""
        begins = gap.count("\n") > 1 or (gap and (gap != "\n" or not found[2][0].isalnum()))
        if words and (begins or (gap and text[words[0].start] == "#")):
            yield words
            words = []
        words.append(_Word(found.start(2), found.end()))
    if words:
        yield words


def _parts(word: _Word, width: int) -> Iterator[_Word]:
    for start in range(word.start, word.end, width):
        yield _Word(start, min(start + width, word.end))


def _cut(text: str, word: _Word, spans: Sequence[Span]) -> str:
    own = [
        (max(start, word.start) - word.start, min(end, word.end) - word.start)
        for start, end in spans
        if start < word.end and end > word.start
    ]
    return marked(text[word.start : word.end], own)
