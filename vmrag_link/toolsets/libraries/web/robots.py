"""The rules of robots.txt for this program (RFC 9309), and the pauses between requests."""

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


MAX_DELAY_SECONDS = 30.0
"""Maximum pause between two pages, in seconds, if a site asks for more."""

_MAX_ROBOTS_BYTES = 512_000
_CLIENT_ERRORS = range(400, 500)


class Robots:
    """The robots.txt files of all contacted hosts. Each is fetched once."""

    def __init__(self, limits: FetchLimits) -> None:
        self._limits = msgspec.structs.replace(limits, max_bytes=_MAX_ROBOTS_BYTES)
        self._rules: dict[tuple[str, str, int], Protego | VmragError] = {}

    def allows_page(self, page: PageUrl) -> bool:
        """Return whether robots.txt allows a page. Raises `FetchFailed` if it cannot be read."""
        return self._find_rules(page).can_fetch(page.text, ROBOT)

    def find_delay(self, page: PageUrl) -> float:
        """Return the seconds between two pages of this host.

        Raises `FetchFailed` and `AccessDenied`.
        """
        return min(self._find_rules(page).crawl_delay(ROBOT) or 0.0, MAX_DELAY_SECONDS)

    def list_sitemaps(self, page: PageUrl) -> list[str]:
        """Return the sitemaps that the host of a page names, unchecked.

        Raises `FetchFailed` and `AccessDenied`.
        """
        return list(self._find_rules(page).sitemaps)

    def _find_rules(self, page: PageUrl) -> Protego:
        if page.origin not in self._rules:
            try:
                self._rules[page.origin] = self._fetch_rules(page)
            except (AccessDenied, FetchFailed) as error:
                self._rules[page.origin] = error  # a host that does not answer is not asked for each page
        rules = self._rules[page.origin]
        if isinstance(rules, VmragError):
            raise rules
        return rules

    def _fetch_rules(self, page: PageUrl) -> Protego:
        text = self._fetch_text(page)
        from protego import Protego  # only now: without the extra, an error comes first

        return Protego.parse(text)

    def _fetch_text(self, page: PageUrl) -> str:
        url = f"{page.scheme}://{page.site}/robots.txt"
        try:
            answer = fetch_page(url, limits=self._limits)
        except FetchFailed as failed:
            if failed.details["http_status"] in _CLIENT_ERRORS:  # there is none: everything is allowed
                return ""
            raise FetchFailed(
                f"cannot read the robots.txt of {page.site}: {failed.message}",
                hint=failed.hint,
                **failed.details,
            ) from failed
        return answer.data.decode("utf-8-sig", errors="replace")


class Pace:
    """Waits between requests. `delay` returns the seconds for the host of a page."""

    def __init__(self, delay: Callable[[PageUrl], float]) -> None:
        self._delay = delay
        self._next: dict[str, float] = {}
        """The time of the next request by host (`time.monotonic`)."""

    def wait_turn(self, page: PageUrl) -> None:
        """Wait until the host can be contacted again. Raises the errors of `delay`."""
        seconds = self._delay(page)
        sleep(max(0.0, self._next.get(page.site, 0.0) - monotonic()))
        self._next[page.site] = monotonic() + seconds
