"""Combine the symbols and the lines of a text into pieces."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate

from vmrag_link.code.languages import MOST_DECLARED, CodePiece, SymbolDeclaration

LONGEST_LINE = 2000
"""Maximum number of characters of a line. A longer line is split inside."""

_CLOSING = re.compile(r"(?:[)\]}>;,]+|end|fi|done|esac)[;,.]*\s*(?:(?://|--|#).*)?")
_TAB = 4
_NEXT = (1).__add__

Span = tuple[int, int]
"""Character offsets of the first character and after the last one."""


class Lines:
    """The rows of a text. They count from 0 and end with a line feed, like in the parser."""

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
        return self._starts[first], self._starts[end]

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
        best_rank, best_row = (False, 0), last
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
            yield offset, min(offset + size, end)


_TINY = 3
"""Maximum number of rows, without blank ones, of a part that is joined with its neighbours."""


class SymbolRows:
    """A symbol in the rows from `first` to before `end`, with the comments and decorators above it.

    `row`: the row of its declaration. `body`: the first byte of its body. `fits`: it is short
    enough for a piece, or inside a symbol that is. `inside`: the symbols inside a symbol that does
    not fit.
    """

    __slots__ = ("body", "end", "first", "fits", "inside", "kind", "level", "row", "signature", "symbol")

    def __init__(self, first: int, end: int, name: tuple[str, str, str] = ("", "", ""), level: int = 0) -> None:
        self.first, self.end, self.level = first, end, level
        self.symbol, self.kind, self.signature = name
        self.row, self.body, self.fits = 0, -1, False
        self.inside: list[SymbolRows] = []


_CONSTRUCTORS = frozenset("__init__ constructor init initialize".split())


class _Part:
    """Rows that become one piece, or several if they are too long.

    `of`: the symbol of the rows. `within`: the symbol around them; equal to `of` for rows between
    symbols. `opened`: the symbol of the first piece, if it differs.
    """

    __slots__ = ("end", "first", "is_head", "is_tiny", "of", "opened", "within")

    def __init__(self, first: int, end: int, of: SymbolRows, within: SymbolRows, *, is_head: bool = False) -> None:
        self.first, self.end, self.of, self.within = first, end, of, within
        self.is_head, self.is_tiny = is_head, False
        self.opened: SymbolRows | None = None


class Layout:
    """The pieces of one text."""

    def __init__(self, lines: Lines, size: int) -> None:
        self._lines, self._size = lines, size
        self._parts: list[_Part] = []

    def build_pieces(self, root: SymbolRows, declared: Sequence[SymbolRows]) -> list[CodePiece]:
        """Return the pieces of the whole text. `root`: a symbol for the text. `declared`: all
        symbols in it.
        """
        self._add_symbol_parts(root, root.first, root.end)
        pieces, remaining = list[CodePiece](), deque(sorted(declared, key=lambda symbol: symbol.row))
        for part in self._join_parts():
            spans = [self._lines.make_span(part.first, part.end)]
            if self._lines.count_characters(part.first, part.end) > self._size:
                spans = list(self._lines.split_rows(part.first, part.end, self._size))
            for number, (start, stop) in enumerate(spans):
                of = part.of if number or part.opened is None else part.opened
                declarations = tuple(self._take_declarations(remaining, stop)[:MOST_DECLARED])
                pieces.append(
                    CodePiece(
                        start=start,
                        end=stop,
                        symbol=of.symbol,
                        kind=of.kind,
                        signature=of.signature,
                        declared=declarations,
                    )
                )
        return pieces

    def _take_declarations(self, remaining: deque[SymbolRows], end: int) -> list[SymbolDeclaration]:
        """Take the symbols from `remaining` whose rows begin before a character, and return their
        declarations.
        """
        declarations, lines = [], self._lines
        while remaining and lines.make_span(remaining[0].row, remaining[0].row)[0] < end:
            symbol = remaining.popleft()
            last = lines.find_last_filled(symbol.row, symbol.end)
            declarations.append(SymbolDeclaration(symbol.symbol, symbol.kind, symbol.row + 1, last + 1))
        return declarations

    def _add_symbol_parts(self, owner: SymbolRows, first: int, end: int) -> None:
        """Add parts for the rows of a symbol that is too long, or of the whole text."""
        row = first
        for inner in owner.inside:
            begin, stop = max(inner.first, row), min(inner.end, end)
            if begin >= stop:
                continue  # it is on a row of the previous symbol
            self._add_gap(owner, row, begin, is_head=row == first)
            if not self._parts:
                begin = 0  # blank rows at the top
            if inner.inside and self._lines.count_characters(begin, stop) > self._size:
                self._add_symbol_parts(inner, begin, stop)
            else:
                self._add_part(_Part(begin, stop, inner, owner))
            row = stop
        self._add_gap(owner, row, end, is_head=row == first)

    def _add_gap(self, owner: SymbolRows, first: int, end: int, *, is_head: bool) -> None:
        """Add a part for the rows before, between or after the symbols inside a symbol.

        Rows that only close something belong to the previous part.
        """
        if self._parts:
            first = self._lines.include_endings(first, end, self._size)
            self._parts[-1].end = max(self._parts[-1].end, first)
        if first < end and (not owner.inside or self._lines.count_filled(first, end, 0)):
            self._add_part(_Part(first, end, owner, owner, is_head=is_head and owner.level > 0))

    def _add_part(self, part: _Part) -> None:
        part.is_tiny = self._lines.count_filled(part.first, part.end, _TINY) <= _TINY
        self._parts.append(part)

    def _join_parts(self) -> list[_Part]:
        """Return the parts, with small neighbours joined."""
        joined: list[_Part] = []
        for part in self._parts:
            last = joined[-1] if joined else None
            if (
                last
                and self._lines.count_characters(last.first, part.end) <= self._size
                and self._belong_together(last, part)
            ):
                last.end = part.end
                if last.is_tiny and part.is_tiny:
                    last.of = self._find_common_symbol(last, part)
                continue
            if last and self._is_headless(last, part):
                part.first, part.opened = last.first, last.of
                joined.pop()
            joined.append(part)
        return joined

    @staticmethod
    def _belong_together(last: _Part, part: _Part) -> bool:
        """Return whether parts are small neighbours in one symbol, or a small rest after a part of
        the same symbol.
        """
        if last.is_tiny and part.is_tiny and last.within is part.within:
            return True
        return part.is_tiny and part.of is part.within and part.within.level > 0 and not part.is_head

    @staticmethod
    def _is_headless(last: _Part, part: _Part) -> bool:
        """Return whether the head of a class is so small that its first piece includes the
        constructor.
        """
        name = part.of.symbol.rpartition(".")[2]
        is_constructor = name in _CONSTRUCTORS or name == last.of.symbol.rpartition(".")[2]
        return last.is_head and last.is_tiny and part.within is last.of and part.of is not last.of and is_constructor

    @staticmethod
    def _find_common_symbol(last: _Part, part: _Part) -> SymbolRows:
        """Return the symbol around small neighbours; at the top of a file, the first symbol of
        them.
        """
        if part.within.level > 0:
            return part.within
        return last.of if last.of.level else part.of
