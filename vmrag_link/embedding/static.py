"""The default model, a static table of token vectors (WordLlama, MIT), with equal bytes on every
machine.

The package `wordllama` is used as two files and never imported. A text's vector is the sum of its
tokens' rows (no special tokens) at unit length: the direction of WordLlama's mean. The table is
float16, so the sum in float64 is exact in any order. Everything after it is one correctly rounded
operation per number. No kernel, thread count or batch can change a bit.
"""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmrag_link.embedding.base import (
    Model,
    Vector,
    extra_missing,
    featureless,
    package_folder,
    require_unicode,
    verified_map,
)
from vmrag_link.errors import EmbeddingMismatch

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WEIGHTS = "weights/l2_supercat_256.safetensors"
WEIGHTS_SHA256 = "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5"
TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
TOKENIZER_SHA256 = "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68"
TENSOR = "embedding.weight"
BATCH = 256


class StaticModel(Model):
    """See the module; `folder` replaces the installed package's, for tests."""

    name = "default"
    dimensions = 256
    window = None
    fingerprint = f"wordllama-l2-supercat-256 {WEIGHTS_SHA256[:16]} {TOKENIZER_SHA256[:16]} mean unit v1"

    def __init__(self, folder: Path | None = None) -> None:
        self._given = folder

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        require_unicode(texts)
        vectors: list[Vector] = []
        for start in range(0, len(texts), BATCH):
            encodings = self._tokenizer.encode_batch_fast(list(texts[start : start + BATCH]), add_special_tokens=False)
            vectors += [self._vector(encoding.ids) for encoding in encodings]
        return vectors

    def _vector(self, tokens: list[int]) -> Vector:
        total = self._table[tokens].astype("f8").sum(axis=0)
        length = math.sqrt(math.fsum((total * total).tolist()))
        return (total / length).astype("<f4").tobytes() if length else featureless(self.dimensions)

    @cached_property
    def _folder(self) -> Path:
        return self._given or package_folder("wordllama", extra="index")

    @cached_property
    def _tokenizer(self) -> Any:
        try:
            from tokenizers import Tokenizer
        except ModuleNotFoundError as error:
            raise extra_missing("tokenizers", extra="index") from error
        tokenizer = Tokenizer.from_buffer(verified_map(self._folder / TOKENIZER, TOKENIZER_SHA256, extra="index")[:])
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    @cached_property
    def _table(self) -> NDArray[np.float16]:
        """The vectors of all tokens: (tokens, dimensions), memory-mapped."""
        try:
            import numpy as np
        except ModuleNotFoundError as error:
            raise extra_missing("numpy", extra="index") from error
        path = self._folder / WEIGHTS
        content = verified_map(path, WEIGHTS_SHA256, extra="index")
        tensor, start = _tensor(content)
        if tensor["dtype"] != "F16" or tensor["shape"][1] != self.dimensions:
            raise EmbeddingMismatch(f"{path} holds {tensor}, not float16 rows of {self.dimensions}.", path=str(path))
        rows, columns = tensor["shape"]
        return np.frombuffer(content, dtype="<f2", count=rows * columns, offset=start).reshape(rows, columns)


def _tensor(safetensors: mmap.mmap) -> tuple[dict[str, Any], int]:
    """The table's description and the offset of its first byte.

    The format: length of the header (8 bytes, little-endian), header (JSON), data; offsets count
    from the data's start.
    """
    length = int.from_bytes(safetensors[:8], "little")
    tensor: dict[str, Any] = json.loads(safetensors[8 : 8 + length])[TENSOR]
    return tensor, 8 + length + int(tensor["data_offsets"][0])
