"""The progress of a running call, which is also where a cancelled call ends.

Operations report each step of their work. The report reaches the client, and raises `Cancelled` if
the client has cancelled the call. Operations can be stopped at any of these points, so no stored
data is lost.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from vmrag_link.progress import Task

Report = Callable[[int, int, str], None]
"""Takes the number of steps done, the number of known steps, and a description. Runs in the call's
thread.
"""


class Cancelled(BaseException):
    """The client cancelled the call.

    Not an `Exception`, so code that handles errors does not catch it.
    """


class CallProgress:
    """A `Progress` that counts the steps of all tasks, also of nested ones.

    The number of finished steps never decreases, whatever totals the tasks expected. Set
    `cancelled` in any thread to end the call.
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
        remaining = total - task.done
        self._done, self._total = self._done + max(remaining, 0), self._total - min(remaining, 0)

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def count_steps(self, steps: int, description: str) -> None:
        """Count finished steps of a task. Raises `Cancelled`."""
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
