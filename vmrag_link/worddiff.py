"""What differs between two texts, word by word: exact, and fast on megabytes.

Lines are compared first, words within the lines that changed. Both are aligned by what is rare and
stands in both texts in the same order, and by difflib (quadratic) only between such anchors, where
little is left. What one difference may cost is bounded: when that is used up, what is left between
two anchors is one deletion and one insertion.

Merges by line use the first two functions, too: whatever changes an answer of theirs changes
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


def count_common_ends(left: Sequence[str], right: Sequence[str]) -> tuple[int, int]:
    """How many elements both begin with, and how many both end with after those."""
    head = sum(takewhile(bool, map(eq, left, right)))
    rest = min(len(left), len(right)) - head
    tail = sum(takewhile(bool, islice(map(eq, reversed(left), reversed(right)), rest)))
    return head, tail


def find_longest_chain(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest chain of pairs, sorted by their first number, whose second numbers rise (patience
    sorting). Of several, always the same one.
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
    """A stretch of text. `omitted` comes from `cut` only: its text is the mark that stands for what
    was left out.
    """

    op: Op
    text: str


Run = tuple[int, int, int]
"""Equal elements: their start in the old and in the new sequence, and how many they are."""

CONTEXT_WORDS = 12
_OMITTED = "…"

_SMALL = 128 * 128
"""Elements of the old times elements of the new: up to here difflib compares them."""
_LEVELS = 12
MOST_WORK = 20_000_000
"""Elements and pairs of elements that one difference looks at.

What texts and code differ in costs a small part of it. One line of megabytes of numbers took
minutes without it.
"""
_ORDERED = 1 / 4
"""Share of the anchors that must stand in the same order.

Chance alone gives 2 / √n: unrelated texts are not aligned.
"""
_ALIKE = 1 / 4
"""Share of the shorter text that must be equal: below, a few words in common only hide that all is
new.
"""

# Scripts without blanks between words are compared by character.
_WORD = r"[^\W\u3040-\u30ff\u3400-\u9fff]+|[\u3040-\u30ff\u3400-\u9fff]|\s+|[^\w\s]"


_EACH_ANCHOR = 50
"""What an anchor costs, and looking between it and the next one."""


class _Allowance:
    """What is left of the work that one difference may make."""

    def __init__(self) -> None:
        self._left = MOST_WORK

    def covers(self, cost: int) -> bool:
        """Whether it was enough for this, too; then it is used."""
        if cost > self._left:
            return False
        self._left -= cost
        return True


def diff_words(old: str, new: str) -> tuple[Piece, ...]:
    """Pieces whose equal and deleted texts make up `old`, equal and inserted ones `new`, exactly.

    No piece is empty, no two neighbours have the same op, and a deletion stands before the
    insertion that replaces it.
    """
    pieces: list[Piece] = []
    allowance = _Allowance()
    old_lines, new_lines = old.splitlines(keepends=True), new.splitlines(keepends=True)
    for equal, before, after in _sections(old_lines, new_lines, _runs(old_lines, new_lines, allowance)):
        pieces += [Piece("equal", before)] if equal else _by_words(before, after, allowance)
    return tuple(_tidy(pieces))


def count_words(pieces: Iterable[Piece], op: Op) -> int:
    """How many words, separated by blanks, the pieces of that kind have."""
    return sum(len(piece.text.split()) for piece in pieces if piece.op == op)


def cut_equal_text(pieces: Sequence[Piece], *, context: int = CONTEXT_WORDS) -> tuple[Piece, ...]:
    """The same with `context` words of equal text around each change; what is left out is marked by
    an `omitted` piece.
    """
    shown: list[Piece] = []
    for number, piece in enumerate(pieces):
        first, last = number == 0, number == len(pieces) - 1
        shown += _cut(piece.text, 0 if first else context, 0 if last else context) if piece.op == "equal" else [piece]
    return tuple(shown)


def render_pieces(pieces: Iterable[Piece], *, style: Callable[[Op, str], str] = lambda _, text: text) -> str:
    """One text, with `[-deleted-]{+inserted+}` as git writes it; `style` may colour what is not
    equal.
    """
    return "".join(piece.text if piece.op == "equal" else style(piece.op, _mark(piece)) for piece in pieces)


def _mark(piece: Piece) -> str:
    match piece.op:
        case "delete":
            return f"[-{piece.text}-]"
        case "insert":
            return f"{{+{piece.text}+}}"
    return piece.text


def _cut(text: str, head: int, tail: int) -> list[Piece]:
    found = [match.span() for match in re.finditer(r"\S+", text)]
    if len(found) <= head + tail:
        return [Piece("equal", text)]
    start = found[head - 1][1] if head else 0
    end = found[-tail][0] if tail else len(text)
    around = "\n" if "\n" in text[start:end] else " "
    mark = Piece("omitted", (around if head else "") + _OMITTED + (around if tail else ""))
    parts = [Piece("equal", text[:start]), mark, Piece("equal", text[end:])]
    return [part for part in parts if part.text]


def _by_words(old: str, new: str, allowance: _Allowance) -> list[Piece]:
    if not old or not new:
        return [Piece("delete", old), Piece("insert", new)]
    old_words, new_words = re.findall(_WORD, old), re.findall(_WORD, new)
    sections = list(_sections(old_words, new_words, _runs(old_words, new_words, allowance)))
    if sum(len(before) for equal, before, _ in sections if equal) < _ALIKE * min(len(old), len(new)):
        sections = list(_sections(old_words, new_words, _edges(old_words, new_words)))
    pieces: list[Piece] = []
    for equal, before, after in sections:
        pieces += [Piece("equal", before)] if equal else [Piece("delete", before), Piece("insert", after)]
    return pieces


def _tidy(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Without empty pieces; between two equal ones a single deletion, then a single insertion."""
    for equal, stretch in groupby((piece for piece in pieces if piece.text), key=lambda piece: piece.op == "equal"):
        parts = list(stretch)
        ops: tuple[Op, ...] = ("equal",) if equal else ("delete", "insert")
        for op in ops:
            if text := "".join(part.text for part in parts if part.op == op):
                yield Piece(op, text)


def _sections(old: Sequence[str], new: Sequence[str], runs: Iterable[Run]) -> Iterator[tuple[bool, str, str]]:
    """The runs and what lies between them: whether it is equal, the old text, the new text."""
    at_old = at_new = 0
    for start_old, start_new, length in [*runs, (len(old), len(new), 0)]:
        yield False, "".join(old[at_old:start_old]), "".join(new[at_new:start_new])
        at_old, at_new = start_old + length, start_new + length
        text = "".join(old[start_old:at_old])
        yield True, text, text


def _edges(old: Sequence[str], new: Sequence[str]) -> list[Run]:
    """What both begin with, and what both end with after that; both runs may be empty."""
    head, tail = count_common_ends(old, new)
    return [(0, 0, head), (len(old) - tail, len(new) - tail, tail)]


def _runs(old: Sequence[str], new: Sequence[str], allowance: _Allowance, levels: int = _LEVELS) -> list[Run]:
    """Equal runs in the order of both sequences."""
    (_, _, head), last = _edges(old, new)
    middle = _inner(old[head : last[0]], new[head : last[1]], allowance, levels)
    return [(0, 0, head), *((head + i, head + j, length) for i, j, length in middle), last]


def _inner(old: Sequence[str], new: Sequence[str], allowance: _Allowance, levels: int) -> Iterator[Run]:
    small = len(old) * len(new) <= _SMALL
    if not old or not new or not allowance.covers(len(old) * len(new) if small else len(old) + len(new)):
        return
    if small:
        import difflib  # 2 ms, and most histories show no words

        # Blanks as junk: they belong to a run of words, but make none.
        matcher = difflib.SequenceMatcher(str.isspace, old, new, autojunk=False)
        yield from ((block.a, block.b, block.size) for block in matcher.get_matching_blocks())
        return
    anchors = _anchors(old, new, allowance) if levels else []
    if not anchors:
        return
    at_old = at_new = 0
    for anchor_old, anchor_new in [*anchors, (len(old), len(new))]:
        between = _runs(old[at_old:anchor_old], new[at_new:anchor_new], allowance, levels - 1)
        yield from ((at_old + i, at_new + j, length) for i, j, length in between)
        if anchor_old < len(old):
            yield anchor_old, anchor_new, 1
        at_old, at_new = anchor_old + 1, anchor_new + 1


def _anchors(old: Sequence[str], new: Sequence[str], allowance: _Allowance) -> list[tuple[int, int]]:
    """Places of the rarest elements that both have equally often, as far as they stand in the same
    order in both. None where they are too many: the commas of a line of a million numbers.
    """
    places_old, places_new = _places(old), _places(new)
    common = {each: len(found) for each, found in places_old.items() if len(places_new.get(each, ())) == len(found)}
    rarest = min(common.values(), default=0)
    if not allowance.covers(_EACH_ANCHOR * sum(number for number in common.values() if number == rarest)):
        return []
    pairs = sorted(
        pair
        for each, number in common.items()
        if number == rarest
        for pair in zip(places_old[each], places_new[each], strict=True)
    )
    chain = find_longest_chain(pairs)
    return chain if len(chain) >= _ORDERED * len(pairs) else []


def _places(elements: Sequence[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for at, element in enumerate(elements):
        if not element.isspace():
            found.setdefault(element, []).append(at)
    return found
