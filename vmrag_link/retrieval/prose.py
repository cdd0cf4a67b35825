"""Recognize passages that are data, such as icon tables, base64 and lists of numbers.

They rank lower than text. Only the passage is read, at each query.
"""

from __future__ import annotations

from vmrag_link.index import keywords

FULL_FACTOR = 1000
DATA_FACTOR = 400
"""The factor of data in thousandths."""

FEWEST, LETTERS = 40, 400
"""Minimum number of characters of a measured passage, and minimum thousandths of letters in text.
"""

LONGEST, MEAN = 80, 20
"""Maximum length and maximum mean length of words of ASCII characters in text.

A longer word is encoded data. A passage with a greater mean is minified.
"""


def compute_factor(text: str) -> int:
    """Return the factor of a passage's score in thousandths."""
    parts = [part for part in text.split() if any(map(str.isalnum, part))]  # without rules below titles and in tables
    size = sum(map(len, parts))
    if size < FEWEST:
        return FULL_FACTOR
    if FULL_FACTOR * sum(map(str.isalpha, text)) < LETTERS * size:
        return DATA_FACTOR
    encoded = sum(len(part) for part in parts if len(part) > LONGEST and part.isascii())
    minified = text.isascii() and size > MEAN * len(parts)
    return DATA_FACTOR if minified or 2 * encoded > size else FULL_FACTOR


def names_file(question: str, doc_id: str) -> bool:
    """Return whether a question names the file of a passage."""
    name = doc_id.rpartition("/")[2].lower()
    if name in question.lower():
        return True
    words = frozenset(keywords.split_names([question]))
    name_words = keywords.split_names([keywords.strip_endings(name)])
    return bool(name_words) and name_words <= words
