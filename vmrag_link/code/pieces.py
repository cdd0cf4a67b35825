"""What source code is cut into."""

from __future__ import annotations

from typing import NamedTuple

DEFAULT_SIZE = 1500
"""Characters of a piece, about."""


class CodePiece(NamedTuple):
    """`start` and `end` are character offsets; the pieces of a text are the text, in order.

    `symbol` is dotted with its parents (`Session.refresh`), with a `kind` (`method`) and the
    `signature` with which it is declared: one line of at most 200 characters. All three are empty
    for what belongs to no symbol. The parts of a long symbol have those of the whole.
    """

    start: int
    end: int
    symbol: str = ""
    kind: str = ""
    signature: str = ""


class CodeUnparsed(Exception):
    """`reason` completes a sentence about a text: `it takes more than 60 seconds to be cut`.

    The text has no pieces then: what a machine of another speed would have cut it into must not
    depend on this one's.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
