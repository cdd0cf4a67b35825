"""`python -m vmrag_link.code.child`: split texts into pieces (see `conversion.child.serving`).

A grammar is loaded when the first text needs it, from Python's own folders, which a confined
process may read. An edited file waits for the start of this process, so this module imports little.
"""

from __future__ import annotations

import json
import sys
import time
from typing import IO, NamedTuple

import vmrag_link.code.symbols  # noqa: F401  before `confine_process`, so that Python can write the compiled file
from vmrag_link.code.cutting import cut_code
from vmrag_link.code.languages import LONGEST_MESSAGE
from vmrag_link.conversion.child.serving import LONGEST_TASK, is_memory_exhausted, serve_tasks
from vmrag_link.conversion.limits import ConversionLimits, Disconnected, receive_frame


class _Text(NamedTuple):
    language: str
    size: int
    content: str


def _receive_text(stdin: IO[bytes], _limits: ConversionLimits) -> _Text:
    language, size = json.loads(receive_frame(stdin, LONGEST_TASK))
    return _Text(language, size, receive_frame(stdin, LONGEST_MESSAGE).decode())


def _cut_text(text: _Text, limits: ConversionLimits) -> tuple[bytes, bool]:
    before = time.process_time()
    pieces, last = cut_code(text.content, text.language, text.size), is_memory_exhausted(limits)
    return json.dumps((pieces, time.process_time() - before, last)).encode(), last


if __name__ == "__main__":
    try:
        serve_tasks(_receive_text, _cut_text)
    except Disconnected:
        sys.exit(0)
