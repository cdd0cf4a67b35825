"""Which rows of a table are in every run, and which only in `tests/check.py --long`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any, TypeVar

import pytest

Row = TypeVar("Row")

LONG = os.environ.get("VMRAG_TEST_LONG") == "1"
"""Set by `tests/check.py --long`."""


def examples(number: int) -> int:
    """How often to repeat what is drawn or raced: so often in a long run, a sixth of it
    otherwise.
    """
    return number if LONG else max(1, number // 6)


def one_of_each(rows: Iterable[Row], *kinds: Callable[[Row], Hashable]) -> list[Any]:
    """Parameters for pytest: whatever is the first row of its kind, in one sense at least, is in
    every run; the rest is long.
    """
    seen: list[set[Hashable]] = [set() for _ in kinds]
    parameters = []
    for row in rows:
        parameters.append(
            _parameter((row,), always=any(kind(row) not in had for kind, had in zip(kinds, seen, strict=True)))
        )
        for kind, had in zip(kinds, seen, strict=True):
            had.add(kind(row))
    return parameters


def crossed(rows: Collection[Any], columns: Collection[Any]) -> list[Any]:
    """Parameters for pytest: all pairs. Some of them, which have every row and every column, are in
    every run; the rest is long.
    """
    pairs = max(len(rows), len(columns))
    chosen = {(number % len(rows), number % len(columns)) for number in range(pairs)}
    return [
        _parameter((row, column), always=(x, y) in chosen)
        for x, row in enumerate(rows)
        for y, column in enumerate(columns)
    ]


def _parameter(values: tuple[Any, ...], *, always: bool) -> Any:
    return pytest.param(*values, marks=() if always else pytest.mark.long)
