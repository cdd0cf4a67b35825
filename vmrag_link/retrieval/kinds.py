"""Results of both kinds, documents and code, in one answer.

Each kind keeps the ranking that it has alone. No measure finds the right kind for every question
(bench/README.md). So the kind that more likely answers begins, and both kinds have places.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

_FIRST_TURNS = (0, 1, 0, 1, 0, 1)
_TURNS = (0, 0, 1)
"""The list from which each result comes: 0 is that of the kind that begins."""

_PLAIN, _QUESTION = 10, 20
_CODE, _ABOUT_CODE = 11, 13
"""Factors of documents for a question as people write it, and of code for words about code."""

_ASKING = re.compile(
    r"\s*(?:how (?:can|could|do|does|should|to|would)"
    r"|what(?:'s| are| do| does| is)|why|when|which|can|could|should|do|does|is|are)\b",
    re.IGNORECASE,
)
_OF_CODE = re.compile(
    r"\s*(?:return|raise|yield)(?:s|d|ed)?\b"
    r"|\b(?:callback|class|decorator|defined|exception|function|implementation|implemented|instance|iterator|method|subclass|wrapper)\b",
    re.IGNORECASE,
)


T = TypeVar("T")


def prefers_code(text: str, documents: float, code: float) -> bool:
    """Return whether code begins. `documents`, `code`: how near the best of each kind come."""
    document_factor = _QUESTION if _ASKING.match(text) else _PLAIN
    code_factor = _ABOUT_CODE if _OF_CODE.search(text) else _CODE
    return code * code_factor > documents * document_factor


def alternate_kinds(first: Sequence[T], second: Sequence[T]) -> list[T]:
    """Return two ranked lists as one: six results by turns, then two and one."""
    waiting = deque(first), deque(second)
    merged: list[T] = []
    for turn in itertools.chain(_FIRST_TURNS, itertools.cycle(_TURNS)):
        if not all(waiting):
            break
        merged.append(waiting[turn].popleft())
    return [*merged, *waiting[0], *waiting[1]]
