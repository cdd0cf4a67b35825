"""The process of the server: its standard streams, what it says to people, and its end.

The standard streams are taken away before anything is imported that could print: standard output is
the client's, and people read standard error. The end comes at once, whatever threads do: operations
can be killed anywhere, so nothing that was stored is lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import threading
import time
from typing import NoReturn

from vmrag_link import proc, terminal_text
from vmrag_link.errors import INTERRUPTED, OK

_WATCH_SECONDS = 0.5

_SECONDS_AFTER_INPUT = 0.9
"""So long after the end of input the process is gone, whatever keeps the event loop."""

_ABOVE_STANDARD = 3


def log(sentence: str) -> None:
    """One line; nothing in it steers a terminal, or the runner of a CI job."""
    sys.stderr.write(terminal_text.for_log(f"vmrag-mcp: {terminal_text.one_line(sentence)}\n"))
    sys.stderr.flush()


def leave(code: int = OK) -> NoReturn:
    """Threads are not waited for; programs that they wait for end, too."""
    proc.abandon()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(
            OSError, ValueError, RuntimeError
        ):  # RuntimeError: a signal came while it was written to
            stream.flush()
    os._exit(code)


def leave_when_told() -> None:
    """SIGTERM and a closed terminal end it as its client does, Ctrl-C as it ends commands."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: leave())
    signal.signal(signal.SIGINT, lambda *_: leave(INTERRUPTED))


def leave_with_parent() -> None:
    """End with the client's process: others may keep the pipe open, so no end of input comes."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        leave()

    threading.Thread(target=watch, name="parent", daemon=True).start()


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
            deadline = threading.Timer(_SECONDS_AFTER_INPUT, leave)
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
