"""The time that hosts want between two requests."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep

from vmrag_link.toolsets.libraries.web.urls import PageUrl


class Pace:
    """`delay` gives the seconds that the host of a page wants."""

    def __init__(self, delay: Callable[[PageUrl], float]) -> None:
        self._delay = delay
        self._next: dict[str, float] = {}

    def wait(self, page: PageUrl) -> None:
        """Until the host may be asked again. Raises what `delay` does."""
        seconds = self._delay(page)
        sleep(max(0.0, self._next.get(page.site, 0.0) - monotonic()))
        self._next[page.site] = monotonic() + seconds
