"""Add, change and remove one entry of a JSON file. Everything else in it stays byte for byte.

The text becomes a tree whose nodes know where they stand in it. With `comments`, that takes also
what editors allow in their settings: // and /* */, and a comma behind the last value.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple, TypeAlias

from vmrag_mcp.clients.settings_file import (
    DEEPEST,
    TOO_DEEP,
    Addition,
    Entry,
    Replacement,
    TextRefused,
    apply_changes,
    line_end,
    not_built_so,
)

UNIT = "  "
_REST_OF_LINE = re.compile(r"(?:[ \t]+|/\*(?s:.*?)\*/|//[^\r\n]*)*")
"""What stands behind a value on its line, and is about it; a comment may end on a later one."""


class JsonEditor:
    """`comments`: the client reads its file with comments."""

    def __init__(self, *, comments: bool) -> None:
        self._comments = comments

    def read_values(self, text: str) -> dict[str, Any]:
        root = self._root(text)
        return {} if root is None else convert_node(root)

    def add_entry(self, text: str, section: str, name: str, entry: Entry) -> tuple[str, Addition]:
        root = self._root(text)
        if root is None:
            if text.strip():
                raise TextRefused("it holds comments and nothing else")
            end = line_end(text)
            made = format_value({section: {name: entry}}, "", UNIT, end) + end
            return made, Addition("document", text)
        unit = _unit(text, root)
        there = root.members.get(section)
        if there is None:
            changes, blank = _add(text, root, section, {name: entry}, unit)
            return apply_changes(text, changes), Addition("section", blank)
        if not isinstance(there.node, JsonObject):
            raise not_built_so(section)
        changes, blank = _add(text, there.node, name, entry, unit)
        return apply_changes(text, changes), Addition("entry", blank)

    def change_entry(self, text: str, section: str, name: str, values: Entry) -> str:
        for key, value in values.items():
            root = self._required(text)
            unit, found = _unit(text, root), _entry(root, section, name).node
            if not isinstance(found, JsonObject):
                raise not_built_so(section)
            there = found.members.get(key)
            if there is None:
                text = apply_changes(text, _add(text, found, key, value, unit)[0])
            elif convert_node(there.node) != value:
                broken = "\n" in text[there.node.start : there.node.end] or _is_broken(text, found)
                new = format_value(value, _indent(text, there.key), unit, line_end(text)) if broken else _compact(value)
                text = apply_changes(text, [Replacement(there.node.start, there.node.end, new)])
        return text

    def remove_entry(self, text: str, section: str, name: str, added: Addition | None) -> str:
        root = self._required(text)
        _entry(root, section, name)
        servers = root.members[section].node
        alone = isinstance(servers, JsonObject) and len(servers.members) == 1 and not self._remarks(text, servers)
        made, blank = (added.made, added.blank) if added else ("entry", "")
        if made == "document" and alone and len(root.members) == 1 and not self._remarks(text, root):
            return blank
        if made != "entry" and alone:
            return apply_changes(text, _remove(text, root, section, blank if made == "section" else ""))
        if not isinstance(servers, JsonObject):
            raise not_built_so(section)
        return apply_changes(text, _remove(text, servers, name, blank if made == "entry" else ""))

    def _root(self, text: str) -> JsonObject | None:
        root = parse_json(text, comments=self._comments)
        if root is not None and not isinstance(root, JsonObject):
            raise TextRefused("it is not built as that client's file is")
        return root

    def _required(self, text: str) -> JsonObject:
        root = self._root(text)
        if root is None:
            raise TextRefused("it is empty")
        return root

    def _remarks(self, text: str, node: JsonObject) -> bool:
        """Whether a comment stands right in this object, and not within a value."""
        if not self._comments:
            return False
        inside = text[node.start + 1 : node.end - 1]
        for member in reversed(node.members.values()):
            inside = inside[: member.key - node.start - 1] + inside[member.node.end - node.start - 1 :]
        return bool(inside.replace(",", "").strip())


def format_value(value: Any, indent: str, unit: str, end: str) -> str:
    """Broken into lines, the first of which stands where something else is already."""
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", f"{end}{indent}")


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _entry(root: JsonObject, section: str, name: str) -> JsonMember:
    there = root.members.get(section)
    if there is None or not isinstance(there.node, JsonObject) or name not in there.node.members:
        raise not_built_so(section)
    return there.node.members[name]


def _add(text: str, node: JsonObject, name: str, value: Any, unit: str) -> tuple[list[Replacement], str]:
    """The changes, and the white space of an empty object that they take away."""
    end, members = line_end(text), list(node.members.values())
    if not members:
        inside = text[node.start + 1 : node.end - 1]
        remark, space = inside[: len(inside.rstrip())], inside[len(inside.rstrip()) :]
        outer = _indent(text, node.start)
        new = f"{end}{outer}{unit}{_compact(name)}: {format_value(value, outer + unit, unit, end)}{end}{outer}"
        return [Replacement(node.start + 1 + len(remark), node.end - 1, new)], space
    last = members[-1]
    place = _behind(text, last.node.end if last.comma is None else last.comma + 1)
    if _is_broken(text, node) or "//" in text[last.node.end : place]:
        indent = _indent(text, members[0].key)
        new = f"{end}{indent}{_compact(name)}: {format_value(value, indent, unit, end)}"
    else:
        new = f" {_compact(name)}: {_compact(value)}"
    if last.comma is not None:
        return [Replacement(place, place, f"{new},")], ""
    if place == last.node.end:
        return [Replacement(place, place, f",{new}")], ""
    return [Replacement(last.node.end, last.node.end, ","), Replacement(place, place, new)], ""


def _remove(text: str, node: JsonObject, name: str, blank: str) -> list[Replacement]:
    members = list(node.members.values())
    ours = node.members[name]
    number = members.index(ours)
    start = _before(text, ours.key)
    end = ours.node.end if ours.comma is None else ours.comma + 1
    rest = text[end:].lstrip(" \t")
    if "\n" in text[start : ours.key] and rest[:1] not in ("\r", "\n", "}"):  # a remark may end where it begins
        start, end = ours.key, len(text) - len(rest)
    if ours.comma is not None and text[ours.node.end : ours.comma].strip():  # a comment between
        kept = [Replacement(start, ours.node.end, ""), Replacement(ours.comma, end, "")]
    else:
        kept = [Replacement(start, end, "")]
    if len(members) == 1:
        if not (space := text[end : node.end - 1]).strip():
            remark = text[node.start + 1 : start].strip()
            blank = blank or (space if remark else "")
            return [*kept[:-1], Replacement(kept[-1].start, node.end - 1, blank)]
        return kept
    previous = members[number - 1] if number else None
    if ours.comma is None and previous is not None and previous.comma is not None:
        if previous.comma + 1 == start:
            return [Replacement(previous.comma, kept[0].end, ""), *kept[1:]]
        return [Replacement(previous.comma, previous.comma + 1, ""), *kept]
    return kept


def _before(text: str, place: int) -> int:
    """Where the white space before a place begins."""
    return len(text[:place].rstrip(" \t\r\n"))


def _behind(text: str, place: int) -> int:
    """Behind the comments that stand on the same line; before the white space that ends it."""
    found = _REST_OF_LINE.match(text, place)
    end = found.end() if found else place
    return max(place, len(text[:end].rstrip(" \t"))) if text[place:end].strip() else place


def _is_broken(text: str, node: JsonObject) -> bool:
    """Whether its members stand on lines of their own."""
    first = next(iter(node.members.values()))
    return "\n" in text[node.start : first.key]


def _indent(text: str, place: int) -> str:
    """The white space at the beginning of the line of a place."""
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str, root: JsonObject) -> str:
    for member in root.members.values():
        if "\n" in text[root.start : member.key] and (found := _indent(text, member.key)):
            return found
    return UNIT


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


def parse_json(text: str, *, comments: bool) -> JsonNode | None:
    """The value of a text; None for one without any. Raises `TextRefused`."""
    reader = _Reader(text, comments=comments)
    start = reader.skip_space(0)
    if start == len(text):
        return None
    node = reader.read_node(start, 0)
    if (rest := reader.skip_space(node.end)) != len(text):
        raise reader.build_error("something stands behind its end", rest)
    return node


def convert_node(node: JsonNode) -> Any:
    if isinstance(node, JsonObject):
        return {name: convert_node(member.node) for name, member in node.members.items()}
    return node.value


class _Reader:
    def __init__(self, text: str, *, comments: bool) -> None:
        self._text = text
        self._comments = comments

    def build_error(self, reason: str, place: int) -> TextRefused:
        kind = "JSON" if self._comments else "plain JSON"
        return TextRefused(f"it is not {kind}: line {self._text.count(chr(10), 0, place) + 1}: {reason}")

    def skip_space(self, place: int) -> int:
        found = (_GAP if self._comments else _BLANK).match(self._text, place)
        return found.end() if found else place

    def read_node(self, start: int, depth: int) -> JsonNode:
        if depth > DEEPEST:
            raise TextRefused(TOO_DEEP)
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
            raise self.build_error("a value is missing", start)
        try:
            return JsonValue(json.loads(found[0]), start, found.end())
        except ValueError as error:  # a number of thousands of digits
            raise self.build_error(str(error), start) from None

    def _string(self, start: int) -> tuple[str, int]:
        if self._text[start : start + 1] != '"':
            raise self.build_error("a name in quotes is missing", start)
        try:
            value, end = _DECODER.raw_decode(self._text, start)
        except ValueError as error:
            raise self.build_error(str(error), start) from None
        return str(value), end

    def _object(self, start: int, depth: int) -> JsonObject:
        members: dict[str, JsonMember] = {}
        place = self.skip_space(start + 1)
        while self._text[place : place + 1] != "}":
            name, end = self._string(place)
            if name in members:
                raise self.build_error("a key stands there twice", place)
            colon = self.skip_space(end)
            if self._text[colon : colon + 1] != ":":
                raise self.build_error("a colon is missing", colon)
            node = self.read_node(self.skip_space(colon + 1), depth + 1)
            comma, after = self._comma(node.end, "}")
            members[name] = JsonMember(place, node, comma)
            place = after
        return JsonObject(members, start, place + 1)

    def _array(self, start: int, depth: int) -> JsonValue:
        items: list[Any] = []
        place = self.skip_space(start + 1)
        while self._text[place : place + 1] != "]":
            node = self.read_node(place, depth + 1)
            items.append(convert_node(node))
            _, place = self._comma(node.end, "]")
        return JsonValue(items, start, place + 1)

    def _comma(self, end: int, closing: str) -> tuple[int | None, int]:
        """The place of the comma behind a value, if one is there, and of what follows."""
        place = self.skip_space(end)
        if self._text[place : place + 1] == closing:
            return None, place
        if self._text[place : place + 1] != ",":
            raise self.build_error("a comma is missing", place)
        after = self.skip_space(place + 1)
        if self._text[after : after + 1] == closing and not self._comments:
            raise self.build_error("a comma stands behind the last value", place)
        return place, after
