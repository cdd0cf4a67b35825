"""Read and edit one entry in the text of a client's file, and check the result.

The entry is the value of a name in a section of the file. An editor for the format changes the
text. Then the text is read again: except for the entry, it must have the same values as before.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from vmrag_mcp.clients.json_editor import JsonEditor
from vmrag_mcp.clients.line_editors import TomlEditor, YamlEditor
from vmrag_mcp.clients.settings_file import (
    MAX_NESTING,
    TOO_DEEP,
    Addition,
    Editor,
    Entry,
    TextRefused,
    build_structure_error,
)
from vmrag_mcp.clients.table import FileFormat

EDITORS: Mapping[FileFormat, Editor] = {
    "json": JsonEditor(comments=False),
    "jsonc": JsonEditor(comments=True),
    "toml": TomlEditor(),
    "yaml": YamlEditor(),
}


def decode_text(content: bytes | None) -> str:
    """Return the content of a file as text. Raises `TextRefused`."""
    if content is None:
        return ""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise TextRefused(f"it is not UTF-8: {error}") from None
    if text.startswith("\ufeff"):
        raise TextRefused("it begins with a byte order mark")
    return text


def find_entry(form: FileFormat, text: str, section: str, name: str) -> dict[str, Any] | None:
    """Return the values of an entry; None if the text does not have it.

    Raises `TextRefused` if the text does not have the structure of the client's file, or if the
    entry has values that reports cannot show.
    """
    servers = _read_values(form, text).get(section) or {}
    entry = servers.get(name) if isinstance(servers, dict) else None
    if not isinstance(servers, dict) or not isinstance(entry, dict | None):
        raise build_structure_error(section)
    try:
        msgspec.json.encode(entry)
    except (ValueError, OverflowError, TypeError) as error:
        raise TextRefused(f"{section}.{name} has a value that JSON cannot hold: {error}") from None
    return entry


def with_entry(form: FileFormat, text: str, section: str, name: str, entry: Entry) -> tuple[str, Addition]:
    """Return the text with a new entry, and what was added. Raises `TextRefused`."""
    after, added = EDITORS[form].add_entry(text, section, name, entry)
    _require_same_values(form, text, after, section, name, entry=dict(entry))
    return after, added


def with_values(form: FileFormat, text: str, section: str, name: str, values: Entry) -> str:
    """Return the text with other values in the entry. Raises `TextRefused`."""
    entry = find_entry(form, text, section, name) or {}
    after = EDITORS[form].change_entry(text, section, name, values)
    _require_same_values(form, text, after, section, name, entry={**entry, **values})
    return after


def without_entry(form: FileFormat, text: str, section: str, name: str, added: Addition | None) -> str:
    """Return the text without the entry. Raises `TextRefused`."""
    after = EDITORS[form].remove_entry(text, section, name, added)
    _require_same_values(form, text, after, section, name, entry=None)
    return after


def render_file(form: FileFormat, section: str, name: str, entry: Entry) -> str:
    """Return the text of a file with only this entry."""
    return EDITORS[form].add_entry("", section, name, entry)[0]


def _require_same_values(
    form: FileFormat, before: str, after: str, section: str, name: str, *, entry: Entry | None
) -> None:
    """Raise `TextRefused` unless both texts have the same values, except for the entry."""
    expected = copy.deepcopy(_read_values(form, before))
    servers = expected.setdefault(section, {}) or {}
    servers.pop(name, None)
    if entry is not None:
        servers[name] = entry
    expected[section] = servers
    try:
        actual = _read_values(form, after)
    except TextRefused:
        actual = {}
    if (actual.get(section) or {}) != servers or _drop_section(actual, section) != _drop_section(expected, section):
        raise TextRefused("the entry has a form that vmrag cannot edit")


def _drop_section(values: Mapping[str, Any], section: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != section}


def _read_values(form: FileFormat, text: str) -> dict[str, Any]:
    """Return the values of a client's file.

    Raises `TextRefused` for a text that the format's reader refuses, or that is nested so deep
    that a comparison of its values could exceed Python's stack.
    """
    values = EDITORS[form].read_values(text)
    level: list[Any] = [values]
    for _ in range(MAX_NESTING + 1):
        level = [part for value in level for part in _list_parts(value)]
    if level:
        raise TextRefused(TOO_DEEP)
    return values


def _list_parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
