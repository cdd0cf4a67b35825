"""The tokens of the default model: byte pair encoding, as the library `tokenizers` does it.

That library brings a hub's client, nine packages and 30 MB, to an installation that reads one file.
Here a text is cut where no token reaches across, and the tokens of the pieces, which are mostly
words, are remembered: prose and code repeat them. `test_byte_pairs.py` compares both.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Mapping
from itertools import chain, count, pairwise

import msgspec

SPACE = "▁"
"""What stands for a space in tokens."""

REMEMBERED = 2_000_000
"""Characters, of which every piece counts 16 more: at most 40 MB, most often ten."""

Ids = tuple[int, ...]


class BytePairTokenizer:
    """Of a `tokenizer.json` such as Llama 2's: `▁` stands for a space, and before each text; what
    is no token is written in bytes; a special token that a text holds is that token.

    Several threads may ask.
    """

    def __init__(self, content: bytes) -> None:
        found = msgspec.json.decode(content)
        model = found["model"]
        self._vocabulary: Mapping[str, int] = model["vocab"]
        self._ranks: Mapping[str, int] = dict(zip(model["merges"], count()))
        self._special = {each["content"]: each["id"] for each in found["added_tokens"]}
        self._split = re.compile(f"({'|'.join(map(re.escape, self._special))})").split
        words = "|".join(f"[{''.join(map(re.escape, sorted(each)))}]+" for each in _neighbours(self._ranks))
        self._cut = re.compile(f"{SPACE}*(?:{words})|{SPACE}+|.", re.DOTALL).findall
        self._remembered: dict[str, Ids] = {}
        self._size = 0

    def ids(self, text: str) -> list[int]:
        """The tokens of a text, none added that only begins or ends it."""
        if "<" not in text:
            return self._of_plain(text)
        found: list[int] = []
        for number, part in enumerate(self._split(text)):
            found += [self._special[part]] if number % 2 else self._of_plain(part)
        return found

    def _of_plain(self, text: str) -> list[int]:
        if not text:
            return []
        pieces = self._cut(SPACE + text.replace(" ", SPACE))
        if self._size > REMEMBERED:
            self._remembered, self._size = {}, 0  # another thread may still read the old one
        known = self._remembered
        for piece in set(pieces).difference(known):
            known[piece] = self._merged(piece)
            self._size += len(piece) + 16
        return list(chain.from_iterable(map(known.__getitem__, pieces)))

    def _merged(self, piece: str) -> Ids:
        """The tokens of a piece: of all pairs that may be joined the first in rank, and of equal
        ones the left one, until there is none.

        As in the library, a pair that was found and then changed is joined in its old turn where it
        still makes the same token.
        """
        vocabulary, ranks = self._vocabulary, self._ranks
        symbols: list[str | None] = []
        for character in piece:
            symbols += [character] if character in vocabulary else [f"<0x{each:02X}>" for each in character.encode()]
        end = len(symbols)
        after, before = list(range(1, end + 1)), list(range(-1, end - 1))
        queue = [
            (rank, at, f"{left}{right}")
            for at, (left, right) in enumerate(pairwise(symbols))
            if (rank := ranks.get(f"{left} {right}")) is not None
        ]
        heapq.heapify(queue)
        while queue:
            _, at, token = heapq.heappop(queue)
            left, following = symbols[at], after[at]
            if left is None or following == end:
                continue
            right = symbols[following]
            if f"{left}{right}" != token or f"{left} {right}" not in ranks:
                continue
            symbols[at], symbols[following] = token, None
            after[at] = following = after[following]
            if following < end:
                before[following] = at
                if (rank := ranks.get(f"{token} {symbols[following]}")) is not None:
                    heapq.heappush(queue, (rank, at, f"{token}{symbols[following]}"))
            if (previous := before[at]) >= 0 and (rank := ranks.get(f"{symbols[previous]} {token}")) is not None:
                heapq.heappush(queue, (rank, previous, f"{symbols[previous]}{token}"))
        return tuple(vocabulary[each] for each in symbols if each is not None)


def _neighbours(merges: Iterable[str]) -> list[set[str]]:
    """The characters of all joined tokens in groups: no token holds two of different groups.

    In Llama 2's they are Latin letters, Cyrillic ones, punctuation, and some pairs of signs. Spaces
    stand at the beginning of its tokens alone.
    """
    joints = set()
    for each in merges:
        left, _, right = each.partition(" ")
        joints.add((left[-1], right[0]))
    groups: dict[str, set[str]] = {}
    for left, right in joints:
        if left == SPACE:
            groups.setdefault(right, {right})
        elif (one := groups.setdefault(left, {left})) is not (other := groups.setdefault(right, {right})):
            one |= other
            groups |= dict.fromkeys(other, one)
    groups.pop(SPACE, None)
    return sorted({id(each): each for each in groups.values()}.values(), key=lambda each: (-len(each), min(each)))
