"""Words by which code is found besides those of its text: parts of identifiers, and names.

`HandlerStack` is also `handler` and `stack`. A piece's place is its file's name, with the folders
nearest to it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence

from vmrag_link.models import IndexedPiece

_NEAR_FOLDERS = 3

# From the beginning of a word only: within words it would take the square of their length.
_MIXED = re.compile(r"(?<![A-Za-z0-9])(?:[A-Z]*[a-z0-9]+[A-Z][A-Za-z0-9]*|[A-Z]{2,}[a-z][A-Za-z0-9]*)")
_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_LONGEST = 100
"""Characters of an identifier that is taken apart; longer ones are data."""


def parts(text: str) -> str:
    """The parts of the identifiers in a text whose parts no character separates."""
    return " ".join(part for word in _MIXED.findall(text) if len(word) <= _LONGEST for part in _parts_of(word))


@functools.lru_cache(maxsize=16384)
def _parts_of(word: str) -> Sequence[str]:
    found = _PART.findall(word)
    return tuple(found) if len(found) > 1 else ()


def words_beside(path: str, piece: IndexedPiece, text: str) -> tuple[str, str]:
    """What else a piece of a file is found by: parts of identifiers, with the words of its place;
    and the names of its symbol and of those that it declares.
    """
    *folders, name = path.split("/")
    *parents, symbol = piece.symbol.split(".")
    declared = [symbol, *(each.rpartition(".")[2] for each, *_ in piece.declared)]
    place, named = " ".join([*folders[-_NEAR_FOLDERS:], stem(name), *parents]), " ".join(declared)
    return " ".join([parts(text), place, parts(f"{place} {named}")]), named


def stem(name: str) -> str:
    """A file's name without its ending: `session` of `session.test.ts` too."""
    return name.lstrip(".").partition(".")[0]


def words_of(names: Iterable[str]) -> set[str]:
    """The words of these names in small letters, those that are written as one taken apart, too."""
    text = " ".join(names).replace("_", " ")
    return set(re.findall(r"[^\W_]+", f"{text} {parts(text)}".lower()))
