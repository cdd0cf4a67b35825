"""Find the keys of YAML that begin a section.

These are the keys of the outermost mapping and, in an OpenAPI description, each path, operation and
component. This module reads lines and never loads values, so an alias or a tag is only text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

_NOT_KEY = frozenset("#{}[],|>%@`")
"""First characters of a line that has no key of a block mapping."""

_BLOCK_TEXT = re.compile(r"(?:[&!]\S+ +){0,2}[|>][-+0-9]{0,2}\s*(?:#.*)?$")
_DESCRIPTIONS = frozenset(("openapi", "swagger", "asyncapi"))
_METHODS = frozenset("get put post delete options head patch trace query publish subscribe".split())
_GROUPS = frozenset("paths webhooks channels operations".split())
_MAX_LINE_CHARACTERS = 1_000


class YamlHeading(NamedTuple):
    """A line that begins a section."""

    level: int
    title: str
    has_text: bool
    """True if the section has text."""


class _Key(NamedTuple):
    """A key of a mapping."""

    number: int
    """The number of its line."""

    indent: int
    name: str
    value: str
    """The text after the colon."""


def find_headings(rows: Sequence[str]) -> dict[int, YamlHeading]:
    """Return the headings by line number."""
    keys = _find_keys(rows)
    is_description = any(key.indent == 0 and key.name in _DESCRIPTIONS for key in keys)
    headings: dict[int, YamlHeading] = {}
    above: list[_Key] = []
    for key, next_key in zip_longest(keys, keys[1:]):
        while above and above[-1].indent >= key.indent:
            above.pop()
        names = [outer.name for outer in above]
        above.append(key)
        if not names or (is_description and _is_described(names, key.name)):
            has_text = not key.value or (next_key is not None and next_key.indent > key.indent)
            headings[key.number] = YamlHeading(len(names) + 1, key.name, has_text)
    return headings


def find_title(rows: Sequence[str]) -> str:
    """Return `info.title` of an OpenAPI description, or `title` of other YAML."""
    outermost = ""
    for key in _find_keys(rows):
        if key.indent == 0:
            outermost = key.name
        if key.name == "title" and (key.indent == 0 or outermost == "info"):
            return key.value.strip("\"'")
    return ""


def _is_described(names: Sequence[str], key: str) -> bool:
    """Return whether a key below others is a path, an operation or a component."""
    match list(names):
        case [group]:
            return group in _GROUPS or group in ("components", "definitions")
        case [group, _] if group in _GROUPS:
            return key in _METHODS
        case ["components", _]:
            return True
    return False


def _find_keys(rows: Sequence[str]) -> list[_Key]:
    keys: list[_Key] = []
    text_indent = -1  # the indent of a key with a block of text, to which the lines below belong
    for number, row in enumerate(rows):
        if not row.strip() or len(row) > _MAX_LINE_CHARACTERS:
            continue
        indent = len(row) - len(row.lstrip(" "))
        if 0 <= text_indent < indent:
            continue
        text_indent = -1
        name, value = _split_key(row.strip())
        if name:
            keys.append(_Key(number, indent, name, "" if value.startswith("#") else value))
            if _BLOCK_TEXT.match(value):
                text_indent = indent
    return keys


def _split_key(row: str) -> tuple[str, str]:
    """Return the key and the value of a line; an empty key if the line has none."""
    if row[0] in "\"'":
        end = row.find(row[0], 1)
        key, behind = row[1:end], row[end + 1 :].lstrip()
        return (key, behind[1:].strip()) if end > 0 and behind[:1] == ":" else ("", "")
    end = len(row) - 1 if row.endswith(":") and ": " not in row else row.find(": ")
    if end <= 0 or row[0] in _NOT_KEY or row.startswith(("- ", "? ")) or " #" in row[:end]:
        return "", ""
    return row[:end].rstrip(), row[end + 1 :].strip()
