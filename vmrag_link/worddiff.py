"""Exact differences between two texts, word by word, which are also fast on megabytes.

Lines are compared first, then words within changed lines. Both are aligned by rare elements that
are in both texts in the same order. difflib, which is quadratic, only compares the small parts
between such anchors. The work for one difference is limited. When it is used up, the part between
two anchors becomes one deletion and one insertion.

The first two functions also serve merges by line. A change of their results must change
`merging.text.VERSION`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice, takewhile
from operator import eq
from typing import Literal

import msgspec


def count_common_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return the number of equal elements at the beginning, and at the end of the rest."""
    head = sum(takewhile(bool, map(eq, old, new)))
    rest = min(len(old), len(new)) - head
    tail = sum(takewhile(bool, islice(map(eq, reversed(old), reversed(new)), rest)))
    return head, tail


def find_longest_chain(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest chain of pairs, sorted by their first numbers, whose second numbers rise
    (patience sorting).

    Of several longest chains, it always returns the same one.
    """
    ends: list[int] = []  # the lowest end of a chain of each length …
    holders: list[int] = []  # … and the pair it belongs to
    before: list[int] = []
    for number, (_, value) in enumerate(pairs):
        length = bisect_left(ends, value)
        before.append(holders[length - 1] if length else -1)
        ends[length : length + 1] = [value]
        holders[length : length + 1] = [number]
    chain = []
    at = holders[-1] if holders else -1
    while at >= 0:
        chain.append(pairs[at])
        at = before[at]
    return chain[::-1]


Op = Literal["equal", "delete", "insert", "omitted"]


class Piece(msgspec.Struct, frozen=True):
    """A part of a text.

    Only `cut_equal_text` makes `omitted` pieces. Their text is the mark for the omitted text.
    """

    op: Op
    text: str


Run = tuple[int, int, int]
"""Equal elements: their start in the old and in the new sequence, and their number."""

CONTEXT_WORDS = 12
_OMITTED = "…"

_MAX_SMALL_PAIRS = 128 * 128
"""Number of old elements times number of new elements, up to which difflib compares them."""
_MAX_LEVELS = 12
MAX_WORK = 20_000_000
"""Number of elements and pairs of elements that one difference can examine.

Ordinary texts and code need a small part of it. A line with megabytes of numbers took minutes
without this limit.
"""
_ORDERED = 1 / 4
"""Share of the anchors that must be in the same order. Chance alone gives 2 / √n: unrelated texts
are not aligned.
"""
_ALIKE = 1 / 4
"""Share of the shorter text that must be equal. If less is equal, a few common words only hide that
all is new.
"""

# Scripts without blanks between words are compared by character.
_WORD = r"[^\W\u3040-\u30ff\u3400-\u9fff]+|[\u3040-\u30ff\u3400-\u9fff]|\s+|[^\w\s]"


_ANCHOR_COST = 50
"""Cost of an anchor, and of the search between it and the next one."""


class _Allowance:
    """The remaining work of one difference."""

    def __init__(self) -> None:
        self._left = MAX_WORK

    def covers(self, cost: int) -> bool:
        """Use up the cost if the remaining work covers it, and return whether it did."""
        if cost > self._left:
            return False
        self._left -= cost
        return True


def diff_words(old: str, new: str) -> tuple[Piece, ...]:
    """Return pieces whose equal and deleted texts make up `old`, and whose equal and inserted texts
    make up `new`.

    No piece is empty, no two neighbours have the same op, and a deletion is before the insertion
    that replaces it.
    """
    pieces: list[Piece] = []
    allowance = _Allowance()
    old_lines, new_lines = old.splitlines(keepends=True), new.splitlines(keepends=True)
    for equal, before, after in _split_sections(old_lines, new_lines, _find_runs(old_lines, new_lines, allowance)):
        pieces += [Piece("equal", before)] if equal else _by_words(before, after, allowance)
    return tuple(_merge_pieces(pieces))


def count_words(pieces: Iterable[Piece], op: Op) -> int:
    """Return the number of words, separated by blanks, in the pieces of a kind."""
    return sum(len(piece.text.split()) for piece in pieces if piece.op == op)


def cut_equal_text(pieces: Sequence[Piece], *, context: int = CONTEXT_WORDS) -> tuple[Piece, ...]:
    """Return the pieces with `context` words of equal text around each change.

    An `omitted` piece marks omitted text.
    """
    shown: list[Piece] = []
    for number, piece in enumerate(pieces):
        first, last = number == 0, number == len(pieces) - 1
        shown += (
            _cut_text(piece.text, 0 if first else context, 0 if last else context) if piece.op == "equal" else [piece]
        )
    return tuple(shown)


def render_pieces(pieces: Iterable[Piece], *, style: Callable[[Op, str], str] = lambda _, text: text) -> str:
    """Join the pieces to one text, with `[-deleted-]{+inserted+}` like git.

    `style` can colour the pieces that are not equal.
    """
    return "".join(piece.text if piece.op == "equal" else style(piece.op, _format_piece(piece)) for piece in pieces)


def _format_piece(piece: Piece) -> str:
    match piece.op:
        case "delete":
            return f"[-{piece.text}-]"
        case "insert":
            return f"{{+{piece.text}+}}"
    return piece.text


def _cut_text(text: str, head: int, tail: int) -> list[Piece]:
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    if len(spans) <= head + tail:
        return [Piece("equal", text)]
    start = spans[head - 1][1] if head else 0
    end = spans[-tail][0] if tail else len(text)
    around = "\n" if "\n" in text[start:end] else " "
    mark = Piece("omitted", (around if head else "") + _OMITTED + (around if tail else ""))
    parts = [Piece("equal", text[:start]), mark, Piece("equal", text[end:])]
    return [part for part in parts if part.text]


def _by_words(old: str, new: str, allowance: _Allowance) -> list[Piece]:
    if not old or not new:
        return [Piece("delete", old), Piece("insert", new)]
    old_words, new_words = re.findall(_WORD, old), re.findall(_WORD, new)
    sections = list(_split_sections(old_words, new_words, _find_runs(old_words, new_words, allowance)))
    if sum(len(before) for equal, before, _ in sections if equal) < _ALIKE * min(len(old), len(new)):
        sections = list(_split_sections(old_words, new_words, _find_edges(old_words, new_words)))
    pieces: list[Piece] = []
    for equal, before, after in sections:
        pieces += [Piece("equal", before)] if equal else [Piece("delete", before), Piece("insert", after)]
    return pieces


def _merge_pieces(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield the pieces without empty ones. Between two equal pieces are at most one deletion and
    then one insertion.
    """
    for equal, stretch in groupby((piece for piece in pieces if piece.text), key=lambda piece: piece.op == "equal"):
        parts = list(stretch)
        ops: tuple[Op, ...] = ("equal",) if equal else ("delete", "insert")
        for op in ops:
            if text := "".join(part.text for part in parts if part.op == op):
                yield Piece(op, text)


def _split_sections(old: Sequence[str], new: Sequence[str], runs: Iterable[Run]) -> Iterator[tuple[bool, str, str]]:
    """Yield the runs and the parts between them: whether they are equal, the old text, the new
    text.
    """
    at_old = at_new = 0
    for start_old, start_new, length in [*runs, (len(old), len(new), 0)]:
        yield False, "".join(old[at_old:start_old]), "".join(new[at_new:start_new])
        at_old, at_new = start_old + length, start_new + length
        text = "".join(old[start_old:at_old])
        yield True, text, text


def _find_edges(old: Sequence[str], new: Sequence[str]) -> list[Run]:
    """Return the runs of equal elements at the beginning and at the end. Both can be empty."""
    head, tail = count_common_ends(old, new)
    return [(0, 0, head), (len(old) - tail, len(new) - tail, tail)]


def _find_runs(old: Sequence[str], new: Sequence[str], allowance: _Allowance, levels: int = _MAX_LEVELS) -> list[Run]:
    """Return the equal runs in the order of both sequences."""
    (_, _, head), last = _find_edges(old, new)
    middle = _find_inner_runs(old[head : last[0]], new[head : last[1]], allowance, levels)
    return [(0, 0, head), *((head + i, head + j, length) for i, j, length in middle), last]


def _find_inner_runs(old: Sequence[str], new: Sequence[str], allowance: _Allowance, levels: int) -> Iterator[Run]:
    small = len(old) * len(new) <= _MAX_SMALL_PAIRS
    if not old or not new or not allowance.covers(len(old) * len(new) if small else len(old) + len(new)):
        return
    if small:
        import difflib  # 2 ms, and most histories show no words

        # Blanks are junk: they belong to a run of words, but do not form one.
        matcher = difflib.SequenceMatcher(str.isspace, old, new, autojunk=False)
        yield from ((block.a, block.b, block.size) for block in matcher.get_matching_blocks())
        return
    anchors = _find_anchors(old, new, allowance) if levels else []
    if not anchors:
        return
    at_old = at_new = 0
    for anchor_old, anchor_new in [*anchors, (len(old), len(new))]:
        between = _find_runs(old[at_old:anchor_old], new[at_new:anchor_new], allowance, levels - 1)
        yield from ((at_old + i, at_new + j, length) for i, j, length in between)
        if anchor_old < len(old):
            yield anchor_old, anchor_new, 1
        at_old, at_new = anchor_old + 1, anchor_new + 1


def _find_anchors(old: Sequence[str], new: Sequence[str], allowance: _Allowance) -> list[tuple[int, int]]:
    """Return positions of the rarest elements that both sequences have equally often and in the
    same order.

    The result is empty if there are too many, like the commas in a line of a million numbers.
    """
    places_old, places_new = _list_positions(old), _list_positions(new)
    common = {
        element: len(positions)
        for element, positions in places_old.items()
        if len(places_new.get(element, ())) == len(positions)
    }
    rarest = min(common.values(), default=0)
    if not allowance.covers(_ANCHOR_COST * sum(number for number in common.values() if number == rarest)):
        return []
    pairs = sorted(
        pair
        for element, number in common.items()
        if number == rarest
        for pair in zip(places_old[element], places_new[element], strict=True)
    )
    chain = find_longest_chain(pairs)
    return chain if len(chain) >= _ORDERED * len(pairs) else []


def _list_positions(elements: Sequence[str]) -> dict[str, list[int]]:
    positions: dict[str, list[int]] = {}
    for at, element in enumerate(elements):
        if not element.isspace():
            positions.setdefault(element, []).append(at)
    return positions
