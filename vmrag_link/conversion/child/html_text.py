"""HTML as text: what a reader sees, block by block."""

from __future__ import annotations

import re

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from vmrag_link.conversion.reading import FileText
from vmrag_link.conversion.text_bytes import decode

_IGNORED = frozenset(("script", "style", "template", "head", "noscript", "svg", "iframe", "object"))
_PARAGRAPHS = frozenset(
    "address article aside blockquote body details dl fieldset figure footer form h1 h2 h3 h4 h5 h6 header hr main nav ol "
    "p pre section table ul".split()
)
_LINES = frozenset("br caption dd div dt figcaption legend li option summary tbody tfoot thead tr".split())
_CELLS = frozenset(("td", "th"))
_STRENGTHS = ("", " ", "\t", "\n", "\n\n")
_SPACES = re.compile(r"[ \t\r\n\f]+")


def html_text(data: bytes, charset: str, limit: int) -> FileText:  # noqa: ARG001  no text grows
    """The title is `<title>`, else the first `<h1>`, else empty.

    Paragraphs are separated by an empty line, cells by a tab. Raises `ContentUnreadable`, and
    `MemoryError`: the standard has formatting elements opened again in each paragraph, so 62 kB of
    `<p><b a1></p><p><b a2></p>…` take 2.6 GB.
    """
    source = decode(data, charset, is_html=True)
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
        depth_of_pre += tag == "pre"
        below = None if tag in _IGNORED else node.child
        if below is not None:
            node = below
            continue
        while node is not None:
            page.boundary(node.tag or "")
            depth_of_pre -= node.tag == "pre"
            if node.mem_id == body.mem_id:
                node = None
            elif node.next is not None:
                node = node.next
                break
            else:
                node = node.parent
    return page.text()


class _Lines:
    """Text that grows piece by piece; breaks between pieces wait until more text follows."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._break = ""

    def boundary(self, tag: str) -> None:
        """A block begins or ends here: the strongest of several breaks in a row counts."""
        wanted = "\n\n" if tag in _PARAGRAPHS else "\n" if tag in _LINES else "\t" if tag in _CELLS else ""
        self._want(wanted)

    def add(self, text: str, *, preformatted: bool) -> None:
        words = text if preformatted else _SPACES.sub(" ", text)
        shown = words if preformatted else words.strip(" ")
        if words[:1] == " " != shown[:1]:
            self._want(" ")
        if shown:
            self._pieces += (self._break, shown)
            self._break = ""
            if words[-1:] == " " != shown[-1:]:
                self._want(" ")

    def _want(self, wanted: str) -> None:
        if self._pieces:  # no page begins with a break
            self._break = max(self._break, wanted, key=_STRENGTHS.index)

    def text(self) -> str:
        return "".join(self._pieces).strip("\n")
