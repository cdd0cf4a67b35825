"""What we and the child process that cuts say to each other: a frame for each task and answer."""

from __future__ import annotations

from vmrag_link.code.pieces import DEFAULT_SIZE, CodePiece
from vmrag_link.models import Record

LONGEST_MESSAGE = 1 << 26
"""Bytes. A text of the largest size that is parsed makes fewer, even in pieces of one line."""


class CodeTask(Record, frozen=True):
    """A text to cut into pieces of about `size` characters."""

    text: str
    language: str
    size: int = DEFAULT_SIZE


class CutAnswer(Record, frozen=True):
    """After the `last` one the process ends: it has used too much to go on."""

    pieces: tuple[CodePiece, ...]
    last: bool = False
