"""What robots.txt allows to this program, as RFC 9309 has it, and the time that hosts want between
two requests.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import TYPE_CHECKING

import msgspec

from vmrag_link.errors import AccessDenied, FetchFailed, VmragError
from vmrag_link.toolsets.libraries.web.addresses import FetchLimits
from vmrag_link.toolsets.libraries.web.fetching import fetch_page
from vmrag_link.toolsets.libraries.web.urls import ROBOT, PageUrl

if TYPE_CHECKING:
    from protego import Protego


LONGEST_DELAY = 30.0
"""Seconds between two pages that a site may ask for; who wants more gets this."""

_MOST_BYTES = 512_000
_CLIENT_ERRORS = range(400, 500)


class Robots:
    """The robots.txt of every host that is asked about, each fetched once."""

    def __init__(self, limits: FetchLimits) -> None:
        self._limits = msgspec.structs.replace(limits, max_bytes=_MOST_BYTES)
        self._rules: dict[tuple[str, str, int], Protego | VmragError] = {}

    def allows_page(self, page: PageUrl) -> bool:
        """Raises `FetchFailed` where nobody can say, `AccessDenied`."""
        return self._rules_for(page).can_fetch(page.text, ROBOT)

    def find_delay(self, page: PageUrl) -> float:
        """The seconds to wait between two pages of this host. Raises as `allows` does."""
        return min(self._rules_for(page).crawl_delay(ROBOT) or 0.0, LONGEST_DELAY)

    def list_sitemaps(self, page: PageUrl) -> list[str]:
        """What the host of a page calls its sitemaps; nobody has checked them. Raises as `allows`
        does.
        """
        return list(self._rules_for(page).sitemaps)

    def _rules_for(self, page: PageUrl) -> Protego:
        if page.origin not in self._rules:
            try:
                self._rules[page.origin] = self._fetched(page)
            except (AccessDenied, FetchFailed) as error:
                self._rules[page.origin] = error  # a host that does not answer is not asked for each page
        found = self._rules[page.origin]
        if isinstance(found, VmragError):
            raise found
        return found

    def _fetched(self, page: PageUrl) -> Protego:
        text = self._text(page)
        from protego import Protego  # after what says that the base installation fetches nothing

        return Protego.parse(text)

    def _text(self, page: PageUrl) -> str:
        url = f"{page.scheme}://{page.site}/robots.txt"
        try:
            found = fetch_page(url, limits=self._limits)
        except FetchFailed as failed:
            if failed.details["http_status"] in _CLIENT_ERRORS:  # there is none: everything is allowed
                return ""
            raise FetchFailed(
                f"Nobody can say what {page.site} allows to programs: {failed.message}",
                hint=failed.hint,
                **failed.details,
            ) from failed
        return found.data.decode("utf-8-sig", errors="replace")


class Pace:
    """`delay` gives the seconds that the host of a page wants."""

    def __init__(self, delay: Callable[[PageUrl], float]) -> None:
        self._delay = delay
        self._next: dict[str, float] = {}

    def wait_turn(self, page: PageUrl) -> None:
        """Until the host may be asked again. Raises what `delay` does."""
        seconds = self._delay(page)
        sleep(max(0.0, self._next.get(page.site, 0.0) - monotonic()))
        self._next[page.site] = monotonic() + seconds
