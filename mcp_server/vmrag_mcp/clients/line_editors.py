"""Add, change and remove one entry of a TOML or YAML file. Every other byte stays.

TOML: a table is a run of lines below its header, so Python's own reader is enough. It reads the
values before and after the change. Tables in other forms are not changed.

YAML: the parser (`yaml_tree`) finds the positions. It refuses anchors and tags.
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
    build_structure_error,
    line_end,
)

_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)

_MAX_KEY_PARTS = 16
"""Maximum number of parts of a key with dots. Python's reader needs quadratic time for them."""

_LONG_KEY = re.compile(
    rf"""(?<![\w-])(?>(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{_MAX_KEY_PARTS}}}""", re.ASCII
)


class TomlEditor:
    """Edits TOML. Sections are tables, such as `mcp_servers`, and entries are tables in them."""

    def read_values(self, text: str) -> dict[str, Any]:
        if _LONG_KEY.search(text):
            raise TextRefused(f"a key has more than {_MAX_KEY_PARTS} parts")
        try:
            return tomllib.loads(text)
        except ValueError as error:  # TOMLDecodeError, and a number of thousands of digits
            raise TextRefused(f"it is not TOML: {error}") from None
        except RecursionError:
            raise TextRefused(TOO_DEEP) from None

    def add_entry(self, text: str, section: str, name: str, entry: Entry) -> tuple[str, Addition]:
        if not isinstance(self.read_values(text).get(section, {}), dict):
            raise build_structure_error(section)
        end = line_end(text)
        if not text.strip():
            return _format_table(section, name, entry, end), Addition("document", text)
        lines = _format_table(section, name, entry, end)
        if text.endswith("\n"):
            return text + end + lines, Addition("entry", end)
        return text + end * 2 + lines.removesuffix(end), Addition("entry", end * 2)

    def change_entry(self, text: str, section: str, name: str, values: Entry) -> str:
        start, end = _find_table(text, section, name)
        table = text[start:end]
        for key, value in values.items():
            line = re.compile(
                rf"^([ \t]*{re.escape(key)}[ \t]*=[ \t]*)[^\r\n]*?([ \t]+#[^\"'\r\n]*)?(?=\r?$)", re.MULTILINE
            )
            written = _format_toml_value(value).replace("\\", r"\\")
            table, count = line.subn(rf"\g<1>{written}\g<2>", table)
            if count != 1:
                raise TextRefused(f"{key} of {section}.{name} is not written on one line")
        return text[:start] + table + text[end:]

    def remove_entry(self, text: str, section: str, name: str, added: Addition | None) -> str:
        start, end = _find_table(text, section, name, whole=True)
        separator = added.blank if added and added.made == "entry" else line_end(text)
        if added and added.made == "document" and not (text[:start] + text[end:]).strip():
            return added.blank
        if start and text[:start].endswith(separator):
            start -= len(separator)
        rest = text[end:]
        if start and rest and not text[:start].endswith("\n"):  # keep later text on a separate line
            start += len(line_end(text))
        return text[:start] + rest


def _format_table(section: str, name: str, entry: Entry, end: str) -> str:
    lines = [f"[{section}.{name}]", *(f"{key} = {_format_toml_value(value)}" for key, value in entry.items())]
    return "".join(f"{line}{end}" for line in lines)


def _format_toml_value(value: Any) -> str:
    """Return a value as TOML. It is the same as JSON, except that TOML requires one more escape."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _find_table(text: str, section: str, name: str, *, whole: bool = False) -> tuple[int, int]:
    """Return the begin of a table's header and the end of its last line with a value.

    Comments below that line can belong to the next table. `whole` includes later tables of the
    entry, such as its environment.
    """
    names = [
        rf"[ \t]*(?:{re.escape(name)}|\"{re.escape(name)}\"|'{re.escape(name)}')[ \t]*" for name in (section, name)
    ]
    headers = list(re.finditer(rf"^[ \t]*\[{names[0]}\.{names[1]}\][^\r\n]*(?:\r?\n|\Z)", text, re.MULTILINE))
    if len(headers) != 1:
        raise TextRefused(f"{section}.{name} is not a table of its own")
    start, position = headers[0].span()
    next_header = _HEADER.search(text, position)
    part = re.compile(rf"[ \t]*\[{names[0]}\.{names[1]}\.")
    while whole and next_header and part.match(text, next_header.start()):
        next_header = _HEADER.search(text, next_header.end())
    limit = next_header.start() if next_header else len(text)
    end = position
    for line in re.finditer(r"[^\r\n]*(?:\r?\n|\Z)", text[position:limit]):
        if (content := line[0].strip()) and not content.startswith("#"):
            end = position + line.end()
    return start, end


_BLOCK_UNIT = 2
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class YamlEditor:
    """Edits YAML. Sections and entries are mappings."""

    def read_values(self, text: str) -> dict[str, Any]:
        root = _parse_root(text)
        return {} if root is None else convert_to_plain(root)

    def add_entry(self, text: str, section: str, name: str, entry: Entry) -> tuple[str, Addition]:
        root, end = _parse_root(text), line_end(text)
        if root is not None and (root.flow or root.column):
            raise TextRefused("it does not have one key per line")
        member = None if root is None else root.entries.get(section)
        if member is None:
            lines = _format_block(section, {name: entry}, 0, end)
            if not text.strip():
                return lines, Addition("document", text)
            if text.endswith("\n"):
                return text + lines, Addition("section")
            return text + end + lines.removesuffix(end), Addition("section", end)
        node = member.value
        if isinstance(node, MappingNode) and node.flow:
            return _add_to_flow(text, node, name, entry), Addition()
        if isinstance(node, MappingNode):
            position = _find_next_line(text, next(reversed(node.entries.values())).value.end)
            lines = _format_block(name, entry, node.column, end)
        elif isinstance(node, ScalarNode) and not node.text and not node.quoted:
            position = _find_next_line(text, member.key.end)
            lines = _format_block(name, entry, _BLOCK_UNIT, end)
        else:
            raise build_structure_error(section)
        separator = ""
        if not text[:position].endswith("\n"):
            separator = end
            lines = lines.removesuffix(end)
        return text[:position] + separator + lines + text[position:], Addition("entry", separator)

    def change_entry(self, text: str, section: str, name: str, values: Entry) -> str:
        mapping = _require_entry(text, section, name)[1].value
        if not isinstance(mapping, MappingNode) or not values.keys() <= mapping.entries.keys():
            raise build_structure_error(section)
        changes = []
        for key, value in values.items():
            node = mapping.entries[key].value
            if convert_to_plain(node) != value:
                changes.append(Replacement(node.start, node.end, _format_value(value)))
        return apply_changes(text, changes)

    def remove_entry(self, text: str, section: str, name: str, added: Addition | None) -> str:
        servers, ours = _require_entry(text, section, name)
        if servers.flow:
            return _remove_from_flow(text, servers, name)
        made = added.made if added else "section"  # what vmrag wrote with the entry
        blank = added.blank if added else ""  # what it wrote before the entry, or the text of the empty document
        start = _find_line_start(text, ours.key.start)
        end = _find_next_line(text, ours.value.end)
        root = _parse_root(text)
        if made != "entry" and len(servers.entries) == 1 and root is not None:  # the section would be empty
            section_start = _find_line_start(text, root.entries[section].key.start)
            if text[section_start:start].count("\n") == 1:  # no line is between them
                start = section_start
        before = text[:start]
        after = text[end:]
        if made == "document":
            return before + after if (before + after).strip() else blank
        return (before if after else before.removesuffix(blank)) + after


def _parse_root(text: str) -> MappingNode | None:
    try:
        root = parse_document(text)
    except YamlRefused as error:
        raise TextRefused(f"line {error.line} {error.reason}") from None
    if root is not None and not isinstance(root, MappingNode):
        raise TextRefused("it does not have the structure of that client's file")
    return root


def _require_entry(text: str, section: str, name: str) -> tuple[MappingNode, MappingEntry]:
    root = _parse_root(text)
    servers: Node | None = root.entries[section].value if root is not None and section in root.entries else None
    if not isinstance(servers, MappingNode) or name not in servers.entries:
        raise build_structure_error(section)
    return servers, servers.entries[name]


def _format_block(name: str, value: Entry, column: int, end: str) -> str:
    """Return the lines of a key with a mapping below it. Lists are in brackets."""
    space = " " * column
    lines = f"{space}{_format_key(name)}:{end}"
    for key, member in value.items():
        if isinstance(member, dict):
            lines += _format_block(key, member, column + _BLOCK_UNIT, end)
        else:
            lines += f"{space}{' ' * _BLOCK_UNIT}{_format_key(key)}: {_format_value(member)}{end}"
    return lines


def _format_key(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else _format_value(name)


def _format_value(value: Any) -> str:
    """Return a value as JSON, which is also YAML, but with more characters escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(character if character.isprintable() else f"\\U{ord(character):08x}" for character in text)


def _add_to_flow(text: str, node: MappingNode, name: str, entry: Entry) -> str:
    member = f"{_format_value(name)}: {_format_value(dict(entry))}"
    if not node.entries:
        return apply_changes(text, [Replacement(node.start + 1, node.start + 1, member)])
    last = next(reversed(node.entries.values())).value.end
    return apply_changes(text, [Replacement(last, last, f", {member}")])


def _remove_from_flow(text: str, node: MappingNode, name: str) -> str:
    names = list(node.entries)
    number = names.index(name)
    ours = node.entries[name]
    if number:
        return apply_changes(text, [Replacement(node.entries[names[number - 1]].value.end, ours.value.end, "")])
    if len(names) > 1:
        return apply_changes(text, [Replacement(ours.key.start, node.entries[names[1]].key.start, "")])
    return apply_changes(text, [Replacement(ours.key.start, ours.value.end, "")])


def _find_line_start(text: str, position: int) -> int:
    return text.rfind("\n", 0, position) + 1


def _find_next_line(text: str, position: int) -> int:
    """Return the begin of the line after the line of a position, or the position itself at the
    begin of a line.
    """
    if position and text[position - 1] == "\n":
        return position
    end = text.find("\n", position)
    return len(text) if end < 0 else end + 1
