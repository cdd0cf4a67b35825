"""Parse JSON into a tree whose nodes know their positions in the text.

With `comments`, the text can contain what editors allow in their settings: // and /* */, and a
comma after the last value.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, TypeAlias

from vmrag_mcp.clients.settings_file import MAX_NESTING, TOO_DEEP, TextRefused

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")
_GAP = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_LITERAL = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


class JsonValue(NamedTuple):
    """A value that is not an object. `start` and `end` count characters."""

    value: Any
    start: int
    end: int


class JsonObject(NamedTuple):
    """An object. `start` is its brace, `end` is after the closing brace."""

    members: dict[str, JsonMember]
    start: int
    end: int


class JsonMember(NamedTuple):
    key: int
    """The position of its name."""
    node: JsonNode
    comma: int | None
    """The position of the comma after it, if any."""


JsonNode: TypeAlias = JsonValue | JsonObject


def parse_json(text: str, *, comments: bool) -> JsonNode | None:
    """Return the value of a text; None for a text without a value. Raises `TextRefused`."""
    reader = _Reader(text, comments=comments)
    start = reader.skip_space(0)
    if start == len(text):
        return None
    node = reader.read_node(start, 0)
    if (rest := reader.skip_space(node.end)) != len(text):
        raise reader.build_error("text after the end", rest)
    return node


def convert_node(node: JsonNode) -> Any:
    if isinstance(node, JsonObject):
        return {name: convert_node(member.node) for name, member in node.members.items()}
    return node.value


class _Reader:
    def __init__(self, text: str, *, comments: bool) -> None:
        self._text = text
        self._comments = comments

    def build_error(self, reason: str, position: int) -> TextRefused:
        kind = "JSON" if self._comments else "plain JSON"
        return TextRefused(f"it is not {kind}: line {self._text.count(chr(10), 0, position) + 1}: {reason}")

    def skip_space(self, position: int) -> int:
        space = (_GAP if self._comments else _BLANK).match(self._text, position)
        return space.end() if space else position

    def read_node(self, start: int, depth: int) -> JsonNode:
        if depth > MAX_NESTING:
            raise TextRefused(TOO_DEEP)
        match self._text[start : start + 1]:
            case "{":
                return self._read_object(start, depth)
            case "[":
                return self._read_array(start, depth)
            case '"':
                value, end = self._read_string(start)
                return JsonValue(value, start, end)
        literal = _LITERAL.match(self._text, start)
        if not literal:
            raise self.build_error("missing value", start)
        try:
            return JsonValue(json.loads(literal[0]), start, literal.end())
        except ValueError as error:  # a number of thousands of digits
            raise self.build_error(str(error), start) from None

    def _read_string(self, start: int) -> tuple[str, int]:
        if self._text[start : start + 1] != '"':
            raise self.build_error("missing name in quotes", start)
        try:
            value, end = _DECODER.raw_decode(self._text, start)
        except ValueError as error:
            raise self.build_error(str(error), start) from None
        return str(value), end

    def _read_object(self, start: int, depth: int) -> JsonObject:
        members: dict[str, JsonMember] = {}
        position = self.skip_space(start + 1)
        while self._text[position : position + 1] != "}":
            name, end = self._read_string(position)
            if name in members:
                raise self.build_error("duplicate key", position)
            colon = self.skip_space(end)
            if self._text[colon : colon + 1] != ":":
                raise self.build_error("missing colon", colon)
            node = self.read_node(self.skip_space(colon + 1), depth + 1)
            comma, after = self._read_comma(node.end, "}")
            members[name] = JsonMember(position, node, comma)
            position = after
        return JsonObject(members, start, position + 1)

    def _read_array(self, start: int, depth: int) -> JsonValue:
        items: list[Any] = []
        position = self.skip_space(start + 1)
        while self._text[position : position + 1] != "]":
            node = self.read_node(position, depth + 1)
            items.append(convert_node(node))
            _, position = self._read_comma(node.end, "]")
        return JsonValue(items, start, position + 1)

    def _read_comma(self, end: int, closing: str) -> tuple[int | None, int]:
        """Return the position of the comma after a value, if any, and the position of what
        follows.
        """
        position = self.skip_space(end)
        if self._text[position : position + 1] == closing:
            return None, position
        if self._text[position : position + 1] != ",":
            raise self.build_error("missing comma", position)
        after = self.skip_space(position + 1)
        if self._text[after : after + 1] == closing and not self._comments:
            raise self.build_error("comma after the last value", position)
        return position, after
