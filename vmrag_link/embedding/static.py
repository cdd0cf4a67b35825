"""The default model: a static table of token vectors.

The table is in this package. `bench/default_model.py` built it from WordLlama's weights (MIT): a
row of integers for each token, and the weight of the row, which is also an integer. The vector of a
text is the sum of its tokens' weighted rows (without special tokens) at unit length. No partial sum
reaches 2^53 before 10^11 tokens, so the sum in float64 is exact in any order. After it, there is
one correctly rounded operation per number. So the default model has equal bytes on every machine:
kernels, threads and batches cannot change a bit. The tokens come from `byte_pairs`.
"""

from __future__ import annotations

import math
import mmap
import struct
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vmrag_link.embedding.base import (
    Model,
    Vector,
    make_missing_extra,
    make_uniform_vector,
    map_verified_file,
    require_unicode,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vmrag_link.embedding.byte_pairs import BytePairTokenizer


FOLDER = Path(__file__).parent / "default_model"
TABLE = "vectors.i8"
"""A byte for each token with its weight (1 to 255), followed by an int8 row for each token."""
TABLE_SHA256 = "4d792b4f8d7d48c6bfd226335046245e40502d474c01712a5ebee58beb398670"
TOKENIZER_SHA256 = "6c6be3a99dcbed7e358588a409f4c3e12b8618e278e4bbc27f6aff8f4e6d35a6"
"""The tokenizer's description, from which the following files are made. It is not in this package.
"""
MERGES = "merges.u32"
"""The pairs of tokens that are merged (`byte_pairs.encode_merges`)."""
MERGES_SHA256 = "a02014b00c0c64d387789825a9ea4d1f72b26a0f48f15a753c1654d9a5eccad6"
CHARACTERS = "characters.json"
"""The tokens of single characters."""
CHARACTERS_SHA256 = "cdf6cc2114314143592e7643d07e1c6c5ad8e39dc1232941eecb71a8fd930fe2"
SPECIAL = {"<unk>": 0, "<s>": 1, "</s>": 2}
"""Tokens that a text can also contain as such."""
FIRST_BYTE = 3
"""The token of the byte 0. Those of the other bytes follow."""
GROUPS = "groups.json"
"""The characters of all merged tokens, as one string for each group. No token has characters of two
groups.

In Llama 2's tokenizer, the groups are Latin letters, Cyrillic letters, punctuation, and some pairs
of symbols. Spaces occur only at the beginning of its tokens. The groups could be computed from the
tokenizer, but this takes twice as long as everything else for one text.
"""
GROUPS_SHA256 = "fe055957a1e6456188e22db027f0c32a0b6b338d80020e0f3b875620e50cfd54"

MAX_PLAIN_TOKENS = 4000
"""Maximum number of tokens of all texts that are summed without numpy, if numpy is not loaded.
Importing numpy takes as long as summing so many.
"""

TOKEN_BYTES = 4
"""Bytes of a token in the results of `BytePairTokenizer.encode_packed`."""

_EXACT_TOKENS = 512
"""Number of tokens whose rows are summed in float32. The sums stay below 2^24, so they are exact.
"""


class StaticModel(Model):
    """The default model (see the module). `folder`: another folder of model files, for tests."""

    name = "default"
    dimensions = 256
    english = True
    unrelated = 0.3
    window = None
    fingerprint = f"wordllama-l2-supercat-256-i8 {TABLE_SHA256[:16]} {TOKENIZER_SHA256[:16]} sum unit v2"

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        require_unicode(texts)
        tokens = [self._tokenizer.encode_packed(text) for text in texts]
        if "numpy" not in sys.modules and sum(map(len, tokens)) <= MAX_PLAIN_TOKENS * TOKEN_BYTES:
            return [self._unit_vector(self._sum_rows(token)) for token in tokens]
        return [self._embed_tokens(token) for token in tokens]

    def _unit_vector(self, total: list[float]) -> Vector:
        length = math.sqrt(math.fsum(component * component for component in total))
        if not length:
            return make_uniform_vector(self.dimensions)
        return struct.pack(f"<{self.dimensions}f", *[component / length for component in total])

    def _embed_tokens(self, tokens: bytes) -> Vector:
        """Return the same vector as `_unit_vector` of `_sum_rows`, to the bit."""
        weights, rows = self._table
        from vmrag_link.numpy_loading import np  # after `_table`, which reports a missing package

        numbers = np.frombuffer(tokens, "I")
        total = np.zeros(self.dimensions)
        for start in range(0, len(numbers), _EXACT_TOKENS):
            block = numbers[start : start + _EXACT_TOKENS]
            total += weights.take(block) @ rows.take(block, axis=0).astype("f4")
        length = math.sqrt(math.fsum((total * total).tolist()))
        return (total / length).astype("<f4").tobytes() if length else make_uniform_vector(self.dimensions)

    def _sum_rows(self, tokens: bytes) -> list[float]:
        """Return the sum of the weighted rows of some tokens."""
        rows = memoryview(self._content).cast("b")
        first = len(self._content) // (1 + self.dimensions)
        total = [0] * self.dimensions
        for token, times in Counter(memoryview(tokens).cast("I")).items():
            start = first + token * self.dimensions
            weight = self._content[token] * times
            total = [
                component + weight * row
                for component, row in zip(total, rows[start : start + self.dimensions], strict=True)
            ]
        return list(map(float, total))

    @cached_property
    def _tokenizer(self) -> BytePairTokenizer:
        from vmrag_link.embedding.byte_pairs import BytePairTokenizer  # only embedding needs it

        def read_file(name: str, sha256: str) -> bytes:
            return map_verified_file(self._folder / name, sha256, extra="index")[:]

        return BytePairTokenizer(
            read_file(MERGES, MERGES_SHA256),
            characters=msgspec.json.decode(read_file(CHARACTERS, CHARACTERS_SHA256)),
            first_byte=FIRST_BYTE,
            special=SPECIAL,
            groups=msgspec.json.decode(read_file(GROUPS, GROUPS_SHA256)),
        )

    @cached_property
    def _content(self) -> mmap.mmap:
        return map_verified_file(self._folder / TABLE, TABLE_SHA256, extra="index")

    @cached_property
    def _table(self) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
        """Return the weights of all tokens, and their rows (tokens, dimensions), memory-mapped."""
        try:
            from vmrag_link.numpy_loading import np
        except ModuleNotFoundError as error:
            raise make_missing_extra("numpy", extra="index") from error
        tokens = len(self._content) // (1 + self.dimensions)
        weights = np.frombuffer(self._content, dtype="u1", count=tokens).astype("f4")
        return weights, np.frombuffer(self._content, dtype="i1", offset=tokens).reshape(tokens, self.dimensions)
