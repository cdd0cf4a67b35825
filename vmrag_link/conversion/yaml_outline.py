"""Find the keys of YAML that begin a section.

These are the keys of the outermost mapping and, in an OpenAPI description, each path, operation and
component. This module reads lines and never loads values, so an alias or a tag is only text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_NOT_KEY = frozenset("#{}[],|>%@`")
"""First characters of a line that has no key of a block mapping."""

_BLOCK_TEXT = re.compile(r"(?:[&!]\S+ +){0,2}[|>][-+0-9]{0,2}\s*(?:#.*)?$")
_DESCRIPTIONS = frozenset(("openapi", "swagger", "asyncapi"))
_METHODS = frozenset("get put post delete options head patch trace query publish subscribe".split())
_GROUPS = frozenset("paths webhooks channels operations".split())
_LONGEST_LINE = 1_000


def find_headings(rows: Sequence[str]) -> dict[int, tuple[int, str, bool]]:
    """Return the level and the title of each line that begins a section, by line number.

    The third value is True if the section has text.
    """
    keys = _find_keys(rows)
    is_description = any(indent == 0 and key in _DESCRIPTIONS for _, indent, key, _ in keys)
    headings: dict[int, tuple[int, str, bool]] = {}
    above: list[tuple[int, str]] = []  # indent and key
    for place, (number, indent, key, inline) in enumerate(keys):
        while above and above[-1][0] >= indent:
            above.pop()
        names = [name for _, name in above]
        has_lines = not inline or (place + 1 < len(keys) and keys[place + 1][1] > indent)
        above.append((indent, key))
        if not names or (is_description and _is_described(names, key)):
            headings[number] = (len(names) + 1, key, has_lines)
    return headings


def find_title(rows: Sequence[str]) -> str:
    """Return `info.title` of an OpenAPI description, or `title` of other YAML."""
    above = ""
    for _, indent, key, value in _find_keys(rows):
        above = key if not indent else above
        if key == "title" and (not indent or above == "info"):
            return value.strip("\"'")
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


def _find_keys(rows: Sequence[str]) -> list[tuple[int, int, str, str]]:
    """Return the keys of mappings: line number, indent, name, and the text after the colon."""
    keys: list[tuple[int, int, str, str]] = []
    text_below = -1
    """The indent of the key with a block of text, to which the lines below belong."""
    for number, row in enumerate(rows):
        if not row.strip() or len(row) > _LONGEST_LINE:
            continue
        indent = len(row) - len(row.lstrip(" "))
        if text_below >= 0 and indent > text_below:
            continue
        text_below = -1
        key, value = _split_key(row.strip())
        if key:
            keys.append((number, indent, key, "" if value.startswith("#") else value))
            if _BLOCK_TEXT.match(value):
                text_below = indent
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
