"""The parser, with limits that are the same on every machine."""

from __future__ import annotations

import functools
import importlib

from tree_sitter import Language, Parser, Point, Tree

from vmrag_link.code.languages import GRAMMARS

_SPARE_STEPS, _BYTES_PER_STEP = 500, 64
"""A step is about a hundred operations. 4,300 files of fifteen languages took one for 80 to 190
bytes, and none exceeded one for 64 by more than 431; hostile ones take one for 10.
"""

_BLOCK = 1024
_SPARE_READS, _BYTES_PER_READ = 2000, 20
"""Blocks that are read: a scanner that looks for the end of a string again and again reads without
a step. Files took one for 230 bytes or more, none exceeded one for 50 by more than 175.
"""


class _Budget:
    """What a text may cost, in what the parser does: never in time."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._steps = self._reads = self._reached = 0
        self.is_spent = False

    def step(self, offset: int, _failed: bool) -> bool:
        """Whether the parser is to stop."""
        self._steps += 1
        self._reached = max(self._reached, offset)
        if self._steps > _SPARE_STEPS + self._reached // _BYTES_PER_STEP:
            self.is_spent = True
        return self.is_spent

    def read(self, offset: int, _point: Point) -> memoryview:
        """The text from there; its end, once too much is read."""
        self._reads += 1
        self._reached = max(self._reached, offset)
        if self._reads > _SPARE_READS + self._reached // _BYTES_PER_READ:
            self.is_spent = True
        return self._data[:0] if self.is_spent else self._data[offset : offset + _BLOCK]


def parse(data: bytes, language: str) -> Tree | None:
    """None: the text is too hard, which depends on nothing but the text and the grammar."""
    budget, parser = _Budget(data), _parser(language)
    try:
        tree = parser.parse(budget.read, progress_callback=budget.step)
    except ValueError:
        if not budget.is_spent:
            raise
        parser.reset()
        return None
    return None if budget.is_spent else tree


@functools.cache
def _parser(language: str) -> Parser:
    package = GRAMMARS[language]
    grammar = getattr(importlib.import_module(package.module), package.function)
    return Parser(Language(grammar()))
