"""The pieces that a text is cut into. The process that cuts loads this, so it imports little."""

from __future__ import annotations

from typing import NamedTuple

DEFAULT_SIZE = 1500
"""Characters of a piece, about."""


LONGEST_SIGNATURE = 200
"""Characters."""

MOST_DECLARED = 200
"""Symbols that a piece tells of."""


class SymbolDeclaration(NamedTuple):
    """`symbol` and `kind` as in `CodePiece`. `line` is that of the declaration itself, below its
    comments and decorators, `last_line` the last one of the whole symbol; both count from 1.
    """

    symbol: str
    kind: str
    line: int
    last_line: int


class CodePiece(NamedTuple):
    """`start` and `end` are character offsets; the pieces of a text are the text, in order.

    `symbol` is dotted with its parents (`Session.refresh`), with a `kind` (`method`) and the
    `signature` with which it is declared: one line of at most 200 characters. All three are empty
    for what belongs to no symbol. The parts of a long symbol have those of the whole.

    `declared`: the symbols whose declarations begin in this piece, the first `MOST_DECLARED` of
    them in the order of the text: its own, if it begins here, those within it that have no piece of
    their own, and small ones that follow it. Variables of functions are left out.
    """

    start: int
    end: int
    symbol: str = ""
    kind: str = ""
    signature: str = ""
    declared: tuple[SymbolDeclaration, ...] = ()


LONGEST_MESSAGE = 1 << 26
"""Bytes. A text of the largest size that is parsed makes fewer, even in pieces of one line."""
