"""Find the outline of a text: its headings, blocks of code and beginnings of paragraphs.

The table `_RULES` describes every format. The name of a document determines its format, so every
machine splits a text in the same way.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from vmrag_link.conversion.formats import TEMPLATES
from vmrag_link.models import Record

_LONGEST_HEADING = 300
"""Maximum number of characters of a heading."""

_MOST_TAG_LINES = 5
"""Maximum number of lines of a heading in HTML."""

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


class Line(Record, frozen=True):
    """One line of a text, or all lines of a heading with its rules."""

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


class Block(NamedTuple):
    """A block of lines that contains no headings.

    `end`: a pattern of the last line, in which `{0}` is the first group of `begin`. `code`: the
    block is not cut.
    """

    begin: str
    end: str
    """A pattern of the last line, in which `{0}` is the first group of `begin`."""

    code: bool = True
    """True if the block must not be split."""


class Rules(NamedTuple):
    """The headings, blocks and paragraphs of a format."""

    marks: tuple[tuple[str, int], ...] = ()
    """Patterns of headings, with the group `title`, and a number for each. The level is this
    number, plus the length of the group `mark` and the number in the group `digit`, if the pattern
    has these groups.
    """

    blocks: tuple[Block, ...] = ()
    signs: str = ""
    """The first characters of `marks`, `blocks` and `begins`."""

    rules: str = ""
    """Characters of rules (lines below a title). The level is the position of the character."""

    ordered: bool = False
    """True if the level is instead the order in which the text uses the characters."""

    above: str = ""
    """A pattern of lines that may precede a title with a rule, in addition to blank lines."""

    begins: str = ""
    """A pattern of lines that begin a paragraph."""

    clean: Callable[[str], str] = str


_ANCHOR = re.compile(r"\s*\\?\{(?:[#:.][^{}]*|/\*[^{}]*\*/)\}\s*$")
_TAG = re.compile(r"<!--[^<>]*-->|</?[A-Za-z][^<>]*>")
_CODE_OR_TAG = re.compile(rf"(`[^`]*`)|{_TAG.pattern}")
"""Code is text, even if it has a tag."""
_LINKED = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*(?:\s[^()]*)?\)")


def _clean_markdown(title: str) -> str:
    title = _CODE_OR_TAG.sub(r"\1", _ANCHOR.sub("", title))
    return _LINKED.sub(r"\1", title) if "](" in title else title


_ORG_STATE = re.compile(r"(?:TODO|DONE|NEXT|WAITING|CANCELL?ED|COMMENT)\s+")
_ORG_PRIORITY = re.compile(r"\[#\w\]\s*")
_ORG_TAGS = re.compile(r"\s+:[\w@#%:]+:\s*$|\s+\[\d*[/%]\d*\]\s*$")
_ORG_LINK = re.compile(r"\[\[[^\[\]]*\](?:\[([^\[\]]*)\])?\]")


def _clean_org(title: str) -> str:
    title = _ORG_TAGS.sub("", title)
    for pattern in (_ORG_STATE, _ORG_PRIORITY):
        if prefix := pattern.match(title):
            title = title[prefix.end() :]
    return _ORG_LINK.sub(lambda link: link[1] or "", title) if "[[" in title else title


_ROFF_ESCAPE = re.compile(r"\\f(?:\[\w*\]|\(\w\w|\w)|\\[&/,^|]|\\s[+-]?\d")
_ROFF_QUOTED = re.compile(r'"([^"]*)"|(\S+)')
_ROFF_SIGNS = {r"\-": "-", r"\(aq": "'", r"\(em": "-", r"\(en": "-", r"\ ": " ", r"\~": " ", r"\e": "\\"}


def _clean_roff(title: str) -> str:
    title = _ROFF_ESCAPE.sub("", title)
    for sign, text in _ROFF_SIGNS.items():
        title = title.replace(sign, text)
    return " ".join(quoted or plain for quoted, plain in _ROFF_QUOTED.findall(title))


def _clean_asciidoc(title: str) -> str:
    return re.sub(r"\[\[[^\[\]]*\]\]|\[#[^\[\]]*\]|<<[^<>,]*,([^<>]*)>>", r"\1", title)


_ROLE = re.compile(r"(?::[\w:.+-]+:)?`([^`<]*[^`<\s])(?:\s*<[^`>]*>)?`_{0,2}")


def _clean_rst(title: str) -> str:
    return _ROLE.sub(r"\1", title.replace("``", "")) if "`" in title else title


def _clean_wiki(title: str) -> str:
    return _TAG.sub("", re.sub(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]", r"\1", title))


def _clean_help(title: str) -> str:
    return re.sub(r"\s*\*[^*\s]+\*", "", title).removesuffix("~")


def _make_block(begin: str, *, code: bool = True) -> Block:
    return Block(begin, r"{0}[ \t]*$", code)


_HTML_BLOCKS = (
    Block(r" {0,3}<!(--)", "-->", code=False),
    Block(r" {0,3}<(pre|script|style|textarea)\b", "</{0}>"),
)
_HTML_HEADING = r"\s*<h(?P<digit>[1-6])\b[^>]*>(?P<title>.*?)</h(?P=digit)\s*>"
_ATX = r" {0,3}(?P<mark>#{1,6})(?:[ \t]+(?P<title>.*?))?(?:[ \t]+#+)?[ \t]*$"

_MARKDOWN = Rules(
    marks=((_ATX, 0), (_HTML_HEADING, 0)),
    blocks=_HTML_BLOCKS,
    signs="#<`~|",
    rules="=-",
    begins=r"[ \t]*(?:\||<tr\b)",
    clean=_clean_markdown,
)

_RULES: dict[str, Rules] = {
    "none": Rules(),
    "markdown": _MARKDOWN,
    "mdx": _MARKDOWN._replace(blocks=(*_HTML_BLOCKS, Block(r"\s*\{/(\*)", r"\*/", code=False)), signs="#<`~{|"),
    "html": _MARKDOWN._replace(rules=""),
    "rst": Rules(
        signs="+*",
        rules="=-`:'\"~^_*+#<>.!$%&(),/;?@[\\]{|}",
        ordered=True,
        above=r"\.\. ",
        begins=r"[ \t]*(?:\+-|\*[ \t]-)",
        clean=_clean_rst,
    ),
    "asciidoc": Rules(
        marks=((r"(?P<mark>={1,6}|#{1,6})[ \t]+(?P<title>\S.*)$", 0),),
        blocks=(
            _make_block(r"(-{4,}|\.{4,}|\+{4,})[ \t]*$"),
            _make_block(r"(`{3,})"),
            _make_block(r"(/{4,}|[|,:!]={3,})[ \t]*$", code=False),
        ),
        signs="=#-.+`/|,:!",
        rules="=-~^+",
        above=r"//|\[|:[^:]+:|\w+::",
        begins=r"\|",
        clean=_clean_asciidoc,
    ),
    "org": Rules(
        marks=((r"(?P<mark>\*+)[ \t]+(?P<title>\S.*)$", 1), (r"(?i:#\+title:)[ \t]*(?P<title>\S.*)$", 1)),
        blocks=(Block(r"\s*#\+(?:begin|BEGIN)_(\w+)", r"(?i:\s*#\+end_{0}\b)"),),
        signs="*#|",
        begins=r"[ \t]*\|",
        clean=_clean_org,
    ),
    "mediawiki": Rules(
        marks=((r"(?P<mark>={1,6})[ \t]*(?P<title>[^=\s].*?)[ \t]*(?P=mark)[ \t]*(?:<!--.*)?$", 0),),
        blocks=(
            Block(r"\s*<(pre|nowiki|source|syntaxhighlight)\b", "</{0}>"),
            _HTML_BLOCKS[0],
            Block(r"\s*(\{)\|", r"\s*\|\}}", code=False),
        ),
        signs="=<{",
        begins=r"\|-|<tr\b",
        clean=_clean_wiki,
    ),
    "textile": Rules(
        marks=tuple((rf"h{level}(?:[(\[{{<>=][^.]*)?\.[ \t]+(?P<title>\S.*)$", level) for level in range(1, 7)),
        blocks=_HTML_BLOCKS,
        signs="h<",
    ),
    "man": Rules(
        marks=tuple(
            (rf"\.[ \t]*(?:{names})(?:[ \t]+(?P<title>\S.*))?$", level)
            for level, names in enumerate(("TH|Dt", "SH|Sh", "SS|Ss"), start=1)
        ),
        blocks=(Block(r"[.'][ \t]*(ig)\b", r"\.\.$", code=False),),
        signs=".'",
        begins=r"\.[ \t]*(?:Pp|PP|LP|P|TP|TQ|IP|HP|It|RS|Bl)\b",
        clean=_clean_roff,
    ),
    "pod": Rules(
        marks=((r"=head(?P<digit>[1-6])[ \t]+(?P<title>\S.*)$", 0),),
        blocks=(Block(r"=begin[ \t]+(\S+)", r"=end[ \t]+{0}"),),
        signs="=",
        begins=r"=item\b",
    ),
    "rdoc": Rules(marks=((r"(?P<mark>={1,6}|#{1,6})[ \t]*(?P<title>[^=#\s].*)$", 0),), signs="=#"),
    "creole": Rules(
        marks=((r"(?P<mark>={1,6})[ \t]*(?P<title>[^=\s].*)$", 0),),
        blocks=(Block(r"(\{{3})[ \t]*$", r"\}}\}}\}}[ \t]*$"),),
        signs="={",
        clean=lambda title: title.rstrip("= \t"),
    ),
    "texinfo": Rules(
        marks=tuple(
            (rf"@(?:{names})[ \t]+(?P<title>\S.*)$", level)
            for level, names in enumerate(
                (
                    "settitle|title|top",
                    "chapter|unnumbered|appendix|chapheading|majorheading",
                    "section|unnumberedsec|appendixsec|heading",
                    "subsection|unnumberedsubsec|appendixsubsec|subheading",
                    "subsubsection|unnumberedsubsubsec|appendixsubsubsec|subsubheading",
                ),
                start=1,
            )
        ),
        blocks=(Block(r"@(ignore|verbatim|example|smallexample|lisp)\b", r"@end[ \t]+{0}"),),
        signs="@",
        begins=r"@item\b",
    ),
    "latex": Rules(
        marks=tuple(
            (rf"\s*\\(?:{name})\*?(?:\[[^\]]*\])?\{{(?P<title>.*)\}}", level)
            for level, name in enumerate(
                ("title", "part|chapter", "section", "subsection", "subsubsection", "paragraph"), start=1
            )
        ),
        blocks=(Block(r"\s*\\begin\{(verbatim|lstlisting|comment)\}", r".*\\end\{{{0}\}}"),),
        signs="\\",
    ),
    "vimhelp": Rules(rules="=-", ordered=True, signs="", clean=_clean_help),
    "yaml": Rules(),
}

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
        yield from _Scan(text, outline).list_lines()


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
    at = 0
    for number, row in enumerate(rows):
        level, title, cuts = headings.get(number, (0, "", False))
        yield Line(at, at + len(row), level, title, fenced=not level, cuts=cuts)
        at += len(row)


class _Patterns(NamedTuple):
    """The rules of a format, with compiled patterns."""

    marks: tuple[tuple[re.Pattern[str], int], ...]
    blocks: tuple[tuple[re.Pattern[str], Block], ...]
    begins: re.Pattern[str] | None
    above: re.Pattern[str] | None


@functools.cache
def _compile_rules(outline: str) -> _Patterns:
    """Compile the rules of a format when its first text is read: all formats take 10 ms."""
    rules = _RULES[outline]
    return _Patterns(
        tuple((re.compile(pattern, re.DOTALL), level) for pattern, level in rules.marks),
        tuple((re.compile(block.begin, re.IGNORECASE), block) for block in rules.blocks),
        re.compile(rules.begins) if rules.begins else None,
        re.compile(rules.above) if rules.above else None,
    )


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
_MOST_UNCLOSED = 20
"""Maximum number of blocks without an end. Each of them searches the rest of the text, so later
ones are read as text.
"""

_NO_TITLE = re.compile(r" {0,3}(?:[-+*][ \t]|>|\|)| {4}|\t")
"""Beginning of a line of Markdown that is not a heading even with a rule below it."""

_SHORT_RULE = 4
"""Number of characters by which a rule of reStructuredText may be shorter than its title."""

_HELP_RULE = 10
_HELP_FIRST = re.compile(r"\*\S+?\*[ \t]*(\S.*)")
_HELP_TAGGED = re.compile(r"(\S(?:[^*]*[^*\s])?)[ \t]+(?:\*[^*\s]+\*\s*)+$")
_HELP_TAG = re.compile(r"[ \t]{2,}\*([^*\s]+)\*\s*(?:\*[^*\s]+\*\s*)*$")
_HELP_NUMBERED = re.compile(r"\d+(?:\.\d+)*\.?\s")
_HELP_COLUMN, _HELP_ENTRY = 5, 6
"""Levels of `Heading ~` and of an entry that has a tag."""

_PLAIN = (1, 0, "")


class _Scan:
    """One pass over the lines of a text."""

    def __init__(self, text: str, outline: str) -> None:
        self._rows = _LINE.findall(text)
        self._outline, self._rules, self._patterns = outline, _RULES[outline], _compile_rules(outline)
        self._signs = frozenset(self._rules.signs)
        self._fences = outline in ("markdown", "mdx", "html")
        self._styles: dict[str, int] = {}
        self._unclosed = 0
        self._free = True
        """True if the next line may be a title, because the last line is blank or outside of a
        paragraph.
        """

    def list_lines(self) -> Iterator[Line]:
        rows, begins = self._rows, self._patterns.begins
        may_begin = self._signs.union(" \t", self._rules.rules if self._rules.ordered else "*")
        may_rule = frozenset(f"{self._rules.rules} " if self._rules.rules else "")
        is_help = self._outline == "vimhelp"
        number = at = 0
        while number < len(rows):
            row = rows[number]
            below = rows[number + 1][0] if number + 1 < len(rows) else "\n"
            if row[0] not in may_begin and below not in may_rule and not is_help:  # most lines
                end = at + len(row)
                self._free = row.isspace()
                yield Line(at, end, 0, "", False, self._free)
                number, at = number + 1, end
                continue
            marked = row.lstrip()[:1] in self._signs
            behind, code = self._find_block(number) if marked else (number, False)
            if behind > number:
                for inner in rows[number:behind]:
                    apart = not code and begins is not None and begins.match(inner) is not None
                    blank = not code and inner.isspace()
                    yield Line(at, at + len(inner), fenced=code, blank=blank, begins=apart)
                    at += len(inner)
                number, self._free = behind, True
                continue
            count, level, title = self._find_heading(number, marked=marked)
            end = at + (len(row) if count == 1 else sum(map(len, rows[number : number + count])))
            blank = not level and not row.strip()
            starts = begins is not None and marked and begins.match(row) is not None
            yield Line(at, end, level, title, blank=blank, begins=starts)
            number, at, self._free = number + count, end, blank or level > 0

    def _find_block(self, number: int) -> tuple[int, bool]:
        """Return the number of the line after a block that begins here, and whether it is code.

        If no block begins here, return the number of this line.
        """
        row = self._rows[number]
        if self._fences and (mark := _FENCE.match(row)) and not ("`" in mark[1] and "`" in mark[2]):
            return self._find_fence_end(number, mark[1]), True
        for pattern, block in self._patterns.blocks:
            if (begin := pattern.match(row)) and self._unclosed < _MOST_UNCLOSED:
                end = re.compile(block.end.format(re.escape(begin[1])), re.IGNORECASE)
                same_line = end.search(row, begin.end()) if block.end[:1] in "-<" else None
                if same_line:
                    return number + 1, block.code
                for end_number in range(number + 1, len(self._rows)):
                    if end.search(self._rows[end_number]):
                        return end_number + 1, block.code
                self._unclosed += 1
        return number, False

    def _find_fence_end(self, number: int, fence: str) -> int:
        for end_number in range(number + 1, len(self._rows)):
            mark = _FENCE.match(self._rows[end_number])
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                return end_number + 1
        return len(self._rows)

    def _find_heading(self, number: int, *, marked: bool) -> tuple[int, int, str]:
        """Return the number of lines, the level and the title of a heading. Other lines have level
        0.
        """
        row = self._rows[number]
        if len(row) > _LONGEST_HEADING or row.isspace():
            return _PLAIN
        if self._outline == "vimhelp":
            return self._find_help_heading(number)
        if marked and (count_level_title := self._find_marked(number)):
            return count_level_title
        return self._find_ruled(number) if self._rules.rules else _PLAIN

    def _find_marked(self, number: int) -> tuple[int, int, str] | None:
        row, count = self._rows[number].rstrip("\r\n"), 1
        if "<h" in row and "</h" not in row:
            count = next(
                (n for n in range(2, _MOST_TAG_LINES + 1) if "</h" in "".join(self._rows[number + n - 1 : number + n])),
                1,
            )
            row = "".join(self._rows[number : number + count])
        for pattern, base in self._patterns.marks:
            if mark := pattern.match(row):
                groups = mark.groupdict()
                level = base + len(groups.get("mark") or "") + int(groups.get("digit") or 0)
                title = groups.get("title") or ""
                if not title and self._outline == "man" and number + 1 < len(self._rows):
                    title, count = self._rows[number + 1], 2  # an empty macro makes a heading of the next line
                if len(title) > _LONGEST_HEADING:
                    return None  # each passage below a heading has its title
                return count, level, self._clean_title(title, level)
        return None

    def _clean_title(self, title: str, level: int) -> str:
        text = " ".join(self._rules.clean(title).split())
        if self._outline == "man" and level == 1:
            name, *section = text.split()[:2] or [""]
            return f"{name}({section[0]})" if section else name
        return text

    def _find_ruled(self, number: int) -> tuple[int, int, str]:
        """Find a title with a rule below it, or with rules above and below. The result is that of
        `_find_heading`.
        """
        rule = self._find_rule(number + 1)
        row = self._rows[number]
        title = row.strip()
        if self._outline in ("rst", "asciidoc") and self._find_rule(number):
            return self._find_overlined(number) if self._outline == "rst" else _PLAIN
        if not rule or (not self._free and not self._follows_directive(number)) or self._find_rule(number):
            return _PLAIN
        length = len(self._rows[number + 1].strip())
        match self._outline:
            case "rst":
                fits = not row[0].isspace() and length >= min(_SHORT_RULE, len(title))
            case "asciidoc":
                fits = (title[0].isalnum() or title[0] == "_") and abs(length - len(row.rstrip())) <= 1
            case _:
                fits = not _NO_TITLE.match(row)
        if not fits:
            return _PLAIN
        level = self._find_style_level(rule) if self._rules.ordered else self._rules.rules.index(rule) + 1
        return 2, level, self._clean_title(title, level)

    def _find_overlined(self, number: int) -> tuple[int, int, str]:
        above = self._find_rule(number)
        rows = [row.rstrip() for row in self._rows[number : number + 3]]
        if len(rows) < 3 or rows[0] != rows[2] or not rows[1] or self._find_rule(number + 1):  # noqa: PLR2004
            return _PLAIN
        if len(rows[0]) < min(_SHORT_RULE, len(rows[1].strip())) or len(rows[1]) > _LONGEST_HEADING:
            return _PLAIN
        level = self._find_style_level(2 * above)
        return 3, level, self._clean_title(rows[1], level)

    def _follows_directive(self, number: int) -> bool:
        above = self._patterns.above
        return above is not None and above.match(self._rows[number - 1]) is not None

    def _find_style_level(self, style: str) -> int:
        return self._styles.setdefault(style, len(self._styles) + 1)

    def _find_rule(self, number: int) -> str:
        """Return the character of which a line consists, if it is one of the rules."""
        row = self._rows[number].rstrip() if number < len(self._rows) else ""
        if not row or row[0] not in self._rules.rules:
            row = row.lstrip() if row[:1] == " " and self._fences else ""
        if len(row) < 2 or row[0] not in self._rules.rules or row.count(row[0]) < len(row):  # noqa: PLR2004
            return ""
        return row[0]

    def _find_help_heading(self, number: int) -> tuple[int, int, str]:
        """Find a title in the help of Vim, where rules precede titles. The result is that of
        `_find_heading`.
        """
        row = self._rows[number]
        if not number and (first := _HELP_FIRST.match(row)):
            return 1, 1, self._clean_title(first[1], 1)
        if (rule := self._find_rule(number)) and len(row.rstrip()) >= _HELP_RULE:
            return self._find_help_title(number, rule)
        if tag := _HELP_TAG.match(row):
            return 1, _HELP_ENTRY, tag[1]
        if row[0].isspace():
            return _PLAIN
        if tagged := _HELP_TAGGED.match(row):
            title = self._clean_title(tagged[1], 0)
            is_section = title.isupper() or _HELP_NUMBERED.match(title)
            return 1, 1 + self._find_style_level("tagged") if is_section else _HELP_ENTRY, title
        return (1, _HELP_COLUMN, self._clean_title(row.rstrip(), 0)) if row.rstrip().endswith("~") else _PLAIN

    def _find_help_title(self, number: int, rule: str) -> tuple[int, int, str]:
        for title_number in range(number + 1, min(number + 3, len(self._rows))):
            row = self._rows[title_number]
            if row.strip():
                if len(row) > _LONGEST_HEADING or self._find_rule(title_number) or row.startswith("vim:"):
                    return _PLAIN
                return title_number - number + 1, 1 + self._find_style_level(rule), self._clean_title(row.rstrip(), 0)
        return _PLAIN
