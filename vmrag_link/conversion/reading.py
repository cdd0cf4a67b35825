"""Read the title and the metadata of formats whose text is stored unchanged.

`convert_text` gets the text of a file that needs no child process, such as Markdown, and also the
Markdown in a notebook. Its content stays the same, except for front matter.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vmrag_link.conversion import front_matter
from vmrag_link.conversion.outlines import find_title
from vmrag_link.models import Record

if TYPE_CHECKING:
    from markdown_it.token import Token


_ATX_HEADING_ON_TOP = re.compile(r"(?:[ \t]*\r?\n)* {0,3}#{1,6}[ \t]+(\S[^\r\n]*)")
_MARKUP = re.compile(r"[\\`*_\[\]<>&#]")
_MAYBE_HEADING = re.compile(r"(?:\A|(?<=[\r\n])) {0,3}(?:#{1,6}(?=[ \t\r\n]|\Z)|(?:=+|-+)[ \t]*(?=[\r\n]|\Z))")
TITLE = 80
"""Maximum number of characters at the beginning of a text that are its title if it has no other."""

TITLE_WITHIN = 1 << 16
"""Number of characters in which the title is searched. Searching more takes too long."""

_MOST_LINES = 1000
"""Maximum number of lines that look like a heading but are not one. Most are comments in a code
block.
"""

_LONGEST_HEADING = 1000
"""Maximum number of characters of a heading. `![![![…` takes the parser 50 µs for each."""


class FileText(Record, frozen=True):
    """The text of a file."""

    title: str
    """Empty if the text has no title."""

    content: str
    metadata: dict[str, Any]
    """Ready for JSON."""


def convert_text(text: str, file_type: str) -> FileText:
    """Return the title, the content and the metadata of a text.

    `file_type`: a format in `_READERS`. The content is the text without front matter. Raises
    `ContentUnreadable`.
    """
    return _READERS[file_type](text)


def _read_markdown(text: str) -> FileText:
    """Read Markdown. A title in the front matter takes precedence over the first heading."""
    metadata, content = front_matter.split_front_matter(text)
    return FileText(_stated_title(metadata) or find_markdown_title(content), content, metadata)


def _stated_title(metadata: dict[str, Any]) -> str:
    stated = metadata.get("title")
    return " ".join(stated.split()) if isinstance(stated, str) else ""


def _read_text(text: str) -> FileText:
    return FileText("", text, {})


def _read_asciidoc(text: str) -> FileText:
    """Read AsciiDoc. Site generators also write front matter above AsciiDoc."""
    metadata, content = front_matter.split_front_matter(text)
    return FileText(_stated_title(metadata) or find_title(content[:TITLE_WITHIN], "asciidoc"), content, metadata)


def _make_outline_reader(outline: str) -> Callable[[str], FileText]:
    """Return the reader of a format whose title is the first heading of its outline."""
    return lambda text: FileText(find_title(text[:TITLE_WITHIN], outline), text, {})


_READERS: dict[str, Callable[[str], FileText]] = {
    "markdown": _read_markdown,
    "text": _read_text,
    "asciidoc": _read_asciidoc,
    "mdx": _read_markdown,
    **{name: _make_outline_reader(name) for name in ("rst", "org", "mediawiki", "textile", "man", "yaml")},
}


def find_text_title(text: str) -> str:
    """Return the first Markdown heading of a text, or else its beginning."""
    return find_markdown_title(text) or " ".join(text[: 4 * TITLE].split())[:TITLE]


def find_markdown_title(text: str) -> str:
    """Return the first heading outside of quotes, lists and code blocks; empty if there is none.

    Only the first `TITLE_WITHIN` characters and the first `_MOST_LINES` lines that look like a
    heading are searched. Importing the parser takes 60 ms. So a plain `# Title` at the top, and a
    text without lines that look like a heading, are handled without it.
    """
    text = text[:TITLE_WITHIN]
    if (top := _ATX_HEADING_ON_TOP.match(text)) and not _MARKUP.search(top[1]):
        return " ".join(top[1][:_LONGEST_HEADING].split())
    parsed = end = 0
    for line in itertools.islice(_MAYBE_HEADING.finditer(text), _MOST_LINES):
        # Blocks are parsed line by line, so later lines cannot change whether this is a heading.
        end = text.find("\n", line.end()) + 1 or len(text)
        if end >= 2 * parsed:  # doubling the length takes at most twice the time of one run
            if title := _first_heading(text[:end]):
                # A remaining bracket may belong to a link that is defined further down.
                return title if "[" not in title else _first_heading(text)
            parsed = end
    return _first_heading(text[:end]) if end > parsed else ""


def _first_heading(text: str) -> str:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark")
    environment: dict[str, Any] = {}  # the link definitions of the text, which a heading may use
    blocks = parser.disable("inline").parse(text, environment)
    parser.enable("inline")  # only for headings, because it is half of the work
    for opening, inline in itertools.pairwise(blocks):
        if opening.type == "heading_open" and opening.level == 0:
            spans = parser.parseInline(inline.content[:_LONGEST_HEADING], environment)[0].children or []
            if title := " ".join("".join(_plain_text(span) for span in spans).split()):
                return title
    return ""


def _plain_text(span: Token) -> str:
    """Return the visible text of a part of a heading. The text of an image is its description."""
    if span.type in ("softbreak", "hardbreak"):
        return " "
    return "" if span.type == "html_inline" else span.content
