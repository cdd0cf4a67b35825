"""The model `hash`, for tests: words and their letter triples, hashed into 256 dimensions."""

from __future__ import annotations

import math
import re
import struct
import zlib
from collections.abc import Sequence
from functools import lru_cache

from vmrag_link.embedding.base import Model, Vector, make_uniform_vector, require_unicode

HASH_DIMENSIONS = 256
WORD_WEIGHT = 2
NGRAM = 3
_WORDS = r"\w+"


class HashModel(Model):
    """A model for tests. It adds up integers and takes one square root, so the bytes are the same
    everywhere.
    """

    name = "hash"
    dimensions = HASH_DIMENSIONS
    unrelated = 0.35
    window = None
    fingerprint = "hash-words-triples-256 v1"

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        require_unicode(texts)
        return [_embed_text(text) for text in texts]


def _embed_text(text: str) -> Vector:
    sums = [0] * HASH_DIMENSIONS
    for word in set(re.findall(_WORDS, text.casefold())):  # once each, or small frequent words would dominate
        for index, weight in _list_features(word):
            sums[index] += weight
    length = math.sqrt(sum(number * number for number in sums))
    if not length:
        return make_uniform_vector(HASH_DIMENSIONS)
    return struct.pack(f"<{HASH_DIMENSIONS}f", *[number / length for number in sums])


@lru_cache(maxsize=1 << 16)
def _list_features(word: str) -> tuple[tuple[int, int], ...]:
    """Return (dimension, signed weight) of a word and of each of its letter triples. The ends are
    marked.
    """
    marked = f"<{word}>"
    triples = [marked[start : start + NGRAM] for start in range(len(marked) - NGRAM + 1)]
    return (_make_feature(word, WORD_WEIGHT), *[_make_feature(triple, 1) for triple in triples])


def _make_feature(name: str, weight: int) -> tuple[int, int]:
    number = zlib.crc32(name.encode())
    return number % HASH_DIMENSIONS, weight if number >> 31 else -weight
