"""How each format marks headings, blocks of code and paragraphs, as a table of patterns.

`outlines` reads a text by these rules. A new format needs an entry in `RULES` and its suffixes in
`outlines`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import NamedTuple


class Block(NamedTuple):
    """A block of lines that contains no headings."""

    begin: str
    """A pattern of the first line."""

    end: str
    """A pattern of the last line, in which `{0}` is the first group of `begin`."""

    code: bool = True
    """True if the block must not be split."""


class OutlineRules(NamedTuple):
    """The headings, blocks and paragraphs of a format."""

    headings: tuple[tuple[str, int], ...] = ()
    """Patterns of headings, each with the group `title` and a base level. The length of the group
    `mark` and the number in the group `digit` are added to the base level.
    """

    blocks: tuple[Block, ...] = ()
    first_characters: str = ""
    """The first characters of lines that match `headings`, `blocks` or `paragraph`."""

    underlines: str = ""
    """Characters of lines below a title. The position of the character is the level."""

    levels_by_use: bool = False
    """True if the level is instead the order in which the text uses the underlines."""

    before_title: str = ""
    """A pattern of lines that may precede an underlined title, in addition to blank lines."""

    paragraph: str = ""
    """A pattern of lines that begin a paragraph."""

    clean_title: Callable[[str], str] = str


_ANCHOR = re.compile(r"\s*\\?\{(?:[#:.][^{}]*|/\*[^{}]*\*/)\}\s*$")
_TAG = re.compile(r"<!--[^<>]*-->|</?[A-Za-z][^<>]*>")
_CODE_OR_TAG = re.compile(rf"(`[^`]*`)|{_TAG.pattern}")
"""Code in the first group, which is kept even if it contains a tag; or a tag."""
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

_MARKDOWN = OutlineRules(
    headings=((_ATX, 0), (_HTML_HEADING, 0)),
    blocks=_HTML_BLOCKS,
    first_characters="#<`~|",
    underlines="=-",
    paragraph=r"[ \t]*(?:\||<tr\b)",
    clean_title=_clean_markdown,
)

RULES: dict[str, OutlineRules] = {
    "none": OutlineRules(),
    "markdown": _MARKDOWN,
    "mdx": _MARKDOWN._replace(
        blocks=(*_HTML_BLOCKS, Block(r"\s*\{/(\*)", r"\*/", code=False)), first_characters="#<`~{|"
    ),
    "html": _MARKDOWN._replace(underlines=""),
    "rst": OutlineRules(
        first_characters="+*",
        underlines="=-`:'\"~^_*+#<>.!$%&(),/;?@[\\]{|}",
        levels_by_use=True,
        before_title=r"\.\. ",
        paragraph=r"[ \t]*(?:\+-|\*[ \t]-)",
        clean_title=_clean_rst,
    ),
    "asciidoc": OutlineRules(
        headings=((r"(?P<mark>={1,6}|#{1,6})[ \t]+(?P<title>\S.*)$", 0),),
        blocks=(
            _make_block(r"(-{4,}|\.{4,}|\+{4,})[ \t]*$"),
            _make_block(r"(`{3,})"),
            _make_block(r"(/{4,}|[|,:!]={3,})[ \t]*$", code=False),
        ),
        first_characters="=#-.+`/|,:!",
        underlines="=-~^+",
        before_title=r"//|\[|:[^:]+:|\w+::",
        paragraph=r"\|",
        clean_title=_clean_asciidoc,
    ),
    "org": OutlineRules(
        headings=((r"(?P<mark>\*+)[ \t]+(?P<title>\S.*)$", 1), (r"(?i:#\+title:)[ \t]*(?P<title>\S.*)$", 1)),
        blocks=(Block(r"\s*#\+(?:begin|BEGIN)_(\w+)", r"(?i:\s*#\+end_{0}\b)"),),
        first_characters="*#|",
        paragraph=r"[ \t]*\|",
        clean_title=_clean_org,
    ),
    "mediawiki": OutlineRules(
        headings=((r"(?P<mark>={1,6})[ \t]*(?P<title>[^=\s].*?)[ \t]*(?P=mark)[ \t]*(?:<!--.*)?$", 0),),
        blocks=(
            Block(r"\s*<(pre|nowiki|source|syntaxhighlight)\b", "</{0}>"),
            _HTML_BLOCKS[0],
            Block(r"\s*(\{)\|", r"\s*\|\}}", code=False),
        ),
        first_characters="=<{",
        paragraph=r"\|-|<tr\b",
        clean_title=_clean_wiki,
    ),
    "textile": OutlineRules(
        headings=tuple((rf"h{level}(?:[(\[{{<>=][^.]*)?\.[ \t]+(?P<title>\S.*)$", level) for level in range(1, 7)),
        blocks=_HTML_BLOCKS,
        first_characters="h<",
    ),
    "man": OutlineRules(
        headings=tuple(
            (rf"\.[ \t]*(?:{names})(?:[ \t]+(?P<title>\S.*))?$", level)
            for level, names in enumerate(("TH|Dt", "SH|Sh", "SS|Ss"), start=1)
        ),
        blocks=(Block(r"[.'][ \t]*(ig)\b", r"\.\.$", code=False),),
        first_characters=".'",
        paragraph=r"\.[ \t]*(?:Pp|PP|LP|P|TP|TQ|IP|HP|It|RS|Bl)\b",
        clean_title=_clean_roff,
    ),
    "pod": OutlineRules(
        headings=((r"=head(?P<digit>[1-6])[ \t]+(?P<title>\S.*)$", 0),),
        blocks=(Block(r"=begin[ \t]+(\S+)", r"=end[ \t]+{0}"),),
        first_characters="=",
        paragraph=r"=item\b",
    ),
    "rdoc": OutlineRules(headings=((r"(?P<mark>={1,6}|#{1,6})[ \t]*(?P<title>[^=#\s].*)$", 0),), first_characters="=#"),
    "creole": OutlineRules(
        headings=((r"(?P<mark>={1,6})[ \t]*(?P<title>[^=\s].*)$", 0),),
        blocks=(Block(r"(\{{3})[ \t]*$", r"\}}\}}\}}[ \t]*$"),),
        first_characters="={",
        clean_title=lambda title: title.rstrip("= \t"),
    ),
    "texinfo": OutlineRules(
        headings=tuple(
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
        first_characters="@",
        paragraph=r"@item\b",
    ),
    "latex": OutlineRules(
        headings=tuple(
            (rf"\s*\\(?:{name})\*?(?:\[[^\]]*\])?\{{(?P<title>.*)\}}", level)
            for level, name in enumerate(
                ("title", "part|chapter", "section", "subsection", "subsubsection", "paragraph"), start=1
            )
        ),
        blocks=(Block(r"\s*\\begin\{(verbatim|lstlisting|comment)\}", r".*\\end\{{{0}\}}"),),
        first_characters="\\",
    ),
    "vimhelp": OutlineRules(underlines="=-", levels_by_use=True, clean_title=_clean_help),
    "yaml": OutlineRules(),
}


class OutlinePatterns(NamedTuple):
    """The rules of a format, with compiled patterns."""

    headings: tuple[tuple[re.Pattern[str], int], ...]
    blocks: tuple[tuple[re.Pattern[str], Block], ...]
    paragraph: re.Pattern[str] | None
    before_title: re.Pattern[str] | None


@functools.cache
def compile_rules(outline: str) -> OutlinePatterns:
    """Compile the rules of a format when its first text is read: all formats take 10 ms."""
    rules = RULES[outline]
    return OutlinePatterns(
        tuple((re.compile(pattern, re.DOTALL), level) for pattern, level in rules.headings),
        tuple((re.compile(block.begin, re.IGNORECASE), block) for block in rules.blocks),
        re.compile(rules.paragraph) if rules.paragraph else None,
        re.compile(rules.before_title) if rules.before_title else None,
    )
