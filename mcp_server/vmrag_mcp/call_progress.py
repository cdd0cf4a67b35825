"""What a tool call reports while it is under way, and where the client can stop it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from vmrag_link.progress import Task

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

    def count(self, steps: int, description: str) -> None:
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
        self._progress.count(steps, self._description)
