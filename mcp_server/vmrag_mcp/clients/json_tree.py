"""JSON as a tree whose nodes know where they stand in the text.

With `comments`, also what editors allow in their settings: // and /* */, and a comma behind the
last value.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, TypeAlias

from vmrag_mcp.clients.edits import TextRefused

DEEPEST = 100
_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")
_GAP = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_LITERAL = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


class JsonValue(NamedTuple):
    """Anything but an object. `start` and `end` count characters."""

    value: Any
    start: int
    end: int


class JsonObject(NamedTuple):
    """`start` is its brace, `end` behind the closing one."""

    members: dict[str, JsonMember]
    start: int
    end: int


class JsonMember(NamedTuple):
    """`key` is where its name begins; `comma` the place of the comma behind it, if there is one."""

    key: int
    node: JsonNode
    comma: int | None


JsonNode: TypeAlias = JsonValue | JsonObject


def parse(text: str, *, comments: bool) -> JsonNode | None:
    """The value of a text; None for one without any. Raises `TextRefused`."""
    reader = _Reader(text, comments=comments)
    start = reader.skip(0)
    if start == len(text):
        return None
    node = reader.node(start, 0)
    if (rest := reader.skip(node.end)) != len(text):
        raise reader.refuse("something stands behind its end", rest)
    return node


def plain(node: JsonNode) -> Any:
    if isinstance(node, JsonObject):
        return {name: plain(each.node) for name, each in node.members.items()}
    return node.value


class _Reader:
    def __init__(self, text: str, *, comments: bool) -> None:
        self._text = text
        self._comments = comments

    def refuse(self, reason: str, place: int) -> TextRefused:
        kind = "JSON" if self._comments else "plain JSON"
        return TextRefused(f"it is not {kind}: line {self._text.count(chr(10), 0, place) + 1}: {reason}")

    def skip(self, place: int) -> int:
        found = (_GAP if self._comments else _BLANK).match(self._text, place)
        return found.end() if found else place

    def node(self, start: int, depth: int) -> JsonNode:
        if depth > DEEPEST:
            raise self.refuse("it is nested too deep", start)
        match self._text[start : start + 1]:
            case "{":
                return self._object(start, depth)
            case "[":
                return self._array(start, depth)
            case '"':
                value, end = self._string(start)
                return JsonValue(value, start, end)
        found = _LITERAL.match(self._text, start)
        if not found:
            raise self.refuse("a value is missing", start)
        try:
            return JsonValue(json.loads(found[0]), start, found.end())
        except ValueError as error:  # a number of thousands of digits
            raise self.refuse(str(error), start) from None

    def _string(self, start: int) -> tuple[str, int]:
        if self._text[start : start + 1] != '"':
            raise self.refuse("a name in quotes is missing", start)
        try:
            value, end = _DECODER.raw_decode(self._text, start)
        except ValueError as error:
            raise self.refuse(str(error), start) from None
        return str(value), end

    def _object(self, start: int, depth: int) -> JsonObject:
        members: dict[str, JsonMember] = {}
        place = self.skip(start + 1)
        while self._text[place : place + 1] != "}":
            name, end = self._string(place)
            if name in members:
                raise self.refuse("a key stands there twice", place)
            colon = self.skip(end)
            if self._text[colon : colon + 1] != ":":
                raise self.refuse("a colon is missing", colon)
            node = self.node(self.skip(colon + 1), depth + 1)
            comma, after = self._comma(node.end, "}")
            members[name] = JsonMember(place, node, comma)
            place = after
        return JsonObject(members, start, place + 1)

    def _array(self, start: int, depth: int) -> JsonValue:
        items: list[Any] = []
        place = self.skip(start + 1)
        while self._text[place : place + 1] != "]":
            node = self.node(place, depth + 1)
            items.append(plain(node))
            _, place = self._comma(node.end, "]")
        return JsonValue(items, start, place + 1)

    def _comma(self, end: int, closing: str) -> tuple[int | None, int]:
        """The place of the comma behind a value, if one is there, and of what follows."""
        place = self.skip(end)
        if self._text[place : place + 1] == closing:
            return None, place
        if self._text[place : place + 1] != ",":
            raise self.refuse("a comma is missing", place)
        after = self.skip(place + 1)
        if self._text[after : after + 1] == closing and not self._comments:
            raise self.refuse("a comma stands behind the last value", place)
        return place, after
