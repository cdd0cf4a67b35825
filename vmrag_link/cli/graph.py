"""The graph beside a log, drawn with letters as git draws it.

A column is a line of descent that waits for a revision. Revisions come children first. Each takes
its column, and leaves it to its first parent; further parents get columns to its right, unless one
waits for them already. Where two columns wait for the same revision, the right one is led into the
left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat

_WIDTH = 2
"""Characters of a column: its own, and one for the lines that lead to its neighbours."""


class Graph:
    """`drawn` is called with each revision in turn."""

    def __init__(self) -> None:
        self._columns: list[str] = []

    def drawn(self, revision: str, parents: Sequence[str], lines: Iterable[str]) -> Iterator[str]:
        """The lines that tell of a revision, with the graph before them."""
        if revision not in self._columns:
            self._columns.append(revision)
        at = self._columns.index(revision)
        first = _row(len(self._columns), {at * _WIDTH: "*"})
        edges = list(self._led_to_parents(at, parents))
        beside = chain([first, *edges], repeat(_row(len(self._columns))))
        shown = 0
        for line, row in zip(lines, beside, strict=False):
            shown += 1
            yield f"{row:<{len(first)}} {line}".rstrip()
        yield from (edge.rstrip() for edge in edges[max(0, shown - 1) :])

    def _led_to_parents(self, at: int, parents: Sequence[str]) -> Iterator[str]:
        """The rows between a revision and what comes after it."""
        for parent in reversed(parents[1:]):
            if parent in self._columns:
                yield from _crossing(len(self._columns), at, self._columns.index(parent))
            else:
                yield self._inserted(at + 1, parent)
        if not parents:
            yield from self._removed(at, at)
            return
        self._columns[at] = parents[0]
        if self._columns.count(parents[0]) > 1:
            left, right = (number for number, each in enumerate(self._columns) if each == parents[0])
            yield from self._removed(right, left)

    def _inserted(self, at: int, parent: str) -> str:
        """A new column; those to the right of it move one further."""
        moved = {number * _WIDTH + 1: "\\" for number in range(at - 1, len(self._columns))}
        self._columns.insert(at, parent)
        return _row(at, moved)

    def _removed(self, at: int, into: int) -> Iterator[str]:
        """Lead a column into another one to its left, or end it (`into` itself); those to the right
        of it move up.
        """
        others = range(at + 1, len(self._columns))
        moving = {number * _WIDTH - 1: "/" for number in others}
        del self._columns[at]
        if into == at:
            if moving:
                yield _row(at, moving)
            return
        yield _row(at, {at * _WIDTH - 1: "/", **moving})
        for number in range(at - 1, into, -1):
            yield _row(len(self._columns), {number * _WIDTH - 1: "/"})


def _crossing(columns: int, start: int, end: int) -> Iterator[str]:
    """The rows that lead from one column to another one across those in between."""
    if start < end:
        yield from (_row(columns, {number * _WIDTH + 1: "\\"}) for number in range(start, end))
    else:
        yield from (_row(columns, {number * _WIDTH - 1: "/"}) for number in range(start, end, -1))


def _row(columns: int, marks: dict[int, str] | None = None) -> str:
    """Columns that go straight on, with other characters at some places."""
    shown = [" "] * max(columns * _WIDTH, max(marks or {0: ""}) + 1)
    shown[: columns * _WIDTH : _WIDTH] = "|" * columns
    for place, mark in (marks or {}).items():
        shown[place] = mark
    return "".join(shown).rstrip()
