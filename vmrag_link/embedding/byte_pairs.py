"""Byte pair encoding, like in the library tokenizers, for the default model.

That library would add a client of a hub, nine packages and 30 MB to an installation that reads one
file. Here a text is split where no token can span the boundary. The tokens of the pieces (mostly
words) are remembered, because prose and code repeat them. `test_byte_pairs.py` compares both
implementations.
"""

from __future__ import annotations

import array
import heapq
import re
import sys
from collections.abc import Iterable, Mapping
from itertools import count, pairwise

import msgspec

SPACE = "▁"
"""The character for a space in tokens."""

MAX_REMEMBERED_CHARS = 2_000_000
"""Maximum size of the remembered pieces in characters. Each piece counts 16 more. This is at most
40 MB, and usually ten.
"""

_MAX_FEW_SYMBOLS = 64
_NO_RANK = sys.maxsize


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
        """Packed tokens by piece."""
        self._size = 0
        """The size of `_known_pieces` in characters."""

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
        if self._size > MAX_REMEMBERED_CHARS:
            self._known_pieces = {}  # another thread may still read the old dictionary
            self._size = 0
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
        merged = self._join_few(symbols) if len(symbols) <= _MAX_FEW_SYMBOLS else self._join_many(symbols)
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
        """Merge pairs by a queue of rank, position and token. The result is that of `_join_few`.

        `after` and `before` have the positions of the neighbours of each symbol that is left.
        """
        symbols: list[str | None] = [*some]
        end = len(symbols)
        after = list(range(1, end + 1))
        before = list(range(-1, end - 1))
        queue: list[tuple[int, int, str]] = []

        def add_pair(at: int, head: str | None, tail: str | None) -> None:
            rank = self._ranks.get(f"{head} {tail}")
            if rank is not None:
                heapq.heappush(queue, (rank, at, f"{head}{tail}"))

        for at, pair in enumerate(pairwise(some)):
            add_pair(at, *pair)
        while queue:
            _, at, token = heapq.heappop(queue)
            head = symbols[at]
            following = after[at]
            if head is None or following == end:
                continue
            tail = symbols[following]
            if f"{head}{tail}" != token or f"{head} {tail}" not in self._ranks:
                continue
            symbols[at] = token
            symbols[following] = None
            after[at] = following = after[following]
            if following < end:
                before[following] = at
                add_pair(at, token, symbols[following])
            previous = before[at]
            if previous >= 0:
                add_pair(previous, symbols[previous], token)
        return [symbol for symbol in symbols if symbol is not None]


def _pack_ids(ids: Iterable[int]) -> bytes:
    return array.array("I", ids).tobytes()
