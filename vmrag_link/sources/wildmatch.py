"""Patterns of `.gitattributes`, as regular expressions without exponential time.

A `*` needs no second match once the text after it was found at the first place. So it is atomic,
except the last one of a part, which matches up to the end of the part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

_CLASSES = {
    "alnum": "A-Za-z0-9",
    "alpha": "A-Za-z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": r"\x21-\x7e",
    "lower": "a-z",
    "print": r"\x20-\x7e",
    "punct": r"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e",
    "space": r" \t\n\r\f\v",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}
_NOTHING = r"(?!)"
_STAR = "*"


class PatternInvalid(ValueError):
    """A pattern that matches nothing, such as one with an open bracket."""


def encode_path(text: str) -> str:
    """Return the text with one character per byte, because git's `?` matches a byte."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("latin-1")


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return a regular expression for `fullmatch` of a path from the pattern's folder, encoded by
    `encode_path`.
    """
    try:
        return re.compile(_translate_parts(encode_path(pattern).removeprefix("/").split("/")), re.DOTALL)
    except (PatternInvalid, re.error):
        return re.compile(_NOTHING)


def _translate_parts(parts: list[str]) -> str:
    groups: list[list[str]] = [[]]
    for part in parts:
        if part == "**":
            groups.append([])
        else:
            groups[-1].append(_translate_part(part))
    first, *others = groups
    if not others:
        return "/".join(first)
    translated = "".join(f"{part}/" for part in first)
    *between, last = others
    for group in between:
        if group:  # at the first folder where it fits
            translated += "(?>(?:[^/]+/)*?" + "".join(f"{part}/" for part in group) + ")"
    return translated + (r"(?:[^/]+/)*" + "/".join(last) if last else ".+")


def _translate_part(part: str) -> str:
    """Translate the text between two slashes, or after the last."""
    pieces: list[list[str]] = [[]]
    for token in _translate_tokens(part):
        if token == _STAR:
            pieces.append([])
        else:
            pieces[-1].append(token)
    first, *others = ["".join(piece) for piece in pieces]
    if not others:
        return first
    *between, last = others
    return first + "".join(f"(?>[^/]*?{piece})" for piece in between if piece) + f"[^/]*{last}(?=/|\\Z)"


def _translate_tokens(part: str) -> Iterator[str]:
    """Yield regular expressions of one character each, and stars."""
    position = 0
    while position < len(part):
        character = part[position]
        position += 1
        match character:
            case "*":
                yield _STAR
            case "?":
                yield "[^/]"
            case "[":
                token, position = _translate_bracket(part, position)
                yield token
            case "\\":
                if position == len(part):
                    raise PatternInvalid
                yield re.escape(part[position])
                position += 1
            case _:
                yield re.escape(character)


def _translate_bracket(part: str, at: int) -> tuple[str, int]:
    """Return a set of characters, which begins at `at`, and its end."""
    start = at
    is_negated = part[at : at + 1] in ("!", "^")
    at += is_negated
    items = ""
    first = at
    while at < len(part) and (part[at] != "]" or at == first):
        if part.startswith("[:", at) and (end := part.find(":]", at)) >= 0:
            if part[at + 2 : end] not in _CLASSES:
                raise PatternInvalid
            items += _CLASSES[part[at + 2 : end]]
            at = end + 2
            continue
        low, at = _read_literal(part, at)
        if part[at : at + 1] == "-" and part[at + 1 : at + 2] not in ("", "]"):
            high, at = _read_literal(part, at + 1)
            items += f"{_escape_character(low)}-{_escape_character(high)}" if low <= high else ""
        else:
            items += _escape_character(low)
    if at >= len(part) or at == start:
        raise PatternInvalid
    if not items:
        return ("[^/]" if is_negated else _NOTHING), at + 1
    return f"(?!/)[{'^' if is_negated else ''}{items}]", at + 1


def _read_literal(part: str, at: int) -> tuple[str, int]:
    if part[at] == "\\":
        at += 1
    if at >= len(part):
        raise PatternInvalid
    return part[at], at + 1


def _escape_character(character: str) -> str:
    return f"\\x{ord(character):02x}"
