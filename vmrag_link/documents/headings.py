"""Markdown by its headings: the sections of a text, and the headings that a place stands under.

Headings are lines that begin with `#`; in a fenced block of code such lines are comments.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

WHOLE_LINES = 500
"""A text of at most so many lines is one section."""

_SECTION_LEVELS = (2, 3)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*\r?\n?\Z")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
_LONGEST_HEADING = 300


class Part(NamedTuple):
    """Characters `start` to `end` of a text. `code`: a fenced block is in it."""

    start: int
    end: int
    code: bool


class _Line(NamedTuple):
    """`level`: of a heading, else 0. `fenced`: it belongs to a block of code."""

    start: int
    end: int
    level: int
    title: str
    fenced: bool
    blank: bool


def parts(text: str, size: int) -> Iterator[Part]:
    """The sections of a text, and of those with more than `size` characters the paragraphs, as many
    together as fit; together they are the text.

    A paragraph or a block of code that is longer by itself is one part.
    """
    within = text.count("\n") < WHOLE_LINES
    section: list[_Line] = []
    for line in _lines(text):
        if section and line.level in _SECTION_LEVELS and not within:
            yield from _section(section, size)
            section = []
        section.append(line)
    yield from _section(section, size) if section else [Part(0, 0, code=False)]


def header_path(text: str, offset: int) -> str:
    """As `HeaderPaths.at`, for one place of a text."""
    return HeaderPaths(text).at(offset)


class HeaderPaths:
    """The headings of a text, read once for many places in it."""

    def __init__(self, text: str) -> None:
        self._starts: list[int] = []
        self._titles: list[str] = []
        self._above: list[int] = []
        """The number of the heading that each one stands under; -1: none."""
        around: list[tuple[int, int]] = []  # level and number
        for line in _lines(text):
            if line.level:
                while around and around[-1][0] >= line.level:
                    around.pop()
                self._above.append(around[-1][1] if around else -1)
                around.append((line.level, len(self._starts)))
                self._starts.append(line.start)
                self._titles.append(line.title)

    def at(self, offset: int) -> str:
        """The titles of the headings that a place stands under, the outermost first; empty for
        none.
        """
        number = bisect.bisect_right(self._starts, offset) - 1
        titles: list[str] = []
        while number >= 0:
            titles.append(self._titles[number])
            number = self._above[number]
        return " > ".join(filter(None, reversed(titles)))


def _section(lines: list[_Line], size: int) -> Iterator[Part]:
    if lines[-1].end - lines[0].start <= size:
        yield _part(lines)
        return
    held: Part | None = None
    for block in _blocks(lines):
        if held and block.end - held.start <= size:
            held = Part(held.start, block.end, held.code or block.code)
        else:
            if held:
                yield held
            held = block
    if held:
        yield held


def _blocks(lines: Iterable[_Line]) -> Iterator[Part]:
    """Paragraphs with the blank lines after them, and whole blocks of code. A heading stays with
    what follows it.
    """
    block: list[_Line] = []
    has_text = False
    for line in lines:
        if has_text and (line.level or (block[-1].blank and not line.blank)):
            yield _part(block)
            block, has_text = [], False
        block.append(line)
        has_text = has_text or not (line.blank or line.level)
    if block:
        yield _part(block)


def _part(lines: list[_Line]) -> Part:
    return Part(lines[0].start, lines[-1].end, any(each.fenced for each in lines))


def _lines(text: str) -> Iterator[_Line]:
    fence = ""
    for match in _LINE.finditer(text):
        line = match[0]
        mark = _FENCE.match(line)
        opens = not fence and mark is not None and not ("`" in mark[1] and "`" in mark[2])
        if fence or opens:
            closes = bool(fence) and mark is not None and mark[1].startswith(fence) and not mark[2].strip()
            fence = "" if closes else fence or (mark[1] if mark else "")
            yield _Line(match.start(), match.end(), 0, "", fenced=True, blank=False)
            continue
        found = _HEADING.match(line) if len(line) <= _LONGEST_HEADING else None
        level, title = (len(found[1]), " ".join((found[2] or "").split())) if found else (0, "")
        yield _Line(match.start(), match.end(), level, title, fenced=False, blank=not line.strip())
