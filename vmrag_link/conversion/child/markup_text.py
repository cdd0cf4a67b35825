"""Convert markup to text: the visible text of a page, block by block, and the values of XML."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from vmrag_link.conversion.child.text_builder import MAX_LEVELS, TextBuilder, too_deep
from vmrag_link.conversion.formats import decode_text
from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.conversion.reading import FileText

_IGNORED = frozenset(("script", "style", "template", "head", "noscript", "svg", "iframe", "object"))
_PARAGRAPHS = frozenset(
    "address article aside blockquote body details dl fieldset figure footer form h1 h2 h3 h4 h5 h6 header hr main nav ol "
    "p pre section table ul".split()
)
_LINES = frozenset("br caption dd div dt figcaption legend li option summary tbody tfoot thead tr".split())
_CELLS = frozenset(("td", "th"))
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_STRENGTHS = ("", " ", "\t", "\n", "\n\n")
_SPACES = re.compile(r"[ \t\r\n\f]+")


def convert_html(data: bytes, charset: str, limit: int) -> FileText:  # noqa: ARG001  a text is never longer than its page
    """Return the text of a page. The title is `<title>`, or else the first `<h1>`, or else empty.

    Paragraphs are separated by an empty line, and cells by a tab. Headings begin with `#`, and code
    is in fences, like in Markdown. Raises `ContentUnreadable` and `MemoryError`: the standard
    repeats formatting elements in each paragraph, so 62 kB of `<p><b a1></p><p><b a2></p>…` take
    2.6 GB.
    """
    source = decode_text(data, charset, is_html=True)
    try:
        tree = LexborHTMLParser(source)
    except SelectolaxError as error:  # it only fails without memory
        raise MemoryError from error
    titles = (tree.css_first("head > title"), tree.css_first("h1"))
    title = next((words for node in titles if node and (words := _join_words(node.text()))), "")
    return FileText(title, _read_page(tree.body) if tree.body else "", {})


def _join_words(text: str) -> str:
    return _SPACES.sub(" ", text).strip()


def _read_page(body: LexborNode) -> str:
    """Return the text of a page. This uses no recursion, because pages may nest deeper than
    Python's stack.
    """
    page = _PageText()
    node: LexborNode | None = body
    pre_depth = 0
    while node is not None:
        tag = node.tag or ""
        if tag == "-text":
            page.add(node.text_content or "", preformatted=pre_depth > 0)
        page.boundary(tag)
        if tag in _HEADINGS:
            page.begin(f"{'#' * int(tag[1])} ")
        elif tag == "pre" and not pre_depth:
            page.begin(f"{_make_fence(node)}\n")
        pre_depth += tag == "pre"
        below = None if tag in _IGNORED else node.child
        if below is not None:
            node = below
            continue
        while node is not None:
            pre_depth -= node.tag == "pre"
            if node.tag == "pre" and not pre_depth:
                page.end_fence()
            page.boundary(node.tag or "")
            if node.mem_id == body.mem_id:
                node = None
            elif node.next is not None:
                node = node.next
                break
            else:
                node = node.parent
    return page.text()


def _make_fence(pre: LexborNode) -> str:
    """Return a fence that is longer than every run of backticks in a block of code."""
    return "`" * (max(map(len, re.findall("`{3,}", pre.text())), default=2) + 1)


class _PageText:
    """A text that is composed of pieces. Breaks and marks are written when the next text
    follows.
    """

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._break = self._signs = self._fence = ""

    def begin(self, signs: str) -> None:
        """Write these signs before the next text, if it is in this block."""
        self._signs = signs

    def end_fence(self) -> None:
        """End a block of code if it has text."""
        if self._fence:
            self._pieces.append(("" if self._pieces[-1].endswith("\n") else "\n") + self._fence)
        self._fence = self._signs = ""

    def boundary(self, tag: str) -> None:
        """Mark the beginning or end of a block. If several breaks follow each other, the strongest
        is used.
        """
        if tag in _PARAGRAPHS and self._signs.startswith("#"):
            self._signs = ""
        new_break = "\n\n" if tag in _PARAGRAPHS else "\n" if tag in _LINES else "\t" if tag in _CELLS else ""
        self._request_break(new_break)

    def add(self, text: str, *, preformatted: bool) -> None:
        words = text if preformatted else _SPACES.sub(" ", text)
        visible = words if preformatted else words.strip(" ")
        if words[:1] == " " != visible[:1]:
            self._request_break(" ")
        if visible:
            self._fence = self._signs.strip() if self._signs[:1] == "`" else self._fence
            self._pieces += (self._break, self._signs, visible)
            self._break = self._signs = ""
            if words[-1:] == " " != visible[-1:]:
                self._request_break(" ")

    def _request_break(self, new_break: str) -> None:
        if self._pieces:  # a page does not begin with a break
            self._break = max(self._break, new_break, key=_STRENGTHS.index)

    def text(self) -> str:
        return "".join(self._pieces).strip("\n")


class _Element:
    """An element. Its parts are texts and elements, in their order."""

    __slots__ = ("attributes", "name", "parts")

    def __init__(self, name: str, attributes: list[str]) -> None:
        self.name, self.attributes = name, attributes
        self.parts: list[str | _Element] = []

    @property
    def elements(self) -> list[_Element]:
        return [part for part in self.parts if isinstance(part, _Element)]

    @property
    def is_text(self) -> bool:
        """True if it contains text directly, so that the elements in it are parts of that text."""
        return any(isinstance(part, str) and not part.isspace() for part in self.parts)

    def texts(self) -> Iterator[str]:
        for part in self.parts:
            if isinstance(part, str):
                yield part
            else:
                yield from part.texts()

    def whole_text(self) -> str:
        return textwrap.dedent("".join(self.texts())).strip()


def convert_xml(data: bytes, charset: str, limit: int) -> FileText:
    """Return a line for each element with text or without content, `names.leading.to.it: text`, and
    for each attribute, `element@attribute: value`. Elements within text are part of the text.

    An element with the same name as the previous one begins a paragraph. The title is the first
    `title` in the root or in one of its elements. Entities that the file declares are rejected,
    because a few lines of them can produce gigabytes. Nothing outside of the file is read. Raises
    `ContentUnreadable`.
    """
    root = _parse_xml(data, charset)
    builder = TextBuilder(limit)
    _add_element(builder, root.name, root)
    return FileText(_find_title(root), builder.text(), {})


def _parse_xml(data: bytes, charset: str) -> _Element:
    parser = expat.ParserCreate(charset or None)
    parser.buffer_text = True
    parser.ordered_attributes = True
    open_elements = [_Element("", [])]

    def start(name: str, attributes: list[str]) -> None:
        element = _Element(name, attributes)
        if len(open_elements) > MAX_LEVELS:
            raise too_deep()
        open_elements[-1].parts.append(element)
        open_elements.append(element)

    def add_text(text: str) -> None:
        open_elements[-1].parts.append(text)

    def reject_entity(*_: Any) -> None:
        raise ContentUnreadable("declares entities, which are not supported")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: open_elements.pop()
    parser.CharacterDataHandler = add_text
    parser.SkippedEntityHandler = lambda name, _: add_text(f"&{name};")
    parser.EntityDeclHandler = reject_entity
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise ContentUnreadable(f"is not valid XML ({error})") from None
    return open_elements[0].elements[0]


def _find_title(root: _Element) -> str:
    for element in (*root.elements, *(inner for outer in root.elements for inner in outer.elements)):
        if element.name == "title" and (words := " ".join(element.whole_text().split())):
            return words
    return ""


def _add_element(builder: TextBuilder, path: str, element: _Element) -> None:
    for name, value in zip(element.attributes[::2], element.attributes[1::2], strict=True):
        builder.add_value(f"{path}@{name}", value)
    if element.is_text:
        builder.add_value(path, element.whole_text())
        return
    if not element.elements and not element.attributes:
        builder.add_line(path)
    previous = ""
    for inner in element.elements:
        if inner.name == previous and inner.elements:
            builder.begin_paragraph()
        previous = inner.name
        _add_element(builder, f"{path}.{inner.name}", inner)
