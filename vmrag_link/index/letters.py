"""Find the words of texts that are not ASCII, so that each word has one spelling.

Composed and decomposed letters, full-width forms and ligatures become the same lower-case letters
without accents. Scripts without spaces (Chinese, Japanese, Thai) and Korean, whose particles follow
a word without a space, are cut into pairs of adjacent letters. So any part of a word finds the
text. A letter without a neighbour is a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

LONGEST = 1_000
"""Maximum number of letters of a word. Further letters are ignored."""

# Accents of Latin, Greek and Cyrillic letters, points of Hebrew and Arabic ones, the character that
# widens an Arabic word, and invisible characters within words.
_MARKS = re.compile(
    "[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670"
    "\u00ad\u200c\u200d\u2060\ufe00-\ufe0f\ufeff]+"
)
_STROKES = str.maketrans("ıđłø", "idlo")
"""Letters whose marks Unicode normalization does not remove."""

_MANY_MARKS = re.compile(r"(?<=[^\w\x00-\x7f]{30})[^\w\x00-\x7f]")
"""A mark after 30 other marks, which does not belong to a word. Sorting n marks takes n² steps."""

# Thai, Lao, Burmese, Khmer, Han characters, kana, bopomofo and hangul.
_UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e80-\u0ecf\u1000-\u1049\u1050-\u109f\u1100-\u11ff\u1780-\u17d3\u3005-\u3007"
    "\u3041-\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
# Vowel signs of Indic scripts are neither letters nor digits, but belong to words.
_INDIC = "\u0900-\u0963\u0966-\u096f\u0971-\u0df3"
_WORDS = re.compile(f"(?P<unspaced>[{_UNSPACED}]+)|(?:[^\\W_{_UNSPACED}]|[{_INDIC}])+")


def fold(text: str) -> str:
    """Return the same letters for all spellings of a text."""
    return unicodedata.normalize("NFKC", _decompose_letters(_limit_marks(text)))


def _limit_marks(text: str) -> str:
    """Return a text of the same length with spaces in place of excess marks."""
    return _MANY_MARKS.sub(" ", text)


def _decompose_letters(text: str) -> str:
    return _MARKS.sub("", unicodedata.normalize("NFKD", text).casefold()).translate(_STROKES)


def split_words(text: str) -> list[str]:
    """Return the words of a text, folded."""
    folded = fold(text)
    return [folded[start:end] for start, end in _find_spans(folded)]


def _find_spans(folded: str) -> Iterator[tuple[int, int]]:
    for match in _WORDS.finditer(folded):
        start, end = match.span()
        if match["unspaced"] and end - start > 1:
            yield from ((at, at + 2) for at in range(start, end - 1))
        else:
            yield start, min(end, start + LONGEST)


def locate_words(text: str) -> list[tuple[int, int, str]]:
    """Return the words of `split_words`, each with its first character in the text and its end."""
    folded, places = fold(text), _find_origins(text)
    return [
        (places[start], max(places[end], places[end - 1] + 1), folded[start:end]) for start, end in _find_spans(folded)
    ]


def _find_origins(text: str) -> list[int]:
    """Return the offset in the text for each character of the folded text, and the length of the
    text.
    """
    decomposed, origins = [], []
    for at, character in enumerate(_limit_marks(text)):
        letters = _decompose_letters(character)
        decomposed.append(letters)
        origins += [at] * len(letters)
    places, begin = [], 0
    for character in unicodedata.normalize("NFKC", "".join(decomposed)):
        places.append(origins[min(begin, len(origins) - 1)])
        begin += len(unicodedata.normalize("NFKD", character))
    return [*places, len(text)]


def list_written(text: str) -> list[str]:
    """Return the words of a text in lower-case composed letters, with accents."""
    words = []
    for start, end, word in locate_words(text):
        composed = unicodedata.normalize("NFKC", _limit_marks(text[start:end]).lower())
        words.append(composed if split_words(composed) == [word] else word)
    return words
