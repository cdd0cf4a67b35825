"""What the text of a file says as a document, where that text is stored as it is written; and data
as text: one line a value, with the path of names that leads to it.

A document is cut into chunks at its paragraphs and lines. So a record is a paragraph, and each of
its lines says by itself what its value is.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vmrag_link.conversion import front_matter
from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.conversion.outlines import find_title
from vmrag_link.models import Record

if TYPE_CHECKING:
    from markdown_it.token import Token


_ATX_HEADING_ON_TOP = re.compile(r"(?:[ \t]*\r?\n)* {0,3}#{1,6}[ \t]+(\S[^\r\n]*)")
_MARKUP = re.compile(r"[\\`*_\[\]<>&#]")
_MAYBE_HEADING = re.compile(r"(?:\A|(?<=[\r\n])) {0,3}(?:#{1,6}(?=[ \t\r\n]|\Z)|(?:=+|-+)[ \t]*(?=[\r\n]|\Z))")
TITLE = 80
"""Characters of a text that are its title if it has no other."""

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


def convert_text(text: str, file_type: str) -> FileText:
    """`file_type` as in `formats.FORMATS`, one of `_READERS`.

    The content is the text without front matter. Raises `ContentUnreadable`.
    """
    return _READERS[file_type](text)


def _markdown(text: str) -> FileText:
    """A title in the front matter precedes the first heading: with one, headings are sections."""
    metadata, content = front_matter.split_front_matter(text)
    return FileText(_stated_title(metadata) or find_markdown_title(content), content, metadata)


def _stated_title(metadata: dict[str, Any]) -> str:
    stated = metadata.get("title")
    return " ".join(stated.split()) if isinstance(stated, str) else ""


def _text(text: str) -> FileText:
    return FileText("", text, {})


def _asciidoc(text: str) -> FileText:
    """Front matter is what site generators put on top of AsciiDoc, too."""
    metadata, content = front_matter.split_front_matter(text)
    return FileText(_stated_title(metadata) or find_title(content[:TITLE_WITHIN], "asciidoc"), content, metadata)


def _outline_reader(outline: str) -> Callable[[str], FileText]:
    """Return the reader of a format whose title is the first heading of its outline."""
    return lambda text: FileText(find_title(text[:TITLE_WITHIN], outline), text, {})


_READERS: dict[str, Callable[[str], FileText]] = {
    "markdown": _markdown,
    "text": _text,
    "asciidoc": _asciidoc,
    "mdx": _markdown,
    **{name: _outline_reader(name) for name in ("rst", "org", "mediawiki", "textile", "man", "yaml")},
}


def find_text_title(text: str) -> str:
    """Return the first Markdown heading of a text, or else its beginning."""
    return find_markdown_title(text) or " ".join(text[: 4 * TITLE].split())[:TITLE]


def find_markdown_title(text: str) -> str:
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


MAX_LEVELS = 200
"""Containers within each other. Formats that people write have a dozen."""


class Outline:
    """Text that grows by lines and paragraphs.

    Raises `ContentUnreadable` where it would have more than `limit` bytes.
    """

    def __init__(self, limit: int) -> None:
        self._pieces: list[str] = []
        self._room = self._limit = limit
        self._separator = ""

    def add_line(self, text: str) -> None:
        self._room -= len(text.encode(errors="replace")) + len(self._separator)
        if self._room < 0:
            raise too_much_text(self._limit)
        self._pieces += (self._separator, text)
        self._separator = "\n"

    def add_value(self, path: str, text: str) -> None:
        """A value with its name, if it has one; its own lines stay as they are."""
        self.add_line(f"{path}: {text}" if path else text)

    def begin_paragraph(self) -> None:
        """What follows is a paragraph of its own."""
        if self._pieces:
            self._separator = "\n\n"

    def text(self) -> str:
        return "".join(self._pieces)


def too_much_text(limit: int) -> ContentUnreadable:
    mib = limit >> 20
    hint = f"git config vmrag.ingest.text-mb {2 * mib}"
    return ContentUnreadable(f"would become a text of more than {mib} MiB", hint)


def too_deep() -> ContentUnreadable:
    return ContentUnreadable(f"nests deeper than {MAX_LEVELS} levels")


def make_path_part(name: str) -> str:
    """A name as part of a path."""
    return " ".join(name.split()) or '""'
