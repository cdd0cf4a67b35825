"""A piece of work in its own thread, such as hashing, which runs without the interpreter's lock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class ThreadTask(Generic[T]):
    """Work that begins at once. `result` waits for it, and returns or raises its outcome.

    With a `timeout` in seconds, `result` raises `TimeoutError` instead of waiting longer, and the
    work continues. A process that ends does not wait for the work. `concurrent.futures` takes
    longer to import than most of this work.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run_work, daemon=True)
        self._thread.start()

    def _run_work(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:  # noqa: BLE001  raised where it is waited for
            self._error = error

    def result(self, timeout: float | None = None) -> T:
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._results[0]
