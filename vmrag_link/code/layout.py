"""Divide the rows of a text into pieces, along its symbols.

`cutting` calls `build_pieces` with the symbols that `symbols` found, and `Lines.split_rows` for a
text without symbols. Rows count from 0.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from vmrag_link.code.languages import MOST_DECLARED, CodePiece, SymbolDeclaration

LONGEST_LINE = 2000
"""Maximum number of characters of a line. A longer line is split inside."""

_CLOSING = re.compile(r"(?:[)\]}>;,]+|end|fi|done|esac)[;,.]*\s*(?:(?://|--|#).*)?")
_TAB = 4
_NEXT = (1).__add__


class Span(NamedTuple):
    """Characters of a text, from offset `start` to before `end`."""

    start: int
    end: int


class Lines:
    """The rows of a text. They end with a line feed, like in the parser."""

    def __init__(self, text: str) -> None:
        self._rows = text.split("\n")
        self._starts = [0, *accumulate(map(_NEXT, map(len, self._rows)))]
        if self._rows[-1]:
            self._starts[-1] -= 1
        else:
            self._starts.pop()
        self._blank = [not row or row.isspace() for row in self._rows]

    @property
    def count(self) -> int:
        return len(self._starts) - 1

    def count_characters(self, first: int, end: int) -> int:
        """Return the number of characters of the rows from `first` to before `end`."""
        return self._starts[end] - self._starts[first]

    def make_span(self, first: int, end: int) -> Span:
        """Return the characters of the rows from `first` to before `end`."""
        return Span(self._starts[first], self._starts[end])

    def get_start(self, number: int) -> int:
        """Return the offset of the first character of a row."""
        return self._starts[number]

    def is_blank(self, number: int) -> bool:
        return self._blank[number]

    def is_closing(self, number: int) -> bool:
        """Return whether a row is blank or only closes brackets or blocks. No piece begins with
        it.
        """
        return self._blank[number] or bool(_CLOSING.fullmatch(self._rows[number].strip()))

    def count_filled(self, first: int, end: int, limit: int) -> int:
        """Return how many of the rows are not blank, at most `limit` + 1."""
        count = 0
        for number in range(first, end):
            count += not self._blank[number]
            if count > limit:
                break
        return count

    def find_last_filled(self, first: int, end: int) -> int:
        """Return the last of the rows that is not blank, or the first row."""
        while end - 1 > first and self._blank[end - 1]:
            end -= 1
        return max(first, end - 1)

    def split_rows(self, first: int, end: int, size: int) -> Iterator[Span]:
        """Yield the rows in parts of about `size` characters. Blank rows belong to the part before.

        A part ends in the second half of its room. The best end is a blank row before a row with
        little indentation. The second best is a row before one with little indentation.
        """
        while first < end:
            length = self.count_characters(first, end)
            stop = self._find_last_fitting(first, end, size if length <= size else min(size, length - size // 4))
            if stop == first:
                if self.count_characters(first, first + 1) > max(size, LONGEST_LINE):
                    yield from self._slice_row(first, size)
                    first += 1
                    continue
                stop = first + 1
            elif stop < end:
                stop = self._find_best_end(first, stop, size)
            stop = self.include_endings(stop, end, size // 2)
            yield self.make_span(first, stop)
            first = stop

    def include_endings(self, stop: int, end: int, room: int) -> int:
        """Return `stop`, moved after rows that are blank or only close something."""
        start = stop
        while stop < end and self.is_closing(stop) and self.count_characters(start, stop + 1) <= room:
            stop += 1
        return stop

    def _find_last_fitting(self, first: int, end: int, size: int) -> int:
        return min(end, bisect_right(self._starts, self._starts[first] + size, first + 1) - 1)

    def _find_best_end(self, first: int, last: int, size: int) -> int:
        """Return the row before which a part should end, at most `last`; `last` if no row is
        good.
        """
        best_rank = (False, 0)
        best_row = last
        for number in range(last, first, -1):
            if self.count_characters(first, number) < size // 2:
                break
            if self.is_closing(number):
                continue
            rank = (self.is_blank(number - 1), -self._measure_indentation(number))
            if (best_row == last and best_rank == (False, 0)) or rank > best_rank:
                best_rank, best_row = rank, number
        return best_row

    def _measure_indentation(self, number: int) -> int:
        row = self._rows[number]
        return len(row.expandtabs(_TAB)) - len(row.lstrip(" \t").expandtabs(_TAB))

    def _slice_row(self, number: int, size: int) -> Iterator[Span]:
        start, end = self.make_span(number, number + 1)
        for offset in range(start, end, size):
            yield Span(offset, min(offset + size, end))


class SymbolRows:
    """A symbol in the rows from `first` to before `end`, with the comments and decorators above it.

    `level`: the number of symbols around it, 0 for the whole text. `row`: the row of its
    declaration. `body`: the first byte of its body. `fits`: it is short enough for a piece, or
    inside a symbol that is. `inside`: the symbols inside a symbol that does not fit.
    """

    __slots__ = ("body", "end", "first", "fits", "inside", "kind", "level", "row", "signature", "symbol")

    def __init__(  # a slot takes less memory than a dictionary, and texts have many symbols
        self,
        first: int,
        end: int,
        *,
        symbol: str = "",
        kind: str = "",
        signature: str = "",
        level: int = 0,
        row: int = 0,
        body: int = -1,
        fits: bool = False,
    ) -> None:
        self.first = first
        self.end = end
        self.symbol = symbol
        self.kind = kind
        self.signature = signature
        self.level = level
        self.row = row
        self.body = body
        self.fits = fits
        self.inside: list[SymbolRows] = []


def build_pieces(root: SymbolRows, declared: Sequence[SymbolRows], lines: Lines, size: int) -> list[CodePiece]:
    """Return the pieces of a text, of about `size` characters each. `root`: a symbol for the whole
    text. `declared`: all symbols in it.
    """
    parts = _PartList(lines, size)
    parts.add_symbol(root, root.first, root.end)
    remaining = deque(sorted(declared, key=lambda symbol: symbol.row))
    pieces: list[CodePiece] = []
    for part in _join_parts(parts, lines, size):
        spans = [lines.make_span(part.first, part.end)]
        if lines.count_characters(part.first, part.end) > size:
            spans = list(lines.split_rows(part.first, part.end, size))
        for number, span in enumerate(spans):
            symbol = part.opening if part.opening and number == 0 else part.symbol
            piece = CodePiece(
                start=span.start,
                end=span.end,
                symbol=symbol.symbol,
                kind=symbol.kind,
                signature=symbol.signature,
                declared=tuple(_take_declarations(remaining, span.end, lines)[:MOST_DECLARED]),
            )
            pieces.append(piece)
    return pieces


def _take_declarations(remaining: deque[SymbolRows], end: int, lines: Lines) -> list[SymbolDeclaration]:
    """Take the symbols from `remaining` whose rows begin before a character, and return their
    declarations.
    """
    declarations = []
    while remaining and lines.get_start(remaining[0].row) < end:
        symbol = remaining.popleft()
        last = lines.find_last_filled(symbol.row, symbol.end)
        declarations.append(SymbolDeclaration(symbol.symbol, symbol.kind, symbol.row + 1, last + 1))
    return declarations


class _Part(NamedTuple):
    """Rows that become one piece, or several if they are too long."""

    first: int
    end: int
    symbol: SymbolRows
    """The symbol of the rows."""

    around: SymbolRows
    """The symbol around them. For rows between symbols, it is `symbol`."""

    is_head: bool
    """True for the first rows of a symbol that is divided."""

    is_tiny: bool
    """True if it has few rows, so that it may be joined with a neighbour."""

    opening: SymbolRows | None = None
    """The symbol of the first piece, if it differs."""


_TINY_ROWS = 3
"""Maximum number of rows, without blank ones, of a tiny part."""


class _PartList(list[_Part]):
    """The parts of a text, in order, before small neighbours are joined."""

    def __init__(self, lines: Lines, size: int) -> None:
        super().__init__()
        self._lines = lines
        self._size = size

    def add_symbol(self, owner: SymbolRows, first: int, end: int) -> None:
        """Add parts for the rows of a symbol that is too long, or of the whole text."""
        row = first
        for inner in owner.inside:
            begin = max(inner.first, row)
            stop = min(inner.end, end)
            if begin >= stop:
                continue  # it is on a row of the previous symbol
            self._add_gap(owner, row, begin, is_head=row == first)
            if not self:
                begin = 0  # blank rows at the top
            if inner.inside and self._lines.count_characters(begin, stop) > self._size:
                self.add_symbol(inner, begin, stop)
            else:
                self._add_part(begin, stop, inner, owner)
            row = stop
        self._add_gap(owner, row, end, is_head=row == first)

    def _add_gap(self, owner: SymbolRows, first: int, end: int, *, is_head: bool) -> None:
        """Add a part for the rows before, between or after the symbols inside a symbol.

        Rows that only close something belong to the previous part.
        """
        if self:
            first = self._lines.include_endings(first, end, self._size)
            self[-1] = self[-1]._replace(end=max(self[-1].end, first))
        if first < end and (not owner.inside or self._lines.count_filled(first, end, 0)):
            self._add_part(first, end, owner, owner, is_head=is_head and owner.level > 0)

    def _add_part(self, first: int, end: int, symbol: SymbolRows, around: SymbolRows, *, is_head: bool = False) -> None:
        is_tiny = self._lines.count_filled(first, end, _TINY_ROWS) <= _TINY_ROWS
        self.append(_Part(first, end, symbol, around, is_head, is_tiny))


def _join_parts(parts: Sequence[_Part], lines: Lines, size: int) -> list[_Part]:
    """Return the parts, with small neighbours joined."""
    joined: list[_Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if last and lines.count_characters(last.first, part.end) <= size and _belong_together(last, part):
            both_tiny = last.is_tiny and part.is_tiny
            symbol = _find_common_symbol(last, part) if both_tiny else last.symbol
            joined[-1] = last._replace(end=part.end, symbol=symbol)
        elif last and _is_small_head(last, part):
            joined[-1] = part._replace(first=last.first, opening=last.symbol)
        else:
            joined.append(part)
    return joined


def _belong_together(last: _Part, part: _Part) -> bool:
    """Return whether parts are small neighbours in one symbol, or a small rest after a part of the
    same symbol.
    """
    if last.is_tiny and part.is_tiny and last.around is part.around:
        return True
    return part.is_tiny and part.symbol is part.around and part.around.level > 0 and not part.is_head


_CONSTRUCTORS = frozenset("__init__ constructor init initialize".split())


def _is_small_head(last: _Part, part: _Part) -> bool:
    """Return whether `last` is the head of a class, so small that its first piece includes the
    constructor.
    """
    name = part.symbol.symbol.rpartition(".")[2]
    is_constructor = name in _CONSTRUCTORS or name == last.symbol.symbol.rpartition(".")[2]
    is_inside = part.around is last.symbol and part.symbol is not last.symbol
    return last.is_head and last.is_tiny and is_inside and is_constructor


def _find_common_symbol(last: _Part, part: _Part) -> SymbolRows:
    """Return the symbol around small neighbours; at the top of a file, the first symbol of them."""
    if part.around.level > 0:
        return part.around
    return last.symbol if last.symbol.level else part.symbol
