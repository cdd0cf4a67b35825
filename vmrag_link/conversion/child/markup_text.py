"""Markup as text: what a reader of a page sees, block by block, and the values of XML."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from vmrag_link.conversion.formats import decode_text
from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.conversion.reading import MAX_LEVELS, FileText, Outline, too_deep

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


def convert_html(data: bytes, charset: str, limit: int) -> FileText:  # noqa: ARG001  no text grows
    """The title is `<title>`, else the first `<h1>`, else empty.

    Paragraphs are separated by an empty line, cells by a tab. Headings begin with `#`, and code is
    in fences, as in Markdown. Raises `ContentUnreadable`, and
    `MemoryError`: the standard has formatting elements opened again in each paragraph, so 62 kB of
    `<p><b a1></p><p><b a2></p>…` take 2.6 GB.
    """
    source = decode_text(data, charset, is_html=True)
    try:
        tree = LexborHTMLParser(source)
    except SelectolaxError as error:  # it takes any text, as far as memory reaches
        raise MemoryError from error
    titles = (tree.css_first("head > title"), tree.css_first("h1"))
    title = next((words for node in titles if node and (words := _one_line(node.text()))), "")
    return FileText(title, _text(tree.body) if tree.body else "", {})


def _one_line(text: str) -> str:
    return _SPACES.sub(" ", text).strip()


def _text(body: LexborNode) -> str:
    """A walk without recursion: pages may nest deeper than Python's stack."""
    page = _Lines()
    node: LexborNode | None = body
    depth_of_pre = 0
    while node is not None:
        tag = node.tag or ""
        if tag == "-text":
            page.add(node.text_content or "", preformatted=depth_of_pre > 0)
        page.boundary(tag)
        if tag in _HEADINGS:
            page.begin(f"{'#' * int(tag[1])} ")
        elif tag == "pre" and not depth_of_pre:
            page.begin(f"{_fence_of(node)}\n")
        depth_of_pre += tag == "pre"
        below = None if tag in _IGNORED else node.child
        if below is not None:
            node = below
            continue
        while node is not None:
            depth_of_pre -= node.tag == "pre"
            if node.tag == "pre" and not depth_of_pre:
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


def _fence_of(pre: LexborNode) -> str:
    """Return a fence that is longer than every run of backticks in a block of code."""
    return "`" * (max(map(len, re.findall("`{3,}", pre.text())), default=2) + 1)


class _Lines:
    """A text that grows piece by piece. Breaks and marks are written when the next text arrives."""

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
        """A block begins or ends here: the strongest of several breaks in a row counts."""
        if tag in _PARAGRAPHS and self._signs.startswith("#"):
            self._signs = ""
        wanted = "\n\n" if tag in _PARAGRAPHS else "\n" if tag in _LINES else "\t" if tag in _CELLS else ""
        self._want(wanted)

    def add(self, text: str, *, preformatted: bool) -> None:
        words = text if preformatted else _SPACES.sub(" ", text)
        shown = words if preformatted else words.strip(" ")
        if words[:1] == " " != shown[:1]:
            self._want(" ")
        if shown:
            self._fence = self._signs.strip() if self._signs[:1] == "`" else self._fence
            self._pieces += (self._break, self._signs, shown)
            self._break = self._signs = ""
            if words[-1:] == " " != shown[-1:]:
                self._want(" ")

    def _want(self, wanted: str) -> None:
        if self._pieces:  # no page begins with a break
            self._break = max(self._break, wanted, key=_STRENGTHS.index)

    def text(self) -> str:
        return "".join(self._pieces).strip("\n")


class _Element:
    """An element; its parts are texts and elements, in their order."""

    __slots__ = ("attributes", "name", "parts")

    def __init__(self, name: str, attributes: list[str]) -> None:
        self.name, self.attributes = name, attributes
        self.parts: list[str | _Element] = []

    @property
    def elements(self) -> list[_Element]:
        return [part for part in self.parts if isinstance(part, _Element)]

    @property
    def is_text(self) -> bool:
        """Whether it holds text of its own, so that what is in it is a part of that text."""
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
    """One line an element that holds text or nothing, `names.that.lead.there: text`, and one an
    attribute, `element@attribute: value`. Elements within text are a part of it.

    An element of the same name as the one before it begins a paragraph. The title is the first
    `title` in the root or in an element of it. Entities that the file declares are refused: a few
    lines of them make gigabytes. Nothing outside of the file is read. Raises `ContentUnreadable`.
    """
    root = _parse(data, charset)
    outline = Outline(limit)
    _add(outline, root.name, root)
    return FileText(_title(root), outline.text(), {})


def _parse(data: bytes, charset: str) -> _Element:
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

    def text(found: str) -> None:
        open_elements[-1].parts.append(found)

    def entity(*_: Any) -> None:
        raise ContentUnreadable("declares entities, which are not read")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: open_elements.pop()
    parser.CharacterDataHandler = text
    parser.SkippedEntityHandler = lambda name, _: text(f"&{name};")
    parser.EntityDeclHandler = entity
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise ContentUnreadable(f"is no XML that can be read ({error})") from None
    return open_elements[0].elements[0]


def _title(root: _Element) -> str:
    for element in (*root.elements, *(inner for outer in root.elements for inner in outer.elements)):
        if element.name == "title" and (words := " ".join(element.whole_text().split())):
            return words
    return ""


def _add(outline: Outline, path: str, element: _Element) -> None:
    for name, value in zip(element.attributes[::2], element.attributes[1::2], strict=True):
        outline.add_value(f"{path}@{name}", value)
    if element.is_text:
        outline.add_value(path, element.whole_text())
        return
    if not element.elements and not element.attributes:
        outline.add_line(path)
    before = ""
    for each in element.elements:
        if each.name == before and each.elements:
            outline.begin_paragraph()
        before = each.name
        _add(outline, f"{path}.{each.name}", each)
