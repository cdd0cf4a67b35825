"""Add, change and remove one entry of a JSON file. Everything else in it stays byte for byte."""

from __future__ import annotations

import json
import re
from typing import Any

from vmrag_mcp.clients.edits import Addition, Entry, Replacement, TextRefused, apply, line_end, not_built_so
from vmrag_mcp.clients.json_tree import JsonMember, JsonObject, parse, plain

UNIT = "  "
_REST_OF_LINE = re.compile(r"(?:[ \t]+|/\*(?s:.*?)\*/|//[^\r\n]*)*")
"""What stands behind a value on its line, and is about it; a comment may end on a later one."""


class JsonEditor:
    """`comments`: the client reads its file with comments."""

    def __init__(self, *, comments: bool) -> None:
        self._comments = comments

    def read(self, text: str) -> dict[str, Any]:
        root = self._root(text)
        return {} if root is None else plain(root)

    def add(self, text: str, section: str, name: str, entry: Entry) -> tuple[str, Addition]:
        root = self._root(text)
        if root is None:
            if text.strip():
                raise TextRefused("it holds comments and nothing else")
            end = line_end(text)
            made = written({section: {name: entry}}, "", UNIT, end) + end
            return made, Addition("document", text)
        unit = _unit(text, root)
        there = root.members.get(section)
        if there is None:
            changes, blank = _add(text, root, section, {name: entry}, unit)
            return apply(text, changes), Addition("section", blank)
        if not isinstance(there.node, JsonObject):
            raise not_built_so(section)
        changes, blank = _add(text, there.node, name, entry, unit)
        return apply(text, changes), Addition("entry", blank)

    def change(self, text: str, section: str, name: str, values: Entry) -> str:
        for key, value in values.items():
            root = self._required(text)
            unit, found = _unit(text, root), _entry(root, section, name).node
            if not isinstance(found, JsonObject):
                raise not_built_so(section)
            there = found.members.get(key)
            if there is None:
                text = apply(text, _add(text, found, key, value, unit)[0])
            elif plain(there.node) != value:
                broken = "\n" in text[there.node.start : there.node.end] or _is_broken(text, found)
                new = written(value, _indent(text, there.key), unit, line_end(text)) if broken else _compact(value)
                text = apply(text, [Replacement(there.node.start, there.node.end, new)])
        return text

    def remove(self, text: str, section: str, name: str, added: Addition | None) -> str:
        root = self._required(text)
        _entry(root, section, name)
        servers = root.members[section].node
        alone = isinstance(servers, JsonObject) and len(servers.members) == 1 and not self._remarks(text, servers)
        made, blank = (added.made, added.blank) if added else ("entry", "")
        if made == "document" and alone and len(root.members) == 1 and not self._remarks(text, root):
            return blank
        if made != "entry" and alone:
            return apply(text, _remove(text, root, section, blank if made == "section" else ""))
        if not isinstance(servers, JsonObject):
            raise not_built_so(section)
        return apply(text, _remove(text, servers, name, blank if made == "entry" else ""))

    def _root(self, text: str) -> JsonObject | None:
        root = parse(text, comments=self._comments)
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
        for each in reversed(node.members.values()):
            inside = inside[: each.key - node.start - 1] + inside[each.node.end - node.start - 1 :]
        return bool(inside.replace(",", "").strip())


def written(value: Any, indent: str, unit: str, end: str) -> str:
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
        new = f"{end}{outer}{unit}{_compact(name)}: {written(value, outer + unit, unit, end)}{end}{outer}"
        return [Replacement(node.start + 1 + len(remark), node.end - 1, new)], space
    last = members[-1]
    place = _behind(text, last.node.end if last.comma is None else last.comma + 1)
    if _is_broken(text, node) or "//" in text[last.node.end : place]:
        indent = _indent(text, members[0].key)
        new = f"{end}{indent}{_compact(name)}: {written(value, indent, unit, end)}"
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
    for each in root.members.values():
        if "\n" in text[root.start : each.key] and (found := _indent(text, each.key)):
            return found
    return UNIT
