"""The default model, a static table of token vectors, with equal bytes on every machine.

The table comes in this package, made from WordLlama's weights (MIT) by `bench/default_model.py`: a
row of whole numbers for each token, and the row's weight, a whole number as well. A text's vector
is the sum of its tokens' rows by their weights (no special tokens) at unit length. No partial sum
reaches 2^53 before 10^11 tokens, so the sum in float64 is exact in any order. Everything after it
is one correctly rounded operation per number. No kernel, thread count or batch can change a bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from vmrag_link.embedding.base import Model, Vector, extra_missing, featureless, require_unicode, verified_map
from vmrag_link.embedding.byte_pairs import BytePairTokenizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FOLDER = Path(__file__).parent / "default_model"
TABLE = "vectors.i8"
"""A byte for each token, its weight (1 to 255); then a row of int8 for each token."""
TABLE_SHA256 = "4d792b4f8d7d48c6bfd226335046245e40502d474c01712a5ebee58beb398670"
TOKENIZER = "tokenizer.json"
TOKENIZER_SHA256 = "6c6be3a99dcbed7e358588a409f4c3e12b8618e278e4bbc27f6aff8f4e6d35a6"

_AT_ONCE = 10_000
"""Tokens whose rows are in memory together, each with two kilobytes: a text may have millions."""


class StaticModel(Model):
    """See the module; `folder` replaces the package's own, for tests."""

    name = "default"
    dimensions = 256
    window = None
    fingerprint = f"wordllama-l2-supercat-256-i8 {TABLE_SHA256[:16]} {TOKENIZER_SHA256[:16]} sum unit v2"

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        require_unicode(texts)
        return [self._vector(self._tokenizer.ids(text)) for text in texts]

    def _vector(self, tokens: list[int]) -> Vector:
        weights, rows = self._table
        total = weights[tokens[:_AT_ONCE]] @ rows[tokens[:_AT_ONCE]].astype("f8")
        for start in range(_AT_ONCE, len(tokens), _AT_ONCE):
            some = tokens[start : start + _AT_ONCE]
            total += weights[some] @ rows[some].astype("f8")
        length = math.sqrt(math.fsum((total * total).tolist()))
        return (total / length).astype("<f4").tobytes() if length else featureless(self.dimensions)

    @cached_property
    def _tokenizer(self) -> BytePairTokenizer:
        return BytePairTokenizer(verified_map(self._folder / TOKENIZER, TOKENIZER_SHA256, extra="index")[:])

    @cached_property
    def _table(self) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
        """The weights of all tokens, and their rows (tokens, dimensions), memory-mapped."""
        try:
            import numpy as np
        except ModuleNotFoundError as error:
            raise extra_missing("numpy", extra="index") from error
        content = verified_map(self._folder / TABLE, TABLE_SHA256, extra="index")
        tokens = len(content) // (1 + self.dimensions)
        weights = np.frombuffer(content, dtype="u1", count=tokens).astype("f8")
        return weights, np.frombuffer(content, dtype="i1", offset=tokens).reshape(tokens, self.dimensions)
