"""Merge documents and code into one answer.

Each kind keeps its own ranking. No measure finds the right kind for every question
(bench/README.md). So the answer starts with the likelier kind, and both kinds get ranks.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

_FIRST_TURNS = (0, 1, 0, 1, 0, 1)
_TURNS = (0, 0, 1)
"""The list of each result. 0 is the list of the likelier kind."""

_PLAIN, _QUESTION = 10, 20
_CODE, _ABOUT_CODE = 12, 14
"""Factors of documents (plain words, a question), and of code (other words, words about code)."""

_ASKING = re.compile(
    r"\s*(?:how (?:can|could|do|does|should|to|would)"
    r"|what(?:'s| are| do| does| is)|why|when|which|can|could|should|do|does|is|are)\b",
    re.IGNORECASE,
)
_ABOUT = re.compile(
    r"\s*(?:return|raise|yield)(?:s|d|ed)?\b"
    r"|\b(?:callback|class|decorator|defined|exception|function|implementation|implemented|instance|iterator|method|subclass|wrapper)\b",
    re.IGNORECASE,
)


T = TypeVar("T")


def prefers_code(text: str, documents: float, code: float) -> bool:
    """Return whether the answer starts with code.

    `documents`, `code`: the nearness of the best result of each kind.
    """
    document_factor = _QUESTION if _ASKING.match(text) else _PLAIN
    code_factor = _ABOUT_CODE if _ABOUT.search(text) else _CODE
    return code * code_factor > documents * document_factor


def alternate_kinds(first: Sequence[T], second: Sequence[T]) -> list[T]:
    """Merge two ranked lists: six results in alternation, then two of the first list for each of
    the second.
    """
    waiting = deque(first), deque(second)
    merged: list[T] = []
    for turn in itertools.chain(_FIRST_TURNS, itertools.cycle(_TURNS)):
        if not all(waiting):
            break
        merged.append(waiting[turn].popleft())
    return [*merged, *waiting[0], *waiting[1]]
