"""The model `hash`, for tests: words and their letter triples hashed into 256 dimensions, in
Python.
"""

from __future__ import annotations

import math
import re
import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache

from vmrag_link.embedding.base import Model, Vector, featureless, require_unicode

DIMENSIONS = 256
WORD_WEIGHT = 2
NGRAM = 3
_WORDS = r"\w+"


class HashModel(Model):
    """Sums whole numbers and takes one square root, so the bytes are the same everywhere."""

    name = "hash"
    dimensions = DIMENSIONS
    window = None
    fingerprint = "hash-words-triples-256 v1"

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        require_unicode(texts)
        return [_vector(text) for text in texts]


def _vector(text: str) -> Vector:
    sums = [0] * DIMENSIONS
    for word in set(re.findall(_WORDS, text.casefold())):  # once each: frequent little words would drown the rest
        for index, weight in _features(word):
            sums[index] += weight
    length = math.sqrt(sum(number * number for number in sums))
    return struct.pack(f"<{DIMENSIONS}f", *[number / length for number in sums]) if length else featureless(DIMENSIONS)


@lru_cache(maxsize=1 << 16)
def _features(word: str) -> tuple[tuple[int, int], ...]:
    """(dimension, signed weight) of the word and of each of its letter triples, its ends marked."""
    marked = f"<{word}>"
    triples = [marked[start : start + NGRAM] for start in range(len(marked) - NGRAM + 1)]
    return (_feature(word, WORD_WEIGHT), *[_feature(triple, 1) for triple in triples])


def _feature(name: str, weight: int) -> tuple[int, int]:
    number = zlib.crc32(name.encode())
    return number % DIMENSIONS, weight if number >> 31 else -weight
