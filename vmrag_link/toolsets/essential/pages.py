"""Pages of text with as many lines as a client shows to its model.

Clients cut long answers: Codex after 10,000 tokens, Claude Code after about 50,000 characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_PAGE_TOKENS = 8_000
"""Maximum number of tokens of a page, as counted by o200k."""

_MAX_ESTIMATE_TOKENS = 7_500
"""Maximum estimate for a page. It keeps a page within `MAX_PAGE_TOKENS`, because estimates can be
slightly low.
"""

_PIECES = re.compile(r"[A-Za-z\d+/]{24,}|[A-Z]*[a-z]+|[A-Z]+|[ ]?\d+|\s+|[^\w\s]+|[^\W\da-zA-Z]+")
"""Encoded data, words, numbers and signs. A tokenizer splits words where small letters end."""

_MIN_ENCODED_CHARS = 24
"""Minimum length of letters and digits that are treated as encoded data, such as a hash."""

_FIRST_IDEOGRAPH = 0x2E80
"""First code point from which three characters are about two tokens."""


def estimate_tokens(text: str) -> int:
    """Return the estimated number of o200k tokens of a text: mostly 0.95 to 1.3 times the real
    number.
    """
    return round(sum(map(_piece_tokens, _PIECES.findall(text))))


def _piece_tokens(piece: str) -> float:
    """Return the estimated number of tokens of a match of `_PIECES`."""
    size = len(piece)
    if not piece.isascii():
        if not piece[0].isalnum():
            return size * 1.4
        return size * 0.75 if ord(piece[0]) >= _FIRST_IDEOGRAPH else -(-size // 3)
    if size >= _MIN_ENCODED_CHARS and piece[0].isalnum():
        return size * 0.7
    if piece.isalpha():
        return 1 + (size - 1) // (9 if piece.islower() or piece[1:].islower() else 4)
    if piece.isspace():
        return 0 if piece == " " else 1
    return -(-size // 3) + piece.startswith(" ")


def fit_lines(lines: Sequence[str], max_characters: int) -> int:
    """Return how many of these lines fit on a page; 0 if the first line alone is too long."""
    characters = estimate = 0
    for number, line in enumerate(lines):
        characters += len(line) + 1
        estimate += estimate_tokens(line) + 1
        if characters > max_characters or estimate > _MAX_ESTIMATE_TOKENS:
            return number
    return len(lines)


def fit_characters(line: str, max_characters: int) -> str:
    """Return the beginning of a line that fits on a page."""
    beginning = line[:max_characters]
    while (estimate := estimate_tokens(beginning)) > _MAX_ESTIMATE_TOKENS:
        beginning = beginning[: len(beginning) * _MAX_ESTIMATE_TOKENS // estimate]
    return beginning
