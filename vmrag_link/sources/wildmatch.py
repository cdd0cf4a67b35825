"""Patterns as `.gitattributes` has them, as regular expressions that take no exponential time.

A `*` never needs to be tried again at a later place once what follows it was found at the first
one; so it is atomic, but for the last one of a part, which reaches up to its end.
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
    """The text with a character for each byte, because git's `?` is a byte."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("latin-1")


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A regular expression for `fullmatch` of a path as `as_bytes` gives it, from the folder of the
    pattern.
    """
    try:
        return re.compile(_translated(encode_path(pattern).removeprefix("/").split("/")), re.DOTALL)
    except (PatternInvalid, re.error):
        return re.compile(_NOTHING)


def _translated(parts: list[str]) -> str:
    groups: list[list[str]] = [[]]
    for part in parts:
        if part == "**":
            groups.append([])
        else:
            groups[-1].append(_component(part))
    first, *others = groups
    if not others:
        return "/".join(first)
    found = "".join(f"{part}/" for part in first)
    *between, last = others
    for group in between:
        if group:  # at the first folder where it fits
            found += "(?>(?:[^/]+/)*?" + "".join(f"{part}/" for part in group) + ")"
    return found + (r"(?:[^/]+/)*" + "/".join(last) if last else ".+")


def _component(part: str) -> str:
    """What lies between two slashes, or behind the last."""
    pieces: list[list[str]] = [[]]
    for token in _tokens(part):
        if token == _STAR:
            pieces.append([])
        else:
            pieces[-1].append(token)
    first, *others = ["".join(piece) for piece in pieces]
    if not others:
        return first
    *between, last = others
    return first + "".join(f"(?>[^/]*?{piece})" for piece in between if piece) + f"[^/]*{last}(?=/|\\Z)"


def _tokens(part: str) -> Iterator[str]:
    """Regular expressions of one character each, and stars."""
    at = 0
    while at < len(part):
        character = part[at]
        at += 1
        match character:
            case "*":
                yield _STAR
            case "?":
                yield "[^/]"
            case "[":
                token, at = _bracket(part, at)
                yield token
            case "\\":
                if at == len(part):
                    raise PatternInvalid
                yield re.escape(part[at])
                at += 1
            case _:
                yield re.escape(character)


def _bracket(part: str, at: int) -> tuple[str, int]:
    """A set of characters, which begins at `at`, and where it ends."""
    start = at
    negated = part[at : at + 1] in ("!", "^")
    at += negated
    items = ""
    first = at
    while at < len(part) and (part[at] != "]" or at == first):
        if part.startswith("[:", at) and (end := part.find(":]", at)) >= 0:
            if part[at + 2 : end] not in _CLASSES:
                raise PatternInvalid
            items += _CLASSES[part[at + 2 : end]]
            at = end + 2
            continue
        low, at = _literal(part, at)
        if part[at : at + 1] == "-" and part[at + 1 : at + 2] not in ("", "]"):
            high, at = _literal(part, at + 1)
            items += f"{_escaped(low)}-{_escaped(high)}" if low <= high else ""
        else:
            items += _escaped(low)
    if at >= len(part) or at == start:
        raise PatternInvalid
    if not items:
        return ("[^/]" if negated else _NOTHING), at + 1
    return f"(?!/)[{'^' if negated else ''}{items}]", at + 1


def _literal(part: str, at: int) -> tuple[str, int]:
    if part[at] == "\\":
        at += 1
    if at >= len(part):
        raise PatternInvalid
    return part[at], at + 1


def _escaped(character: str) -> str:
    return f"\\x{ord(character):02x}"
