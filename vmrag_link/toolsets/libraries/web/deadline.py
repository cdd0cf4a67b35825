"""One limit of time for work of many steps."""

from __future__ import annotations

import time


class Deadline:
    """Begins when it is made."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """The seconds that are left. Raises `TimeoutError` if none are."""
        seconds = self._end - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds
