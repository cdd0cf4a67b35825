"""The process of the server: its standard streams, its log and its end.

The server takes its standard streams before it imports anything that could print: standard output
belongs to the client, and people read standard error. The process ends at once, whatever its
threads do. Operations can be killed at any point, so no stored data is lost.
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
"""Maximum time between the end of input and the end of the process, even if the event
loop is busy.
"""

PATIENCE_SECONDS = 0.5
"""Delay of the server's other imports after the client has its list of tools."""

_ABOVE_STANDARD = 3


def log(sentence: str) -> None:
    """Print one line to standard error. It cannot control a terminal, or the runner of a CI job."""
    sys.stderr.write(terminal_text.escape_for_log(f"vmrag-mcp: {terminal_text.escape_line(sentence)}\n"))
    sys.stderr.flush()


def exit_now(code: int = OK) -> NoReturn:
    """End the process without waiting for threads. Also ends the programs that they wait for."""
    proc.terminate_programs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(
            OSError, ValueError, RuntimeError
        ):  # RuntimeError: a signal arrived while the stream was written
            stream.flush()
    os._exit(code)


def exit_soon() -> None:
    """End the process soon after the end of input, even if the event loop is busy."""
    deadline = threading.Timer(_SECONDS_AFTER_INPUT, exit_now)
    deadline.daemon = True
    deadline.start()


def exit_on_signals() -> None:
    """End on SIGTERM and on a closed terminal as at the end of input, and on Ctrl-C as
    commands do.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: exit_now())
    signal.signal(signal.SIGINT, lambda *_: exit_now(INTERRUPTED))


def exit_with_parent() -> None:
    """End with the client's process.

    Other processes can keep the pipe open, so input does not end.
    """
    parent = os.getppid()

    def watch_parent() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        exit_now()

    threading.Thread(target=watch_parent, name="parent", daemon=True).start()


class Wire:
    """The standard streams of the server, which only this object can use after it was created.

    Other output goes to standard error, and children read nothing.
    """

    def __init__(self) -> None:
        sys.stdout.flush()
        self._input = os.fdopen(_private_copy(0), "rb")
        self._output = _private_copy(1)
        self._writing = threading.Lock()
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # standard error is closed
            os.dup2(nothing, 1)
        os.close(nothing)

    @property
    def is_terminal(self) -> bool:
        """True if a person types the input."""
        return self._input.isatty()

    def read_line(self) -> bytes:
        """Return the next line; empty at the end of input."""
        try:
            line = self._input.readline()
        except OSError:  # the terminal was closed
            line = b""
        return line

    def write_line(self, line: bytes) -> None:
        rest = memoryview(line)
        try:
            with self._writing:
                while rest:
                    rest = rest[os.write(self._output, rest) :]
        except OSError:  # the client no longer reads
            exit_now()


def _private_copy(descriptor: int) -> int:
    """Return a copy of a descriptor that children do not inherit."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE_STANDARD)
