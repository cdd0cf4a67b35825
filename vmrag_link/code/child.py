"""`python -m vmrag_link.code.child`: cut texts, as `conversion.child.serving` says.

A grammar is loaded when the first text needs it: from Python's own folders, which a confined
process may read.
"""

from __future__ import annotations

import sys
import time
from typing import IO

import msgspec

import vmrag_link.code.symbols  # noqa: F401  before `confine`, so that Python can store it compiled
from vmrag_link.code.cutting import cut
from vmrag_link.code.languages import LONGEST_MESSAGE, CodeTask, CutAnswer
from vmrag_link.conversion.child.serving import is_used_up, serve
from vmrag_link.conversion.limits import ConversionLimits, Disconnected, receive


def _receive(stdin: IO[bytes], _limits: ConversionLimits) -> CodeTask:
    return msgspec.msgpack.decode(receive(stdin, LONGEST_MESSAGE), type=CodeTask)


def _answer(task: CodeTask, limits: ConversionLimits) -> CutAnswer:
    before = time.process_time()
    pieces = cut(task.text, task.language, task.size)
    return CutAnswer(tuple(pieces), time.process_time() - before, last=is_used_up(limits))


if __name__ == "__main__":
    try:
        serve(_receive, _answer)
    except Disconnected:
        sys.exit(0)
