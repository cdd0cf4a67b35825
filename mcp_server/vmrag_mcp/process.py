"""The process of the server: its standard streams, what it says to people, and its end.

The standard streams are taken away before anything is imported that could print: standard output is
the client's, and people read standard error. The end comes at once, whatever threads do: operations
can be killed anywhere, so nothing that was stored is lost. A call that a client gives up ends where
it reports its progress.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

from vmrag_link import proc, terminal_text
from vmrag_link.errors import INTERRUPTED, OK
from vmrag_link.progress import Task

_WATCH_SECONDS = 0.5

_SECONDS_AFTER_INPUT = 0.9
"""So long after the end of input the process is gone, whatever keeps the event loop."""

PATIENCE_SECONDS = 0.5
"""How long a server waits before it imports more, once the client has its list of tools."""

_ABOVE_STANDARD = 3


def log(sentence: str) -> None:
    """One line; nothing in it steers a terminal, or the runner of a CI job."""
    sys.stderr.write(terminal_text.escape_for_log(f"vmrag-mcp: {terminal_text.escape_line(sentence)}\n"))
    sys.stderr.flush()


def exit_now(code: int = OK) -> NoReturn:
    """Threads are not waited for; programs that they wait for end, too."""
    proc.terminate_programs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(
            OSError, ValueError, RuntimeError
        ):  # RuntimeError: a signal came while it was written to
            stream.flush()
    os._exit(code)


def exit_soon() -> None:
    """Call it at the end of input: the process ends even if the event loop is kept."""
    deadline = threading.Timer(_SECONDS_AFTER_INPUT, exit_now)
    deadline.daemon = True
    deadline.start()


def exit_on_signals() -> None:
    """SIGTERM and a closed terminal end it as its client does, Ctrl-C as it ends commands."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: exit_now())
    signal.signal(signal.SIGINT, lambda *_: exit_now(INTERRUPTED))


def exit_with_parent() -> None:
    """End with the client's process: others may keep the pipe open, so no end of input comes."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        exit_now()

    threading.Thread(target=watch, name="parent", daemon=True).start()


class Wire:
    """What is printed goes to standard error from now on, and children read nothing."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._input = os.fdopen(_private_copy(0), "rb")
        self._output = _private_copy(1)
        self._writing = threading.Lock()
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # there is no standard error
            os.dup2(nothing, 1)
        os.close(nothing)

    @property
    def is_terminal(self) -> bool:
        """A person sits there."""
        return self._input.isatty()

    def read_line(self) -> bytes:
        """Empty at the end of input."""
        try:
            found = self._input.readline()
        except OSError:  # a terminal that is gone
            found = b""
        return found

    def write_line(self, line: bytes) -> None:
        rest = memoryview(line)
        try:
            with self._writing:
                while rest:
                    rest = rest[os.write(self._output, rest) :]
        except OSError:  # the client reads no more
            exit_now()


def _private_copy(descriptor: int) -> int:
    """A copy that no child inherits."""
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _ABOVE_STANDARD)


Report = Callable[[int, int, str], None]
"""Takes the steps done, the steps known so far, and a description; in the call's thread."""


class Cancelled(BaseException):
    """The client gave the call up. No error: nothing that catches errors may take it for one."""


class CallProgress:
    """What a call under way reports. Raises `Cancelled` from where the work can be stopped.

    Steps are counted over all pieces of work, those within others included: what is done never
    falls, whatever the pieces expected.
    """

    def __init__(self, report: Report | None = None) -> None:
        self.cancelled = threading.Event()
        self.notes: list[str] = []
        self._report = report
        self._done = self._total = 0

    @contextlib.contextmanager
    def task(self, description: str, total: int) -> Iterator[Task]:
        self._total += total
        task = _CallTask(self, description)
        task.advance(0)
        yield task
        left = total - task.done
        self._done, self._total = self._done + max(left, 0), self._total - min(left, 0)

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def count_steps(self, steps: int, description: str) -> None:
        """Steps of a piece of work. Raises `Cancelled`."""
        self._done += steps
        if self.cancelled.is_set():
            raise Cancelled
        if self._report:
            self._report(self._done, max(self._done, self._total), description)


class _CallTask:
    def __init__(self, progress: CallProgress, description: str) -> None:
        self._progress, self._description = progress, description
        self.done = 0

    def advance(self, steps: int = 1) -> None:
        self.done += steps
        self._progress.count_steps(steps, self._description)
