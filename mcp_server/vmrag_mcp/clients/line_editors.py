"""Add, change and remove one entry of a TOML or YAML file. Everything else in it stays byte for
byte.

TOML: a table is a run of lines below its header, so Python's own reader suffices. It says before
and after what the text means, and a table in any other form is left alone.

YAML: the places come from the parser (`yaml_tree`), which refuses anchors and tags.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from vmrag_link.yaml_tree import (
    MappingEntry,
    MappingNode,
    Node,
    ScalarNode,
    YamlRefused,
    convert_to_plain,
    parse_document,
)
from vmrag_mcp.clients.settings_file import (
    TOO_DEEP,
    Addition,
    Entry,
    Replacement,
    TextRefused,
    apply_changes,
    line_end,
    not_built_so,
)

_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)

_MOST_PARTS = 16
"""Parts of a key with dots. Python's reader takes quadratic time for each."""

_LONG_KEY = re.compile(
    rf"""(?<![\w-])(?>(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{_MOST_PARTS}}}""", re.ASCII
)


class TomlEditor:
    """Sections are tables, such as `mcp_servers`, and entries tables in them."""

    def read_values(self, text: str) -> dict[str, Any]:
        if _LONG_KEY.search(text):
            raise TextRefused(f"a key has more than {_MOST_PARTS} parts")
        try:
            return tomllib.loads(text)
        except ValueError as error:  # TOMLDecodeError, and a number of thousands of digits
            raise TextRefused(f"it is not TOML: {error}") from None
        except RecursionError:
            raise TextRefused(TOO_DEEP) from None

    def add_entry(self, text: str, section: str, name: str, entry: Entry) -> tuple[str, Addition]:
        if not isinstance(self.read_values(text).get(section, {}), dict):
            raise not_built_so(section)
        end = line_end(text)
        if not text.strip():
            return _table(section, name, entry, end), Addition("document", text)
        closed = text.endswith("\n")
        apart = end if closed else end * 2
        made = _table(section, name, entry, end)
        return text + apart + (made if closed else made.removesuffix(end)), Addition("entry", apart)

    def change_entry(self, text: str, section: str, name: str, values: Entry) -> str:
        start, end = _lines(text, section, name)
        table = text[start:end]
        for key, value in values.items():
            line = re.compile(
                rf"^([ \t]*{re.escape(key)}[ \t]*=[ \t]*)[^\r\n]*?([ \t]+#[^\"'\r\n]*)?(?=\r?$)", re.MULTILINE
            )
            written = _toml_value(value).replace("\\", r"\\")
            table, count = line.subn(rf"\g<1>{written}\g<2>", table)
            if count != 1:
                raise TextRefused(f"{key} of {section}.{name} is not written on one line")
        return text[:start] + table + text[end:]

    def remove_entry(self, text: str, section: str, name: str, added: Addition | None) -> str:
        start, end = _lines(text, section, name, whole=True)
        apart = added.blank if added and added.made == "entry" else line_end(text)
        if added and added.made == "document" and not (text[:start] + text[end:]).strip():
            return added.blank
        if start and text[:start].endswith(apart):
            start -= len(apart)
        rest = text[end:]
        if start and rest and not text[:start].endswith("\n"):  # what was added behind it goes on a line of its own
            start += len(line_end(text))
        return text[:start] + rest


def _table(section: str, name: str, entry: Entry, end: str) -> str:
    lines = [f"[{section}.{name}]", *(f"{key} = {_toml_value(value)}" for key, value in entry.items())]
    return "".join(f"{line}{end}" for line in lines)


def _toml_value(value: Any) -> str:
    """As in JSON, but for a character that stands for itself there and not in TOML."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _lines(text: str, section: str, name: str, *, whole: bool = False) -> tuple[int, int]:
    """From the header to behind the last line with a value: comments below it may be about what
    follows. `whole`: include the tables of the entry that follow, such as its environment.
    """
    names = [
        rf"[ \t]*(?:{re.escape(each)}|\"{re.escape(each)}\"|'{re.escape(each)}')[ \t]*" for each in (section, name)
    ]
    headers = list(re.finditer(rf"^[ \t]*\[{names[0]}\.{names[1]}\][^\r\n]*(?:\r?\n|\Z)", text, re.MULTILINE))
    if len(headers) != 1:
        raise TextRefused(f"{section}.{name} is not a table of its own")
    start, place = headers[0].span()
    following = _HEADER.search(text, place)
    part = re.compile(rf"[ \t]*\[{names[0]}\.{names[1]}\.")
    while whole and following and part.match(text, following.start()):
        following = _HEADER.search(text, following.end())
    limit = following.start() if following else len(text)
    end = place
    for line in re.finditer(r"[^\r\n]*(?:\r?\n|\Z)", text[place:limit]):
        if (content := line[0].strip()) and not content.startswith("#"):
            end = place + line.end()
    return start, end


_BLOCK_UNIT = 2
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class YamlEditor:
    """Sections and entries are mappings."""

    def read_values(self, text: str) -> dict[str, Any]:
        root = _root(text)
        return {} if root is None else convert_to_plain(root)

    def add_entry(self, text: str, section: str, name: str, entry: Entry) -> tuple[str, Addition]:
        root, end = _root(text), line_end(text)
        if root is not None and (root.flow or root.column):
            raise TextRefused("it is not written as one key a line")
        there = None if root is None else root.entries.get(section)
        if there is None:
            apart = "" if not text or text.endswith("\n") else end
            made = _block(section, {name: entry}, 0, end)
            if not text.strip():
                return made, Addition("document", text)
            return text + apart + (made.removesuffix(end) if apart else made), Addition("section", apart)
        node = there.value
        if isinstance(node, MappingNode) and node.flow:
            return _add_to_flow(text, node, name, entry), Addition()
        if isinstance(node, MappingNode):
            at = _next_line(text, next(reversed(node.entries.values())).value.end)
            made = _block(name, entry, node.column, end)
        elif isinstance(node, ScalarNode) and not node.text and not node.quoted:
            at = _next_line(text, there.key.end)
            made = _block(name, entry, _BLOCK_UNIT, end)
        else:
            raise not_built_so(section)
        apart = "" if text[:at].endswith("\n") else end
        return text[:at] + apart + (made.removesuffix(end) if apart else made) + text[at:], Addition("entry", apart)

    def change_entry(self, text: str, section: str, name: str, values: Entry) -> str:
        found = _entry(text, section, name)[1].value
        if not isinstance(found, MappingNode) or not values.keys() <= found.entries.keys():
            raise not_built_so(section)
        changes = []
        for key, value in values.items():
            node = found.entries[key].value
            if convert_to_plain(node) != value:
                changes.append(Replacement(node.start, node.end, _value(value)))
        return apply_changes(text, changes)

    def remove_entry(self, text: str, section: str, name: str, added: Addition | None) -> str:
        servers, ours = _entry(text, section, name)
        if servers.flow:
            return _remove_from_flow(text, servers, name)
        made, blank = (added.made, added.blank) if added else ("section", "")
        root = _root(text)
        start, end = _line(text, ours.key.start), _next_line(text, ours.value.end)
        if made != "entry" and len(servers.entries) == 1 and root is not None:
            line = _line(text, root.entries[section].key.start)
            if text[line:start].count("\n") == 1:  # nothing stands between
                start = line
        before, after = text[:start], text[end:]
        if made == "document":
            return before + after if (before + after).strip() else blank
        return (before if after else before.removesuffix(blank)) + after


def _root(text: str) -> MappingNode | None:
    try:
        root = parse_document(text)
    except YamlRefused as error:
        raise TextRefused(f"line {error.line} {error.reason}") from None
    if root is not None and not isinstance(root, MappingNode):
        raise TextRefused("it is not built as that client's file is")
    return root


def _entry(text: str, section: str, name: str) -> tuple[MappingNode, MappingEntry]:
    root = _root(text)
    there: Node | None = root.entries[section].value if root is not None and section in root.entries else None
    if not isinstance(there, MappingNode) or name not in there.entries:
        raise not_built_so(section)
    return there, there.entries[name]


def _block(name: str, value: Entry, column: int, end: str) -> str:
    """A key with a mapping below it; lists stand in brackets."""
    space = " " * column
    lines = f"{space}{_key(name)}:{end}"
    for key, each in value.items():
        if isinstance(each, dict):
            lines += _block(key, each, column + _BLOCK_UNIT, end)
        else:
            lines += f"{space}{' ' * _BLOCK_UNIT}{_key(key)}: {_value(each)}{end}"
    return lines


def _key(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else _value(name)


def _value(value: Any) -> str:
    """As JSON, which YAML contains; but YAML allows fewer characters to stand for themselves."""
    made = json.dumps(value, ensure_ascii=False)
    return "".join(each if each.isprintable() else f"\\U{ord(each):08x}" for each in made)


def _add_to_flow(text: str, node: MappingNode, name: str, entry: Entry) -> str:
    made = f"{_value(name)}: {_value(dict(entry))}"
    if not node.entries:
        return apply_changes(text, [Replacement(node.start + 1, node.start + 1, made)])
    last = next(reversed(node.entries.values())).value.end
    return apply_changes(text, [Replacement(last, last, f", {made}")])


def _remove_from_flow(text: str, node: MappingNode, name: str) -> str:
    names = list(node.entries)
    number = names.index(name)
    ours = node.entries[name]
    if number:
        return apply_changes(text, [Replacement(node.entries[names[number - 1]].value.end, ours.value.end, "")])
    if len(names) > 1:
        return apply_changes(text, [Replacement(ours.key.start, node.entries[names[1]].key.start, "")])
    return apply_changes(text, [Replacement(ours.key.start, ours.value.end, "")])


def _line(text: str, place: int) -> int:
    return text.rfind("\n", 0, place) + 1


def _next_line(text: str, place: int) -> int:
    """Behind the line in which a value ends; that place, if it ends with its line."""
    if place and text[place - 1] == "\n":
        return place
    end = text.find("\n", place)
    return len(text) if end < 0 else end + 1
