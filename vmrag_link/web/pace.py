"""The time that hosts want between two requests."""

from __future__ import annotations

import time
from collections.abc import Callable

from vmrag_link.web.urls import PageUrl


class Pace:
    """`delay` gives the seconds that the host of a page wants."""

    def __init__(self, delay: Callable[[PageUrl], float]) -> None:
        self._delay = delay
        self._next: dict[str, float] = {}

    def wait(self, page: PageUrl) -> None:
        """Until the host may be asked again. Raises what `delay` does."""
        seconds = self._delay(page)
        time.sleep(max(0.0, self._next.get(page.site, 0.0) - time.monotonic()))
        self._next[page.site] = time.monotonic() + seconds
