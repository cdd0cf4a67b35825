"""Add, change and remove one entry of a JSON file. Every other byte stays.

The text becomes a tree whose nodes know their place in it. With `comments`, it can contain what
editors allow in their settings: // and /* */, and a comma after the last value.
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
    build_structure_error,
    line_end,
)

UNIT = "  "
_REST_OF_LINE = re.compile(r"(?:[ \t]+|/\*(?s:.*?)\*/|//[^\r\n]*)*")
"""The rest of a line after a value. A comment in it can end on a later line."""


class JsonEditor:
    """Edits JSON. With `comments`, the client accepts comments in its file."""

    def __init__(self, *, comments: bool) -> None:
        self._comments = comments

    def read_values(self, text: str) -> dict[str, Any]:
        root = self._parse_root(text)
        return {} if root is None else convert_node(root)

    def add_entry(self, text: str, section: str, name: str, entry: Entry) -> tuple[str, Addition]:
        root = self._parse_root(text)
        if root is None:
            if text.strip():
                raise TextRefused("it contains only comments")
            end = line_end(text)
            document = format_value({section: {name: entry}}, "", UNIT, end) + end
            return document, Addition("document", text)
        unit = _find_indent_unit(text, root)
        member = root.members.get(section)
        if member is None:
            changes, blank = _add_member(text, root, section, {name: entry}, unit)
            return apply_changes(text, changes), Addition("section", blank)
        if not isinstance(member.node, JsonObject):
            raise build_structure_error(section)
        changes, blank = _add_member(text, member.node, name, entry, unit)
        return apply_changes(text, changes), Addition("entry", blank)

    def change_entry(self, text: str, section: str, name: str, values: Entry) -> str:
        for key, value in values.items():
            root = self._require_root(text)
            unit, servers_entry = _find_indent_unit(text, root), _require_entry(root, section, name).node
            if not isinstance(servers_entry, JsonObject):
                raise build_structure_error(section)
            member = servers_entry.members.get(key)
            if member is None:
                text = apply_changes(text, _add_member(text, servers_entry, key, value, unit)[0])
            elif convert_node(member.node) != value:
                is_broken = "\n" in text[member.node.start : member.node.end] or _is_broken(text, servers_entry)
                replacement = (
                    format_value(value, _find_indent(text, member.key), unit, line_end(text))
                    if is_broken
                    else _format_compact(value)
                )
                text = apply_changes(text, [Replacement(member.node.start, member.node.end, replacement)])
        return text

    def remove_entry(self, text: str, section: str, name: str, added: Addition | None) -> str:
        root = self._require_root(text)
        _require_entry(root, section, name)
        servers = root.members[section].node
        is_last = (
            isinstance(servers, JsonObject) and len(servers.members) == 1 and not self._has_comments(text, servers)
        )
        made, blank = (added.made, added.blank) if added else ("entry", "")
        if made == "document" and is_last and len(root.members) == 1 and not self._has_comments(text, root):
            return blank
        if made != "entry" and is_last:
            return apply_changes(text, _remove_member(text, root, section, blank if made == "section" else ""))
        if not isinstance(servers, JsonObject):
            raise build_structure_error(section)
        return apply_changes(text, _remove_member(text, servers, name, blank if made == "entry" else ""))

    def _parse_root(self, text: str) -> JsonObject | None:
        root = parse_json(text, comments=self._comments)
        if root is not None and not isinstance(root, JsonObject):
            raise TextRefused("it does not have the structure of that client's file")
        return root

    def _require_root(self, text: str) -> JsonObject:
        root = self._parse_root(text)
        if root is None:
            raise TextRefused("it is empty")
        return root

    def _has_comments(self, text: str, node: JsonObject) -> bool:
        """Return whether an object has a comment outside of its values."""
        if not self._comments:
            return False
        inside = text[node.start + 1 : node.end - 1]
        for member in reversed(node.members.values()):
            inside = inside[: member.key - node.start - 1] + inside[member.node.end - node.start - 1 :]
        return bool(inside.replace(",", "").strip())


def format_value(value: Any, indent: str, unit: str, end: str) -> str:
    """Return a value on several lines, without the indentation of the first line."""
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", f"{end}{indent}")


def _format_compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _require_entry(root: JsonObject, section: str, name: str) -> JsonMember:
    servers = root.members.get(section)
    if servers is None or not isinstance(servers.node, JsonObject) or name not in servers.node.members:
        raise build_structure_error(section)
    return servers.node.members[name]


def _add_member(text: str, node: JsonObject, name: str, value: Any, unit: str) -> tuple[list[Replacement], str]:
    """Return the changes that add a member, and the white space that they remove from an empty
    object.
    """
    end, members = line_end(text), list(node.members.values())
    if not members:
        inside = text[node.start + 1 : node.end - 1]
        remark, space = inside[: len(inside.rstrip())], inside[len(inside.rstrip()) :]
        outer = _find_indent(text, node.start)
        new = f"{end}{outer}{unit}{_format_compact(name)}: {format_value(value, outer + unit, unit, end)}{end}{outer}"
        return [Replacement(node.start + 1 + len(remark), node.end - 1, new)], space
    last = members[-1]
    place = _find_comment_end(text, last.node.end if last.comma is None else last.comma + 1)
    if _is_broken(text, node) or "//" in text[last.node.end : place]:
        indent = _find_indent(text, members[0].key)
        new = f"{end}{indent}{_format_compact(name)}: {format_value(value, indent, unit, end)}"
    else:
        new = f" {_format_compact(name)}: {_format_compact(value)}"
    if last.comma is not None:
        return [Replacement(place, place, f"{new},")], ""
    if place == last.node.end:
        return [Replacement(place, place, f",{new}")], ""
    return [Replacement(last.node.end, last.node.end, ","), Replacement(place, place, new)], ""


def _remove_member(text: str, node: JsonObject, name: str, blank: str) -> list[Replacement]:
    members = list(node.members.values())
    ours = node.members[name]
    number = members.index(ours)
    start = _find_space_before(text, ours.key)
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


def _find_space_before(text: str, place: int) -> int:
    """Return the begin of the white space before a place."""
    return len(text[:place].rstrip(" \t\r\n"))


def _find_comment_end(text: str, place: int) -> int:
    """Return the end of the comments after a place on its line, without white space at the end."""
    rest = _REST_OF_LINE.match(text, place)
    end = rest.end() if rest else place
    return max(place, len(text[:end].rstrip(" \t"))) if text[place:end].strip() else place


def _is_broken(text: str, node: JsonObject) -> bool:
    """Return whether the members of an object are on separate lines."""
    first = next(iter(node.members.values()))
    return "\n" in text[node.start : first.key]


def _find_indent(text: str, place: int) -> str:
    """Return the white space at the begin of the line of a place."""
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _find_indent_unit(text: str, root: JsonObject) -> str:
    for member in root.members.values():
        if "\n" in text[root.start : member.key] and (indent := _find_indent(text, member.key)):
            return indent
    return UNIT


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
    """A member.

    `key` is the place of its name; `comma` is the place of the comma after it, if any.
    """

    key: int
    node: JsonNode
    comma: int | None


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

    def build_error(self, reason: str, place: int) -> TextRefused:
        kind = "JSON" if self._comments else "plain JSON"
        return TextRefused(f"it is not {kind}: line {self._text.count(chr(10), 0, place) + 1}: {reason}")

    def skip_space(self, place: int) -> int:
        space = (_GAP if self._comments else _BLANK).match(self._text, place)
        return space.end() if space else place

    def read_node(self, start: int, depth: int) -> JsonNode:
        if depth > DEEPEST:
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
        place = self.skip_space(start + 1)
        while self._text[place : place + 1] != "}":
            name, end = self._read_string(place)
            if name in members:
                raise self.build_error("duplicate key", place)
            colon = self.skip_space(end)
            if self._text[colon : colon + 1] != ":":
                raise self.build_error("missing colon", colon)
            node = self.read_node(self.skip_space(colon + 1), depth + 1)
            comma, after = self._read_comma(node.end, "}")
            members[name] = JsonMember(place, node, comma)
            place = after
        return JsonObject(members, start, place + 1)

    def _read_array(self, start: int, depth: int) -> JsonValue:
        items: list[Any] = []
        place = self.skip_space(start + 1)
        while self._text[place : place + 1] != "]":
            node = self.read_node(place, depth + 1)
            items.append(convert_node(node))
            _, place = self._read_comma(node.end, "]")
        return JsonValue(items, start, place + 1)

    def _read_comma(self, end: int, closing: str) -> tuple[int | None, int]:
        """Return the place of the comma after a value, if any, and the place of what follows."""
        place = self.skip_space(end)
        if self._text[place : place + 1] == closing:
            return None, place
        if self._text[place : place + 1] != ",":
            raise self.build_error("missing comma", place)
        after = self.skip_space(place + 1)
        if self._text[after : after + 1] == closing and not self._comments:
            raise self.build_error("comma after the last value", place)
        return place, after
