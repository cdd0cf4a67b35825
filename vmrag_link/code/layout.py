"""From the symbols of a text, and its lines, to its pieces."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate

from vmrag_link.code.languages import MOST_DECLARED, CodePiece, SymbolDeclaration

LONGEST_LINE = 2000
"""Characters; a longer line is cut within."""

_CLOSING = re.compile(r"(?:[)\]}>;,]+|end|fi|done|esac)[;,.]*\s*(?:(?://|--|#).*)?")
_TAB = 4
_NEXT = (1).__add__

Span = tuple[int, int]
"""Character offsets: the first one, and the one behind the last."""


class Lines:
    """Rows count from 0 and end with a line feed, as the parser counts them."""

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
        """Characters of the rows from `first` to before `end`."""
        return self._starts[end] - self._starts[first]

    def make_span(self, first: int, end: int) -> Span:
        return self._starts[first], self._starts[end]

    def is_blank(self, number: int) -> bool:
        return self._blank[number]

    def is_closing(self, number: int) -> bool:
        """Whether a row is blank, or closes what others opened: no piece begins with it."""
        return self._blank[number] or bool(_CLOSING.fullmatch(self._rows[number].strip()))

    def count_filled(self, first: int, end: int, most: int) -> int:
        """How many of the rows are not blank; where there are more than `most`, one more."""
        found = 0
        for number in range(first, end):
            found += not self._blank[number]
            if found > most:
                break
        return found

    def find_last_filled(self, first: int, end: int) -> int:
        """The last of the rows that is not blank, or the first one."""
        while end - 1 > first and self._blank[end - 1]:
            end -= 1
        return max(first, end - 1)

    def split_rows(self, first: int, end: int, size: int) -> Iterator[Span]:
        """The rows in parts of about `size` characters; blank rows go with the part before.

        A part ends in the second half of its room: best where a blank row is followed by one with
        little indentation, else before a row with little indentation.
        """
        while first < end:
            rest = self.count_characters(first, end)
            stop = self._fitting(first, end, size if rest <= size else min(size, rest - size // 4))
            if stop == first:
                if self.count_characters(first, first + 1) > max(size, LONGEST_LINE):
                    yield from self._slices(first, size)
                    first += 1
                    continue
                stop = first + 1
            elif stop < end:
                stop = self._best(first, stop, size)
            stop = self.include_endings(stop, end, size // 2)
            yield self.make_span(first, stop)
            first = stop

    def include_endings(self, stop: int, end: int, room: int) -> int:
        """`stop`, or behind the rows there that are blank or only close something."""
        start = stop
        while stop < end and self.is_closing(stop) and self.count_characters(start, stop + 1) <= room:
            stop += 1
        return stop

    def _fitting(self, first: int, end: int, size: int) -> int:
        return min(end, bisect_right(self._starts, self._starts[first] + size, first + 1) - 1)

    def _best(self, first: int, last: int, size: int) -> int:
        """Before which row to end, of those up to `last`; at `last` if none is good."""
        best, found = (False, 0), last
        for number in range(last, first, -1):
            if self.count_characters(first, number) < size // 2:
                break
            if self.is_closing(number):
                continue
            rank = (self.is_blank(number - 1), -self._indentation(number))
            if (found == last and best == (False, 0)) or rank > best:
                best, found = rank, number
        return found

    def _indentation(self, number: int) -> int:
        row = self._rows[number]
        return len(row.expandtabs(_TAB)) - len(row.lstrip(" \t").expandtabs(_TAB))

    def _slices(self, number: int, size: int) -> Iterator[Span]:
        start, end = self.make_span(number, number + 1)
        for each in range(start, end, size):
            yield each, min(each + size, end)


_TINY = 3
"""Rows, blank ones aside, of what is joined with its neighbours."""


class SymbolRows:
    """A symbol in the rows from `first` to before `end`, with what belongs to it above; `row` is
    that of its declaration, `body` the first byte of its body.

    `fits`: it is short enough for a piece, or within one that is. `inside`: symbols within it, of
    one that does not fit.
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
    symbols. `opened`: the symbol of the first piece, if it is another one.
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
        """Those of the whole text, which `root` stands for. `declared`: all symbols in it."""
        self._lay(root, root.first, root.end)
        found, left = list[CodePiece](), deque(sorted(declared, key=lambda each: each.row))
        for part in self._joined():
            spans = [self._lines.make_span(part.first, part.end)]
            if self._lines.count_characters(part.first, part.end) > self._size:
                spans = list(self._lines.split_rows(part.first, part.end, self._size))
            for number, (start, stop) in enumerate(spans):
                of = part.of if number or part.opened is None else part.opened
                here = self._declarations(left, stop)
                found.append(CodePiece(start, stop, of.symbol, of.kind, of.signature, tuple(here[:MOST_DECLARED])))
        return found

    def _declarations(self, left: deque[SymbolRows], end: int) -> list[SymbolDeclaration]:
        """Take those of the symbols that are `left` whose rows begin before a character."""
        found, lines = [], self._lines
        while left and lines.make_span(left[0].row, left[0].row)[0] < end:
            each = left.popleft()
            last = lines.find_last_filled(each.row, each.end)
            found.append(SymbolDeclaration(each.symbol, each.kind, each.row + 1, last + 1))
        return found

    def _lay(self, owner: SymbolRows, first: int, end: int) -> None:
        """Parts for the rows of a symbol that is too long, or of the whole text."""
        row = first
        for each in owner.inside:
            begin, stop = max(each.first, row), min(each.end, end)
            if begin >= stop:
                continue  # on a row of the one before
            self._between(owner, row, begin, is_head=row == first)
            if not self._parts:
                begin = 0  # blank rows at the top
            if each.inside and self._lines.count_characters(begin, stop) > self._size:
                self._lay(each, begin, stop)
            else:
                self._add(_Part(begin, stop, each, owner))
            row = stop
        self._between(owner, row, end, is_head=row == first)

    def _between(self, owner: SymbolRows, first: int, end: int, *, is_head: bool) -> None:
        """What stands before, between or behind the symbols of one. Rows that only end something go
        with the part before.
        """
        if self._parts:
            first = self._lines.include_endings(first, end, self._size)
            self._parts[-1].end = max(self._parts[-1].end, first)
        if first < end and (not owner.inside or self._lines.count_filled(first, end, 0)):
            self._add(_Part(first, end, owner, owner, is_head=is_head and owner.level > 0))

    def _add(self, part: _Part) -> None:
        part.is_tiny = self._lines.count_filled(part.first, part.end, _TINY) <= _TINY
        self._parts.append(part)

    def _joined(self) -> list[_Part]:
        found: list[_Part] = []
        for part in self._parts:
            last = found[-1] if found else None
            if (
                last
                and self._lines.count_characters(last.first, part.end) <= self._size
                and self._go_together(last, part)
            ):
                last.end = part.end
                if last.is_tiny and part.is_tiny:
                    last.of = self._common(last, part)
                continue
            if last and self._is_headless(last, part):
                part.first, part.opened = last.first, last.of
                found.pop()
            found.append(part)
        return found

    @staticmethod
    def _go_together(last: _Part, part: _Part) -> bool:
        """Small neighbours in one symbol; and a small rest in a symbol with what stands before."""
        if last.is_tiny and part.is_tiny and last.within is part.within:
            return True
        return part.is_tiny and part.of is part.within and part.within.level > 0 and not part.is_head

    @staticmethod
    def _is_headless(last: _Part, part: _Part) -> bool:
        """Return True if a class has such a small head that its first piece includes the
        constructor.
        """
        name = part.of.symbol.rpartition(".")[2]
        is_constructor = name in _CONSTRUCTORS or name == last.of.symbol.rpartition(".")[2]
        return last.is_head and last.is_tiny and part.within is last.of and part.of is not last.of and is_constructor

    @staticmethod
    def _common(last: _Part, part: _Part) -> SymbolRows:
        """The symbol around small neighbours; at the top the first of them that is one."""
        if part.within.level > 0:
            return part.within
        return last.of if last.of.level else part.of
