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
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

SPACE = "▁"
"""The character for a space in tokens."""

MAX_REMEMBERED_CHARS = 2_000_000
"""Maximum size of the remembered pieces in characters. Each piece counts 16 more. This is at most
40 MB, and usually ten.
"""

_MAX_FEW_SYMBOLS = 64
_NO_RANK = sys.maxsize
_TOKEN_BITS = 16

_FEW_PIECES = 1_000
"""Number of merged pieces from which a dictionary of all ranks is faster than a search in the file.
Building it takes 9 ms.
"""


class BytePairTokenizer:
    """A tokenizer like Llama 2's, with up to 65,536 tokens.

    `▁` replaces a space, and is also added before each text. Characters that are not tokens are
    encoded as bytes. A special token in a text is that token. Several threads may use it at once.

    `merges`: what `encode_merges` returns. `characters`: the tokens of single characters.
    `first_byte`: the token of the byte 0; those of the other bytes follow. `special`: the special
    tokens. `groups`: groups of characters (`static.GROUPS`).
    """

    def __init__(
        self,
        merges: bytes,
        *,
        characters: Mapping[str, int],
        first_byte: int,
        special: Mapping[str, int],
        groups: Iterable[str],
    ) -> None:
        numbers = array.array("I", merges)
        if sys.byteorder == "big":
            numbers.byteswap()
        count = len(numbers) // 3
        self._pairs, self._ranks, self._merged = numbers[:count], numbers[count : 2 * count], numbers[2 * count :]
        self._find_rank: Callable[[int, int], int] = self._search_rank
        """Return the rank of a pair of tokens (`_join_pair`), or else the other argument."""
        self._merged_pieces = 0
        self._characters = characters
        self._first_byte = first_byte
        self._special = special
        self._split = re.compile(f"({'|'.join(map(re.escape, special))})").split
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

    def _search_rank(self, pair: int, default: int) -> int:
        at = bisect_left(self._pairs, pair)
        return self._ranks[at] if at < len(self._pairs) and self._pairs[at] == pair else default

    def _merge_pairs(self, piece: str) -> bytes:
        """Merge adjacent pairs: always the first in rank, and of equal ones the leftmost."""
        self._merged_pieces += 1
        if self._merged_pieces > _FEW_PIECES and self._find_rank == self._search_rank:
            self._find_rank = dict(zip(self._pairs, self._ranks, strict=True)).get
        tokens: list[int] = []
        for character in piece:
            token = self._characters.get(character)
            tokens += [self._first_byte + byte for byte in character.encode()] if token is None else [token]
        return _pack_ids(self._join_few(tokens) if len(tokens) <= _MAX_FEW_SYMBOLS else self._join_many(tokens))

    def _join_few(self, tokens: list[int]) -> list[int]:
        """Search all pairs for each merge. For a word, this is faster than a queue. Calls of
        `_join_pair` would add an eighth to its time.
        """
        find_rank, merged = self._find_rank, self._merged
        ranks = [find_rank(head << _TOKEN_BITS | tail, _NO_RANK) for head, tail in pairwise(tokens)]
        while ranks and (first := min(ranks)) < _NO_RANK:
            at = ranks.index(first)
            token = tokens[at] = merged[first]
            del tokens[at + 1], ranks[at]
            if at < len(ranks):
                ranks[at] = find_rank(token << _TOKEN_BITS | tokens[at + 1], _NO_RANK)
            if at:
                ranks[at - 1] = find_rank(tokens[at - 1] << _TOKEN_BITS | token, _NO_RANK)
        return tokens

    def _join_many(self, some: list[int]) -> list[int]:
        """Merge pairs by a queue of rank and position. The result is that of `_join_few`.

        `after` and `before` have the positions of the neighbours of each token that is left.
        """
        tokens: list[int | None] = [*some]
        end = len(tokens)
        after = list(range(1, end + 1))
        before = list(range(-1, end - 1))
        queue: list[tuple[int, int]] = []

        def find_rank(at: int) -> int:
            """Return the rank of the token at a position and the next one."""
            head, tail = tokens[at], tokens[after[at]] if after[at] < end else None
            return _NO_RANK if head is None or tail is None else self._find_rank(_join_pair(head, tail), _NO_RANK)

        def add_pair(at: int) -> None:
            if (rank := find_rank(at)) != _NO_RANK:
                heapq.heappush(queue, (rank, at))

        for at in range(end - 1):
            add_pair(at)
        while queue:
            rank, at = heapq.heappop(queue)
            if find_rank(at) != rank:
                continue  # one of the two was merged before
            following = after[at]
            tokens[at] = self._merged[rank]
            tokens[following] = None
            after[at] = following = after[following]
            if following < end:
                before[following] = at
                add_pair(at)
            if before[at] >= 0:
                add_pair(before[at])
        return [token for token in tokens if token is not None]


def encode_merges(merges: Iterable[tuple[int, int, int]]) -> bytes:
    """Return the content of a file of merges. Each is the token of the head, the tail and both; the
    first ones apply first.

    It has the pairs of all merges (`_join_pair`), ascending, then their ranks, then the merged
    tokens by rank, with 32 bits each, little-endian.
    """
    heads, tails, merged = zip(*merges, strict=True)
    pairs = [*map(_join_pair, heads, tails)]
    ranks = sorted(range(len(pairs)), key=pairs.__getitem__)
    numbers = array.array("I", [*sorted(pairs), *ranks, *merged])
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _join_pair(head: int, tail: int) -> int:
    return head << _TOKEN_BITS | tail


def _pack_ids(ids: Iterable[int]) -> bytes:
    return array.array("I", ids).tobytes()
