"""What a file's text says as a document: title, content and metadata."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vmrag_link.documents import front_matter, html
from vmrag_link.models import Record

if TYPE_CHECKING:
    from markdown_it.token import Token

_ATX_HEADING_ON_TOP = re.compile(r"(?:[ \t]*\r?\n)* {0,3}#{1,6}[ \t]+(\S[^\r\n]*)")
_MARKUP = re.compile(r"[\\`*_\[\]<>&#]")
_MAYBE_HEADING = re.compile(r"(?:\A|(?<=[\r\n])) {0,3}(?:#{1,6}(?=[ \t\r\n]|\Z)|(?:=+|-+)[ \t]*(?=[\r\n]|\Z))")
_RST_RULE = re.compile(r"([!-/:-@\[-`{-~])\1*")


TITLE_WITHIN = 1 << 16
"""Characters of a text in which its title is looked for. Further headings cost more than they tell.
"""

_MOST_LINES = 1000
"""Lines that look like a heading and are none, before the search ends: usually comments in a code
block.
"""

_LONGEST_HEADING = 1000
"""Characters of a heading that are read: `![![![…` takes the parser 50 µs each."""


class FileText(Record, frozen=True):
    """`title` is empty where the text names none; `metadata` is ready for JSON."""

    title: str
    content: str
    metadata: dict[str, Any]


def page(text: str, file_type: str) -> FileText:
    """`file_type` as in `importing.FILE_TYPES`.

    The content is the text, except front matter and HTML tags.
    """
    return _READERS[file_type](text)


def _markdown(text: str) -> FileText:
    """A title in the front matter precedes the first heading: with one, headings are sections."""
    metadata, content = front_matter.split(text)
    stated = metadata.get("title")
    title = " ".join(stated.split()) if isinstance(stated, str) else ""
    return FileText(title or markdown_title(content), content, metadata)


def _text(text: str) -> FileText:
    return FileText("", text, {})


def _rst(text: str) -> FileText:
    return FileText(rst_title(text), text, {})


def _html(text: str) -> FileText:
    title, content = html.text_of(text)
    return FileText(title, content, {})


_READERS: dict[str, Callable[[str], FileText]] = {"markdown": _markdown, "text": _text, "rst": _rst, "html": _html}


def markdown_title(text: str) -> str:
    """The text of the first heading outside of quotes, lists and code blocks; empty without one.

    It is looked for in the first `TITLE_WITHIN` characters and the first `_MOST_LINES` lines that
    look like one. Importing the parser takes 60 ms, so it is left out for a plain `# Title` on top,
    and where no line looks like a heading.
    """
    text = text[:TITLE_WITHIN]
    if (top := _ATX_HEADING_ON_TOP.match(text)) and not _MARKUP.search(top[1]):
        return " ".join(top[1][:_LONGEST_HEADING].split())
    parsed = end = 0
    for line in itertools.islice(_MAYBE_HEADING.finditer(text), _MOST_LINES):
        # Blocks are decided line by line, so what comes after this line cannot change whether it is
        # a heading.
        end = text.find("\n", line.end()) + 1 or len(text)
        if end >= 2 * parsed:  # twice as far each time: at most twice the work of one run
            if title := _first_heading(text[:end]):
                # A bracket that is left may belong to a link that is defined further down.
                return title if "[" not in title else _first_heading(text)
            parsed = end
    return _first_heading(text[:end]) if end > parsed else ""


def _first_heading(text: str) -> str:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark")
    environment: dict[str, Any] = {}  # the link definitions of the text, which a heading may use
    blocks = parser.disable("inline").parse(text, environment)
    parser.enable("inline")  # only for the headings: it is half of the work
    for opening, inline in itertools.pairwise(blocks):
        if opening.type == "heading_open" and opening.level == 0:
            spans = parser.parseInline(inline.content[:_LONGEST_HEADING], environment)[0].children or []
            if title := " ".join("".join(_plain_text(span) for span in spans).split()):
                return title
    return ""


def _plain_text(span: Token) -> str:
    """What a reader sees of a piece of a heading; an image's content is its description."""
    if span.type in ("softbreak", "hardbreak"):
        return " "
    return "" if span.type == "html_inline" else span.content


def rst_title(text: str) -> str:
    """The first title of reStructuredText: a line underlined, or over- and underlined, by one
    character.

    It is looked for in the first `TITLE_WITHIN` characters.
    """
    lines = ["", *(line.rstrip() for line in text[:TITLE_WITHIN].splitlines()), "", ""]
    for above, title, below in zip(lines, lines[1:], lines[2:], strict=False):
        stripped = title.strip()
        if (
            not stripped
            or _RST_RULE.fullmatch(stripped)
            or not _RST_RULE.fullmatch(below)
            or len(below) < len(stripped)
        ):
            continue
        if above == below or (not above and title == stripped):
            return stripped
    return ""
