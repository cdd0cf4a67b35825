"""One entry in the text of a client's file: found, put there, made right, and taken out.

What an editor wrote is read again before it counts: it must mean what was there before, but for
the entry.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from vmrag_mcp.clients.json_editor import JsonEditor
from vmrag_mcp.clients.line_editors import TomlEditor, YamlEditor
from vmrag_mcp.clients.settings_file import Addition, Editor, Entry, TextRefused, not_built_so
from vmrag_mcp.clients.table import FileFormat

EDITORS: Mapping[FileFormat, Editor] = {
    "json": JsonEditor(comments=False),
    "jsonc": JsonEditor(comments=True),
    "toml": TomlEditor(),
    "yaml": YamlEditor(),
}


def decode(content: bytes | None) -> str:
    """Raises `TextRefused`."""
    if content is None:
        return ""
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise TextRefused(f"it is not UTF-8: {error}") from None
    if text.startswith("\ufeff"):
        raise TextRefused("it begins with a byte order mark")
    return text


def find(form: FileFormat, text: str, section: str, name: str) -> dict[str, Any] | None:
    """Raises `TextRefused` for a text that is not built as the client's file is."""
    servers = EDITORS[form].read(text).get(section) or {}
    there = servers.get(name) if isinstance(servers, dict) else None
    if not isinstance(servers, dict) or not isinstance(there, dict | None):
        raise not_built_so(section)
    return there


def with_entry(form: FileFormat, text: str, section: str, name: str, entry: Entry) -> tuple[str, Addition]:
    """Raises `TextRefused`."""
    after, added = EDITORS[form].add(text, section, name, entry)
    _require(form, (text, after), section, name, dict(entry))
    return after, added


def with_values(form: FileFormat, text: str, section: str, name: str, values: Entry) -> str:
    """Raises `TextRefused`."""
    there = find(form, text, section, name) or {}
    after = EDITORS[form].change(text, section, name, values)
    _require(form, (text, after), section, name, {**there, **values})
    return after


def without_entry(form: FileFormat, text: str, section: str, name: str, added: Addition | None) -> str:
    """Raises `TextRefused`."""
    after = EDITORS[form].remove(text, section, name, added)
    _require(form, (text, after), section, name, None)
    return after


def rendered(form: FileFormat, section: str, name: str, entry: Entry) -> str:
    """What belongs into a file that has nothing else."""
    return EDITORS[form].add("", section, name, entry)[0]


def _require(form: FileFormat, texts: tuple[str, str], section: str, name: str, entry: Entry | None) -> None:
    """Raise `TextRefused` unless the second text means what the first does, but for the entry."""
    before, after = texts
    wanted = copy.deepcopy(EDITORS[form].read(before))
    servers = wanted.setdefault(section, {}) or {}
    servers.pop(name, None)
    if entry is not None:
        servers[name] = entry
    wanted[section] = servers
    try:
        found = EDITORS[form].read(after)
    except TextRefused:
        found = {}
    if (found.get(section) or {}) != servers or _others(found, section) != _others(wanted, section):
        raise TextRefused("it is written in a way in which that entry cannot be edited")


def _others(values: Mapping[str, Any], section: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != section}
