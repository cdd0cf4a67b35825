"""What the server says beside the protocol: on standard error, because standard output is the
client's.
"""

from __future__ import annotations

import sys

from vmrag_link import terminal_text


def log(sentence: str) -> None:
    """One line; nothing in it steers a terminal, or the runner of a CI job."""
    sys.stderr.write(terminal_text.for_log(f"vmrag-mcp: {terminal_text.one_line(sentence)}\n"))
    sys.stderr.flush()
