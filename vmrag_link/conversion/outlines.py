"""Find the outline of a text: its headings, blocks of code and beginnings of paragraphs.

`documents.chunking` splits documents along it, and titles come from it. `outline_rules` describes
every format. The name of a document determines its format, so every machine splits a text in the
same way.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import NamedTuple

from vmrag_link.conversion.formats import TEMPLATES
from vmrag_link.conversion.outline_rules import RULES, compile_rules
from vmrag_link.models import Record

_MAX_HEADING_CHARACTERS = 300
"""Maximum number of characters of a heading."""

_MAX_TAG_LINES = 5
"""Maximum number of lines of a heading in HTML."""

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


class Line(Record, frozen=True):
    """One line of a text, or all lines of a heading with its underline."""

    start: int
    end: int
    level: int = 0
    """The level of a heading; 0 for other lines."""

    title: str = ""
    fenced: bool = False
    """True if the line belongs to a block of code."""

    blank: bool = False
    begins: bool = False
    """True if the line begins a paragraph without a blank line before it."""

    cuts: bool = False
    """True if the line begins a section."""


_OUTLINES_BY_SUFFIX = {
    suffix: name
    for name, suffixes in {
        "none": ".csv .tsv .json .jsonl .ndjson .xml .pdf",
        "mdx": ".mdx",
        "html": ".html .htm .xhtml",
        "rst": ".rst .rest",
        "text": ".txt .text",
        "asciidoc": ".adoc .asciidoc .asc",
        "org": ".org",
        "mediawiki": ".mediawiki .wiki",
        "textile": ".textile",
        "man": " ".join(f".{number}" for number in range(1, 10)) + " .man .mdoc .roff",
        "pod": ".pod",
        "rdoc": ".rdoc",
        "creole": ".creole",
        "texinfo": ".texi .texinfo .txi",
        "latex": ".tex .ltx",
        "yaml": ".yaml .yml",
    }.items()
    for suffix in suffixes.split()
}
_HELP = re.compile(r"\*\S+\.txt\*|(?:[^\n]*\n){0,3}={40}")


def choose_outline(name: str) -> str:
    """Return the name of the outline rules for a document with this id (default: `markdown`).

    A template (`guide.md.erb`) has the rules of the file that it generates.
    """
    stem, suffix = posixpath.splitext(name)
    if suffix.lower() in TEMPLATES:
        suffix = posixpath.splitext(stem)[1]
    return _OUTLINES_BY_SUFFIX.get(suffix.lower(), "markdown")


def resolve_outline(text: str, outline: str) -> str:
    """Return the name of the rules for a text. Plain text is a help file of Vim or
    reStructuredText.
    """
    return ("vimhelp" if _HELP.match(text) else "rst") if outline == "text" else outline


def list_lines(text: str, outline: str) -> Iterator[Line]:
    """Yield the lines of a text, which together are the text.

    `outline`: a name from `choose_outline`. The time is linear in the size of the text.
    """
    outline = resolve_outline(text, outline)
    if outline == "none":
        yield from _plain_lines(text)
    elif outline == "yaml":
        yield from _yaml_lines(text)
    else:
        yield from _OutlineScan(text, outline).list_lines()


def find_title(text: str, outline: str) -> str:
    """Return the first heading of a text, or for YAML its title (`info.title`); empty if it has
    none.
    """
    if outline == "yaml":
        from vmrag_link.conversion.yaml_outline import find_title

        return find_title(_LINE.findall(text))
    return next((line.title for line in list_lines(text, outline) if line.title), "")


def _plain_lines(text: str) -> Iterator[Line]:
    for match in _LINE.finditer(text):
        yield Line(match.start(), match.end(), blank=not match[0].strip())


def _yaml_lines(text: str) -> Iterator[Line]:
    """Yield the lines of YAML. A key and its value are not split, like a block of code."""
    from vmrag_link.conversion.yaml_outline import find_headings  # few repositories have YAML as documents

    rows = _LINE.findall(text)
    headings = find_headings(rows)
    start = 0
    for number, row in enumerate(rows):
        end = start + len(row)
        if heading := headings.get(number):
            yield Line(start, end, heading.level, heading.title, cuts=heading.has_text)
        else:
            yield Line(start, end, fenced=True)
        start = end


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
_MAX_UNCLOSED_BLOCKS = 20
"""Maximum number of blocks without an end. Each of them searches the rest of the text, so later
ones are read as text.
"""

_NO_TITLE = re.compile(r" {0,3}(?:[-+*][ \t]|>|\|)| {4}|\t")
"""Beginning of a line of Markdown that is not a heading even with an underline below it."""

_SHORT_UNDERLINE = 4
"""Minimum length of an underline that is shorter than its title, in reStructuredText."""

_HELP_OVERLINE = 10
"""Minimum length of a line above a title, in the help of Vim."""

_HELP_FIRST = re.compile(r"\*\S+?\*[ \t]*(\S.*)")
_HELP_TAGGED = re.compile(r"(\S(?:[^*]*[^*\s])?)[ \t]+(?:\*[^*\s]+\*\s*)+$")
_HELP_TAG = re.compile(r"[ \t]{2,}\*([^*\s]+)\*\s*(?:\*[^*\s]+\*\s*)*$")
_HELP_NUMBERED = re.compile(r"\d+(?:\.\d+)*\.?\s")
_HELP_COLUMN, _HELP_ENTRY = 5, 6
"""Levels of `Heading ~` and of an entry that has a tag."""


class _Heading(NamedTuple):
    """A heading, or a line that is not a heading (level 0)."""

    line_count: int
    level: int
    title: str


_NO_HEADING = _Heading(1, 0, "")


class _LineBlock(NamedTuple):
    """A block of lines without headings."""

    end: int
    """The number of the line after it."""

    is_code: bool


class _OutlineScan:
    """One pass over the lines of a text. `number` is the index of a line."""

    def __init__(self, text: str, outline: str) -> None:
        self._rows = _LINE.findall(text)
        self._outline = outline
        self._rules = RULES[outline]
        self._patterns = compile_rules(outline)
        self._first_characters = frozenset(self._rules.first_characters)
        self._has_fences = outline in ("markdown", "mdx", "html")
        self._style_levels: dict[str, int] = {}
        self._unclosed_blocks = 0
        self._may_be_title = True
        """True if the next line may be a title, because the last line is blank or outside of a
        paragraph.
        """

    def list_lines(self) -> Iterator[Line]:
        rows = self._rows
        marks = self._first_characters.union(" \t", self._rules.underlines if self._rules.levels_by_use else "*")
        underline_marks = frozenset(f"{self._rules.underlines} " if self._rules.underlines else "")
        is_help = self._outline == "vimhelp"
        number = start = 0
        while number < len(rows):
            row = rows[number]
            mark_below = rows[number + 1][0] if number + 1 < len(rows) else "\n"
            if row[0] not in marks and mark_below not in underline_marks and not is_help:  # most lines
                end = start + len(row)
                self._may_be_title = row.isspace()
                yield Line(start=start, end=end, level=0, title="", fenced=False, blank=self._may_be_title)
                number += 1
                start = end
                continue
            is_marked = row.lstrip()[:1] in self._first_characters
            if is_marked and (block := self._find_block(number)):
                for inner in rows[number : block.end]:
                    end = start + len(inner)
                    is_blank = not block.is_code and inner.isspace()
                    begins = not block.is_code and self._begins_paragraph(inner)
                    yield Line(start, end, fenced=block.is_code, blank=is_blank, begins=begins)
                    start = end
                number = block.end
                self._may_be_title = True
                continue
            heading = self._find_heading(number, is_marked=is_marked)
            end = start + sum(map(len, rows[number : number + heading.line_count]))
            is_blank = not heading.level and not row.strip()
            begins = is_marked and self._begins_paragraph(row)
            yield Line(start, end, heading.level, heading.title, blank=is_blank, begins=begins)
            number += heading.line_count
            start = end
            self._may_be_title = is_blank or heading.level > 0

    def _begins_paragraph(self, row: str) -> bool:
        pattern = self._patterns.paragraph
        return pattern is not None and pattern.match(row) is not None

    def _find_block(self, number: int) -> _LineBlock | None:
        """Return the block that begins in a line, or None."""
        row = self._rows[number]
        if self._has_fences and (mark := _FENCE.match(row)) and not ("`" in mark[1] and "`" in mark[2]):
            return _LineBlock(self._find_fence_end(number, mark[1]), is_code=True)
        for pattern, block in self._patterns.blocks:
            begin = pattern.match(row)
            if begin is None or self._unclosed_blocks >= _MAX_UNCLOSED_BLOCKS:
                continue
            end = re.compile(block.end.format(re.escape(begin[1])), re.IGNORECASE)
            if block.end[:1] in "-<" and end.search(row, begin.end()):  # a comment or an element in one line
                return _LineBlock(number + 1, block.code)
            for end_number in range(number + 1, len(self._rows)):
                if end.search(self._rows[end_number]):
                    return _LineBlock(end_number + 1, block.code)
            self._unclosed_blocks += 1
        return None

    def _find_fence_end(self, number: int, fence: str) -> int:
        for end_number in range(number + 1, len(self._rows)):
            mark = _FENCE.match(self._rows[end_number])
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                return end_number + 1
        return len(self._rows)

    def _find_heading(self, number: int, *, is_marked: bool) -> _Heading:
        row = self._rows[number]
        if len(row) > _MAX_HEADING_CHARACTERS or row.isspace():
            return _NO_HEADING
        if self._outline == "vimhelp":
            return self._find_help_heading(number)
        if is_marked and (heading := self._find_marked_heading(number)):
            return heading
        return self._find_underlined_heading(number) if self._rules.underlines else _NO_HEADING

    def _find_marked_heading(self, number: int) -> _Heading | None:
        row = self._rows[number].rstrip("\r\n")
        line_count = 1
        if "<h" in row and "</h" not in row:
            next_rows = self._rows[number + 1 : number + _MAX_TAG_LINES]
            line_count = next((count for count, next_row in enumerate(next_rows, 2) if "</h" in next_row), 1)
            row = "".join(self._rows[number : number + line_count])
        for pattern, base_level in self._patterns.headings:
            if match := pattern.match(row):
                groups = match.groupdict()
                level = base_level + len(groups.get("mark") or "") + int(groups.get("digit") or 0)
                title = groups.get("title") or ""
                if not title and self._outline == "man" and number + 1 < len(self._rows):
                    title = self._rows[number + 1]  # an empty macro makes a heading of the next line
                    line_count = 2
                if len(title) > _MAX_HEADING_CHARACTERS:
                    return None  # each passage below a heading has its title
                return _Heading(line_count, level, self._clean_title(title, level))
        return None

    def _clean_title(self, title: str, level: int) -> str:
        text = " ".join(self._rules.clean_title(title).split())
        if self._outline == "man" and level == 1:
            name, *section = text.split()[:2] or [""]
            return f"{name}({section[0]})" if section else name
        return text

    def _find_underlined_heading(self, number: int) -> _Heading:
        """Find a title with a line below it, or in reStructuredText with lines above and below."""
        underline = self._find_underline(number + 1)
        row = self._rows[number]
        title = row.strip()
        if self._find_underline(number):
            return self._find_overlined_heading(number) if self._outline == "rst" else _NO_HEADING
        if not underline or not (self._may_be_title or self._follows_directive(number)):
            return _NO_HEADING
        length = len(self._rows[number + 1].strip())
        match self._outline:
            case "rst":
                fits = not row[0].isspace() and length >= min(_SHORT_UNDERLINE, len(title))
            case "asciidoc":
                fits = (title[0].isalnum() or title[0] == "_") and abs(length - len(row.rstrip())) <= 1
            case _:
                fits = not _NO_TITLE.match(row)
        if not fits:
            return _NO_HEADING
        by_use = self._rules.levels_by_use
        level = self._find_style_level(underline) if by_use else self._rules.underlines.index(underline) + 1
        return _Heading(2, level, self._clean_title(title, level))

    def _find_overlined_heading(self, number: int) -> _Heading:
        overline = self._find_underline(number)
        rows = [row.rstrip() for row in self._rows[number : number + 3]]
        if len(rows) < 3 or rows[0] != rows[2] or not rows[1] or self._find_underline(number + 1):  # noqa: PLR2004
            return _NO_HEADING
        if len(rows[0]) < min(_SHORT_UNDERLINE, len(rows[1].strip())) or len(rows[1]) > _MAX_HEADING_CHARACTERS:
            return _NO_HEADING
        level = self._find_style_level(2 * overline)
        return _Heading(3, level, self._clean_title(rows[1], level))

    def _follows_directive(self, number: int) -> bool:
        pattern = self._patterns.before_title
        return pattern is not None and pattern.match(self._rows[number - 1]) is not None

    def _find_style_level(self, style: str) -> int:
        """Return the level of a style: the order in which the text uses it first."""
        return self._style_levels.setdefault(style, len(self._style_levels) + 1)

    def _find_underline(self, number: int) -> str:
        """Return the character of which a line consists, if it is one of the underlines."""
        row = self._rows[number].rstrip() if number < len(self._rows) else ""
        if not row or row[0] not in self._rules.underlines:
            row = row.lstrip() if row[:1] == " " and self._has_fences else ""
        if len(row) < 2 or row[0] not in self._rules.underlines or row.count(row[0]) < len(row):  # noqa: PLR2004
            return ""
        return row[0]

    def _find_help_heading(self, number: int) -> _Heading:
        """Find a title in the help of Vim, where lines of one character precede titles."""
        row = self._rows[number]
        if not number and (first := _HELP_FIRST.match(row)):
            return _Heading(1, 1, self._clean_title(first[1], 1))
        if (overline := self._find_underline(number)) and len(row.rstrip()) >= _HELP_OVERLINE:
            return self._find_help_title(number, overline)
        if tag := _HELP_TAG.match(row):
            return _Heading(1, _HELP_ENTRY, tag[1])
        if row[0].isspace():
            return _NO_HEADING
        if tagged := _HELP_TAGGED.match(row):
            title = self._clean_title(tagged[1], 0)
            is_section = title.isupper() or _HELP_NUMBERED.match(title)
            return _Heading(1, 1 + self._find_style_level("tagged") if is_section else _HELP_ENTRY, title)
        is_column = row.rstrip().endswith("~")
        return _Heading(1, _HELP_COLUMN, self._clean_title(row.rstrip(), 0)) if is_column else _NO_HEADING

    def _find_help_title(self, number: int, overline: str) -> _Heading:
        for title_number in range(number + 1, min(number + 3, len(self._rows))):
            row = self._rows[title_number]
            if row.strip():
                if len(row) > _MAX_HEADING_CHARACTERS or self._find_underline(title_number) or row.startswith("vim:"):
                    return _NO_HEADING
                level = 1 + self._find_style_level(overline)
                return _Heading(title_number - number + 1, level, self._clean_title(row.rstrip(), 0))
        return _NO_HEADING
