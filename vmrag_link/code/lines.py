"""A text by its lines, and cut between them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate

LONGEST_LINE = 2000
"""Characters; a longer line is cut within."""

_CLOSING = re.compile(r"(?:[)\]}>;,]+|end|fi|done|esac)[;,.]*\s*(?:(?://|--|#).*)?")
_TAB = 4

Span = tuple[int, int]
"""Character offsets: the first one, and the one behind the last."""


class Lines:
    """Rows count from 0 and end with a line feed, as the parser counts them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *accumulate(len(each) for each in _rows(text))]

    @property
    def count(self) -> int:
        return len(self._starts) - 1

    def length(self, first: int, end: int) -> int:
        """Characters of the rows from `first` to before `end`."""
        return self._starts[end] - self._starts[first]

    def span(self, first: int, end: int) -> Span:
        return self._starts[first], self._starts[end]

    def row(self, number: int) -> str:
        return self._text[self._starts[number] : self._starts[number + 1]]

    def is_blank(self, number: int) -> bool:
        return not self.row(number).strip()

    def only_ends(self, number: int) -> bool:
        """Whether a row is blank, or closes what others opened: no piece begins with it."""
        text = self.row(number).strip()
        return not text or bool(_CLOSING.fullmatch(text))

    def filled(self, first: int, end: int, most: int) -> int:
        """How many of the rows are not blank; where there are more than `most`, one more."""
        found = 0
        for number in range(first, end):
            found += not self.is_blank(number)
            if found > most:
                break
        return found

    def last_filled(self, first: int, end: int) -> int:
        """The last of the rows that is not blank, or the first one."""
        while end - 1 > first and self.is_blank(end - 1):
            end -= 1
        return max(first, end - 1)

    def parts(self, first: int, end: int, size: int) -> Iterator[Span]:
        """The rows in parts of about `size` characters; blank rows go with the part before.

        A part ends in the second half of its room: best where a blank row is followed by one with
        little indentation, else before a row with little indentation.
        """
        while first < end:
            rest = self.length(first, end)
            stop = self._fitting(first, end, size if rest <= size else min(size, rest - size // 4))
            if stop == first:
                if self.length(first, first + 1) > max(size, LONGEST_LINE):
                    yield from self._slices(first, size)
                    first += 1
                    continue
                stop = first + 1
            elif stop < end:
                stop = self._best(first, stop, size)
            stop = self.with_endings(stop, end, size // 2)
            yield self.span(first, stop)
            first = stop

    def with_endings(self, stop: int, end: int, room: int) -> int:
        """`stop`, or behind the rows there that are blank or only close something."""
        start = stop
        while stop < end and self.only_ends(stop) and self.length(start, stop + 1) <= room:
            stop += 1
        return stop

    def _fitting(self, first: int, end: int, size: int) -> int:
        stop = first
        while stop < end and self.length(first, stop + 1) <= size:
            stop += 1
        return stop

    def _best(self, first: int, last: int, size: int) -> int:
        """Before which row to end, of those up to `last`; at `last` if none is good."""
        best, found = (False, 0), last
        for number in range(last, first, -1):
            if self.length(first, number) < size // 2:
                break
            if self.only_ends(number):
                continue
            rank = (self.is_blank(number - 1), -self._indentation(number))
            if (found == last and best == (False, 0)) or rank > best:
                best, found = rank, number
        return found

    def _indentation(self, number: int) -> int:
        row = self.row(number)
        return len(row.expandtabs(_TAB)) - len(row.lstrip(" \t").expandtabs(_TAB))

    def _slices(self, number: int, size: int) -> Iterator[Span]:
        start, end = self.span(number, number + 1)
        for each in range(start, end, size):
            yield each, min(each + size, end)


def _rows(text: str) -> list[str]:
    rows = [f"{each}\n" for each in text.split("\n")]
    rows[-1] = rows[-1][:-1]
    return rows if rows[-1] else rows[:-1]
