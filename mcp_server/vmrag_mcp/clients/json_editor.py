"""Add, change and remove one entry of a JSON file. Every other byte stays.

The editor finds the positions of the values (`json_tree`) and replaces pieces of the text.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from vmrag_mcp.clients.json_tree import JsonObject, convert_node, parse_json
from vmrag_mcp.clients.settings_file import (
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
            unit = _find_indent_unit(text, root)
            entry = _require_servers(root, section, name).members[name].node
            if not isinstance(entry, JsonObject):
                raise build_structure_error(section)
            member = entry.members.get(key)
            if member is None:
                text = apply_changes(text, _add_member(text, entry, key, value, unit)[0])
            elif convert_node(member.node) != value:
                new = _format_compact(value)
                if "\n" in text[member.node.start : member.node.end] or _is_broken(text, entry):
                    new = format_value(value, _find_indent(text, member.key), unit, line_end(text))
                text = apply_changes(text, [Replacement(member.node.start, member.node.end, new)])
        return text

    def remove_entry(self, text: str, section: str, name: str, added: Addition | None) -> str:
        root = self._require_root(text)
        servers = _require_servers(root, section, name)
        added = added or Addition()
        is_last = len(servers.members) == 1 and not self._has_comments(text, servers)
        is_section_last = is_last and len(root.members) == 1 and not self._has_comments(text, root)
        if added.made == "document" and is_section_last:
            return added.blank
        if added.made != "entry" and is_last:
            blank = added.blank if added.made == "section" else ""
            return apply_changes(text, _remove_member(text, root, section, blank))
        blank = added.blank if added.made == "entry" else ""
        return apply_changes(text, _remove_member(text, servers, name, blank))

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


def _require_servers(root: JsonObject, section: str, name: str) -> JsonObject:
    """Return the section, which has the entry `name`. Raises `TextRefused`."""
    member = root.members.get(section)
    servers = member.node if member else None
    if not isinstance(servers, JsonObject) or name not in servers.members:
        raise build_structure_error(section)
    return servers


class _NewMember(NamedTuple):
    changes: list[Replacement]
    blank: str
    """The white space that the changes remove from an empty object."""


def _add_member(text: str, node: JsonObject, name: str, value: Any, unit: str) -> _NewMember:
    """Return the changes that add a member at the end of an object."""
    end = line_end(text)
    members = list(node.members.values())
    if not members:
        inside = text[node.start + 1 : node.end - 1]
        remark = inside.rstrip()  # a comment, or nothing
        outer = _find_indent(text, node.start)
        new = f"{end}{outer}{unit}{_format_compact(name)}: {format_value(value, outer + unit, unit, end)}{end}{outer}"
        return _NewMember([Replacement(node.start + 1 + len(remark), node.end - 1, new)], inside[len(remark) :])
    last = members[-1]
    position = _find_comment_end(text, last.node.end if last.comma is None else last.comma + 1)
    if _is_broken(text, node) or "//" in text[last.node.end : position]:
        indent = _find_indent(text, members[0].key)
        new = f"{end}{indent}{_format_compact(name)}: {format_value(value, indent, unit, end)}"
    else:
        new = f" {_format_compact(name)}: {_format_compact(value)}"
    if last.comma is not None:
        changes = [Replacement(position, position, f"{new},")]
    elif position == last.node.end:
        changes = [Replacement(position, position, f",{new}")]
    else:
        changes = [Replacement(last.node.end, last.node.end, ","), Replacement(position, position, new)]
    return _NewMember(changes, "")


def _remove_member(text: str, node: JsonObject, name: str, blank: str) -> list[Replacement]:
    """Return the changes that remove a member with its comma, and its line if nothing else is on
    it.

    `blank` is the white space to restore in an empty object.
    """
    members = list(node.members.values())
    ours = node.members[name]
    number = members.index(ours)
    start = len(text[: ours.key].rstrip(" \t\r\n"))
    end = ours.node.end if ours.comma is None else ours.comma + 1
    rest = text[end:].lstrip(" \t")
    if "\n" in text[start : ours.key] and rest[:1] not in ("\r", "\n", "}"):  # a remark may end where it begins
        start, end = ours.key, len(text) - len(rest)
    if ours.comma is not None and text[ours.node.end : ours.comma].strip():  # a comment between
        changes = [Replacement(start, ours.node.end, ""), Replacement(ours.comma, end, "")]
    else:
        changes = [Replacement(start, end, "")]
    if len(members) == 1:
        if not (space := text[end : node.end - 1]).strip():
            remark = text[node.start + 1 : start].strip()
            blank = blank or (space if remark else "")
            return [*changes[:-1], Replacement(changes[-1].start, node.end - 1, blank)]
        return changes
    previous = members[number - 1] if number else None
    if ours.comma is None and previous is not None and previous.comma is not None:
        if previous.comma + 1 == start:
            return [Replacement(previous.comma, changes[0].end, ""), *changes[1:]]
        return [Replacement(previous.comma, previous.comma + 1, ""), *changes]
    return changes


def _find_comment_end(text: str, position: int) -> int:
    """Return the end of the comments after a position on its line, without white space at the
    end.
    """
    rest = _REST_OF_LINE.match(text, position)
    end = rest.end() if rest else position
    return max(position, len(text[:end].rstrip(" \t"))) if text[position:end].strip() else position


def _is_broken(text: str, node: JsonObject) -> bool:
    """Return whether the members of an object are on separate lines."""
    first = next(iter(node.members.values()))
    return "\n" in text[node.start : first.key]


def _find_indent(text: str, position: int) -> str:
    """Return the white space at the begin of the line of a position."""
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _find_indent_unit(text: str, root: JsonObject) -> str:
    for member in root.members.values():
        if "\n" in text[root.start : member.key] and (indent := _find_indent(text, member.key)):
            return indent
    return UNIT
