"""Recognize passages that are data, such as icon tables, base64 and lists of numbers.

They rank lower than text. Only the passage is read, at each query.
"""

from __future__ import annotations

from vmrag_link.index import keywords

FULL_FACTOR = 1000
DATA_FACTOR = 400
"""The factor of data in thousandths."""

MIN_PASSAGE_CHARS = 40
"""Minimum number of characters of a passage that is measured."""

MIN_LETTERS = 400
"""Minimum number of letters in text, in thousandths of its characters."""

MAX_WORD_CHARS = 80
"""Maximum length of ASCII words in text. A longer word is encoded data."""

MAX_MEAN_CHARS = 20
"""Maximum mean length of words in ASCII text. A passage with longer words is minified."""


def compute_factor(text: str) -> int:
    """Return the factor of a passage's score in thousandths."""
    parts = [part for part in text.split() if any(map(str.isalnum, part))]  # without lines such as `-----`
    size = sum(map(len, parts))
    if size < MIN_PASSAGE_CHARS:
        return FULL_FACTOR
    if FULL_FACTOR * sum(map(str.isalpha, text)) < MIN_LETTERS * size:
        return DATA_FACTOR
    encoded_chars = sum(len(part) for part in parts if len(part) > MAX_WORD_CHARS and part.isascii())
    is_minified = text.isascii() and size > MAX_MEAN_CHARS * len(parts)
    return DATA_FACTOR if is_minified or 2 * encoded_chars > size else FULL_FACTOR


def names_file(question: str, doc_id: str) -> bool:
    """Return whether a question names the file of a passage."""
    name = doc_id.rpartition("/")[2].lower()
    if name in question.lower():
        return True
    words = frozenset(keywords.split_names([question]))
    name_words = keywords.split_names([keywords.strip_endings(name)])
    return bool(name_words) and name_words <= words
