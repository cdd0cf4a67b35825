"""XML as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

from vmrag_link.conversion.child.outline import MAX_LEVELS, Outline, too_deep
from vmrag_link.conversion.limits import ContentUnreadable
from vmrag_link.conversion.reading import FileText


class _Element:
    """An element; its parts are texts and elements, in their order."""

    __slots__ = ("attributes", "name", "parts")

    def __init__(self, name: str, attributes: list[str]) -> None:
        self.name, self.attributes = name, attributes
        self.parts: list[str | _Element] = []

    @property
    def elements(self) -> list[_Element]:
        return [each for each in self.parts if isinstance(each, _Element)]

    @property
    def is_text(self) -> bool:
        """Whether it holds text of its own, so that what is in it is a part of that text."""
        return any(isinstance(each, str) and not each.isspace() for each in self.parts)

    def texts(self) -> Iterator[str]:
        for each in self.parts:
            if isinstance(each, str):
                yield each
            else:
                yield from each.texts()

    def whole_text(self) -> str:
        return textwrap.dedent("".join(self.texts())).strip()


def xml_text(data: bytes, charset: str, limit: int) -> FileText:
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
    for each in (*root.elements, *(inner for outer in root.elements for inner in outer.elements)):
        if each.name == "title" and (words := " ".join(each.whole_text().split())):
            return words
    return ""


def _add(outline: Outline, path: str, element: _Element) -> None:
    for name, value in zip(element.attributes[::2], element.attributes[1::2], strict=True):
        outline.value(f"{path}@{name}", value)
    if element.is_text:
        outline.value(path, element.whole_text())
        return
    if not element.elements and not element.attributes:
        outline.line(path)
    before = ""
    for each in element.elements:
        if each.name == before and each.elements:
            outline.paragraph()
        before = each.name
        _add(outline, f"{path}.{each.name}", each)
