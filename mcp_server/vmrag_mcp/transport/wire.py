"""The standard streams, taken away before anything is imported that could print."""

from __future__ import annotations

import fcntl
import os
import sys
import threading

from vmrag_mcp.transport.shutdown import leave

_LAST_SECONDS = 0.9
"""So long after the end of input the process is gone, whatever keeps the event loop."""

_ABOVE_STANDARD = 3


class Wire:
    """What is printed goes to standard error from now on, and children read nothing."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._input = os.fdopen(_private_copy(0), "rb")
        self._output = _private_copy(1)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # there is no standard error
            os.dup2(nothing, 1)
        os.close(nothing)

    @property
    def typed(self) -> bool:
        """A person sits there."""
        return self._input.isatty()

    def line(self) -> bytes:
        """Empty at the end of input."""
        try:
            found = self._input.readline()
        except OSError:  # a terminal that is gone
            found = b""
        if not found:
            deadline = threading.Timer(_LAST_SECONDS, leave)
            deadline.daemon = True
            deadline.start()
        return found

    def write(self, line: bytes) -> None:
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._output, rest) :]
        except OSError:  # the client reads no more
            leave()


def _private_copy(descriptor: int) -> int:
    """A copy that no child inherits."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE_STANDARD)
