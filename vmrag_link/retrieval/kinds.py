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

_PLAIN_FACTOR = 10
"""Factor of documents if the text is not a question."""

_QUESTION_FACTOR = 20
"""Factor of documents if the text is a question, such as `how do I`."""

_CODE_FACTOR = 12
"""Factor of code if the text has no words about code."""

_ABOUT_CODE_FACTOR = 14
"""Factor of code if the text has words about code, such as `class`."""

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
    """Return whether code is likelier than documents to answer, so that it comes first.

    `documents`, `code`: the nearness of the best result of each kind.
    """
    document_factor = _QUESTION_FACTOR if _ASKING.match(text) else _PLAIN_FACTOR
    code_factor = _ABOUT_CODE_FACTOR if _ABOUT.search(text) else _CODE_FACTOR
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
