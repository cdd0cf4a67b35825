"""The depth to which the elements of an HTML page nest, before a parser builds them.

At many tags the parser looks through all open elements, and it reopens formatting elements in each
paragraph, as the standard demands: 62 kB of `<p><b a1></p><p><b a2></p>…` took 2.6 GB, 1 MB of
`<div>` minutes.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter

from vmrag_link.conversion.unreadable import ContentUnreadable

MAX_DEPTH = 1000
"""Open elements at one time; browsers stop nesting at 512."""

_LOOKED_THROUGH = 50
"""Open elements that an end tag may close with its own."""

_ATTRIBUTES = r"""(?>[\s/]+|[^\s/>][^\s/>=]*(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>"'][^\s>]*)?)?)*"""
_TOKEN = re.compile(
    r"<!--(?>-?>|.*?--!?>|.*)"
    r"|<(?P<raw>script|style|textarea|title|xmp|iframe|noembed|noframes)(?=[\s/>])(?P<inside>(?>.*?</(?P=raw)(?=[\s/>])|.*))"
    rf"|<(?P<end>/?)(?P<name>[a-z][^\s/>]*+){_ATTRIBUTES}(?:>|\Z)"
    r"|<(?:[!?]|/[^a-z])[^>]*+",
    re.DOTALL | re.IGNORECASE,
)
_UNTRACKED = frozenset(
    "area base br col embed hr img input link meta param source track wbr html head body frameset frame".split()
)
_ENDED_BY = {
    "p": {"p"},
    "li": {"p", "li"},
    "dd": {"p", "dd", "dt"},
    "dt": {"p", "dd", "dt"},
    "option": {"option"},
    "td": {"p", "td", "th"},
    "th": {"p", "td", "th"},
    "tr": {"p", "td", "th", "tr"},
}
"""Which open elements a start tag ends by itself."""

_BARRIERS = frozenset("applet button caption html marquee noscript object select svg math table td template th".split())
_CELLS = frozenset("caption td th".split())
_TABLE_PARTS = frozenset("table tbody tfoot thead tr".split())
_INNER = (_TABLE_PARTS | _CELLS) - {"table"}
_SPECIAL = (
    frozenset(
        "address article aside blockquote center dd details dialog dir div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 "
        "header hgroup li listing main menu nav ol p pre search section summary tbody tfoot thead tr ul".split()
    )
    | _BARRIERS
)

FORMATTING = frozenset("a b big code em font i nobr s small strike strong tt u".split())
_FORMATTING_TAG = re.compile(rf"<(/?)(?=(?:{'|'.join(sorted(FORMATTING))})[\s/>])", re.IGNORECASE)
_PREFIX = "x-vmrag-"
_PREFIXED_TAG = re.compile(f"<(/?){_PREFIX}")


class NestedTooDeeply(ContentUnreadable):
    """More than `MAX_DEPTH` elements within each other: no page that anybody reads."""

    def __init__(self) -> None:
        super().__init__(f"nests its elements deeper than {MAX_DEPTH} levels")


def without_formatting(source: str) -> str:
    """The page with its formatting elements renamed to ones without a meaning; its text is the
    same.
    """
    return _FORMATTING_TAG.sub(rf"<\1{_PREFIX}", source)


def with_names_back(text: str) -> str:
    """A text of that page, in which a tag may be text: `<title>The <b> element</title>`."""
    return _PREFIXED_TAG.sub(r"<\1", text) if _PREFIX in text else text


def nests_too_deeply(source: str) -> bool:
    """Whether more than `MAX_DEPTH` elements may be open at one time.

    An end tag counts as closing only what it certainly closes for a parser, so the count is never
    too low.
    """
    if source.count("<") <= MAX_DEPTH:
        return False
    foreign = re.search("<(?:svg|math)", source, re.IGNORECASE) is not None
    stack: list[str] = []
    open_now: Counter[str] = Counter()
    never_closed = 0
    for token in _TOKEN.finditer(source):
        if token["raw"]:
            never_closed += _opened_inside(token["inside"], foreign=foreign)
        name = (token["name"] or "").lower()
        if name and name not in _UNTRACKED:
            closed = _closed(stack, name, open_now) if token["end"] else _ended(stack, _ENDED_BY.get(name, set()))
            for _ in range(closed):
                open_now[stack.pop()] -= 1
            # A parser ignores the parts of a table where none is open.
            if not token["end"] and (name not in _INNER or open_now["table"] or open_now["template"]):
                stack.append(name)
                open_now[name] += 1
        if len(stack) + never_closed > MAX_DEPTH:
            return True
    return False


def _opened_inside(raw: str, *, foreign: bool) -> int:
    """The most elements that a parser may open in raw text.

    Within SVG and MathML no text is raw, and a script may end later.
    """
    return raw.count("<") if foreign else int("<!--" in raw)


def _ended(stack: list[str], names: set[str]) -> int:
    return sum(1 for _ in itertools.takewhile(names.__contains__, reversed(stack)))


def _closed(stack: list[str], name: str, open_now: Counter[str]) -> int:
    """The number of elements that an end tag closes; none where it cannot reach its own."""
    if not open_now[name]:
        return 0
    for number, each in enumerate(reversed(stack[-_LOOKED_THROUGH:]), 1):
        if each == name:
            return number
        if not _reaches_through(name, each):
            return 0
    return 0


def _reaches_through(name: str, open_element: str) -> bool:
    if name == "form" or (name == "li" and open_element in ("ul", "ol")):
        return False
    if open_element in _BARRIERS:
        return name in _TABLE_PARTS and open_element in _CELLS
    return name in _SPECIAL or open_element not in _SPECIAL
