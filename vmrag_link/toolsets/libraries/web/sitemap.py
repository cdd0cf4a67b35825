"""The pages that a sitemap names (https://www.sitemaps.org/protocol.html). A file of one is XML, or
has a URL a line; it may be packed by gzip.
"""

from __future__ import annotations

from collections import deque
from typing import Any
from xml.parsers import expat

from vmrag_link.errors import FetchFailed, UsageInvalid
from vmrag_link.http_body import GZIP_BEGINS, BodyDamaged, BodyTooLarge, gunzip
from vmrag_link.models import Record
from vmrag_link.terminal_text import escape_line
from vmrag_link.toolsets.libraries.web.addresses import FetchLimits
from vmrag_link.toolsets.libraries.web.fetching import Fetched, fetch_page
from vmrag_link.toolsets.libraries.web.robots import Robots
from vmrag_link.toolsets.libraries.web.urls import LONGEST, PageUrl, parse_url, shown_url

MOST_PAGES = 1000
"""Pages that are taken unless more are asked for."""

MOST_SITEMAPS = 100
MOST_LEVELS = 3
"""Sitemaps that name sitemaps; the protocol has two levels."""


class Sitemap(Record, frozen=True):
    """The URLs of pages as they are stored, in the order of the sitemap, each once; and what was
    left out.

    `elsewhere`: pages and sitemaps of other hosts, for which a sitemap must not speak;
    `disallowed`: pages that robots.txt keeps this program from; `invalid`: what is no URL; `more`:
    pages and sitemaps beyond the limits, at which nobody looked. `failures`: a sentence for each
    further sitemap that could not be read. `delay_s`: the seconds that the host wants between two
    pages.
    """

    pages: list[str]
    elsewhere: int = 0
    disallowed: int = 0
    invalid: int = 0
    more: int = 0
    failures: tuple[str, ...] = ()
    delay_s: float = 0.0


def urls(url: str, *, limits: FetchLimits, most: int = MOST_PAGES) -> Sitemap:
    """The pages that the sitemap at a URL names, with those of the sitemaps that it names.

    Raises as `fetch` does for that sitemap and for robots.txt, and `FetchFailed` if it is none.
    """
    found = fetch_page(url, limits=limits)
    first = parse_url(url)
    walk = _Walk(limits, most, first, parse_url(found.url))
    walk.take_first(first, found)
    walk.read_further()
    return walk.build_result()


class _Walk:
    """From sitemap to sitemap, beginning where the first one is and where it redirects to: they
    speak for the hosts of both.
    """

    def __init__(self, limits: FetchLimits, most: int, *first: PageUrl) -> None:
        self._limits = limits
        self._most = most
        self._hosts = {each.site for each in first}
        self._known = {each.text for each in first}
        self._robots = Robots(limits)
        self._waiting: deque[tuple[PageUrl, int]] = deque()
        self._pages: list[str] = []
        self._elsewhere = self._disallowed = self._invalid = self._more = 0
        self._failures: list[str] = []
        self._looked_at = 0
        self._delay = 0.0

    def take_first(self, sitemap: PageUrl, found: Fetched) -> None:
        try:
            self._take(read_sitemap(found.data, self._limits.max_bytes), level=1)
        except NotASitemap as error:
            named = self._robots.list_sitemaps(sitemap)
            raise FetchFailed(
                _sentence(sitemap, error),
                hint=f"Its host names this one: {shown_url(named[0])}"
                if named
                else f"{sitemap.site} names none in its robots.txt; name its pages instead.",
                url=sitemap.text,
            ) from error

    def read_further(self) -> None:
        for _ in range(MOST_SITEMAPS - 1):
            if not self._waiting or len(self._pages) == self._most:
                break
            sitemap, level = self._waiting.popleft()
            try:
                found = fetch_page(sitemap.text, limits=self._limits)
                self._take(read_sitemap(found.data, self._limits.max_bytes), level)
            except FetchFailed as error:
                self._failures.append(error.message)
            except NotASitemap as error:
                self._failures.append(_sentence(sitemap, error))
        self._more += len(self._waiting)

    def _take(self, file: SitemapFile, level: int) -> None:
        room = max(0, MOST_LOCATIONS - self._looked_at)
        self._more += file.more + len(file.locations[room:])
        self._looked_at += len(file.locations)
        for location in file.locations[:room]:
            try:
                url = parse_url(location)
            except UsageInvalid:
                self._invalid += 1
                continue
            if url.text in self._known:
                continue
            self._known.add(url.text)
            if url.site not in self._hosts:
                self._elsewhere += 1
            elif not file.index:
                self._take_page(url)
            elif level < MOST_LEVELS:
                self._waiting.append((url, level + 1))
            else:
                self._more += 1

    def _take_page(self, url: PageUrl) -> None:
        if len(self._pages) == self._most:
            self._more += 1
        elif not self._robots.allows_page(url):
            self._disallowed += 1
        else:
            self._pages.append(url.text)
            self._delay = max(self._delay, self._robots.find_delay(url))

    def build_result(self) -> Sitemap:
        return Sitemap(
            self._pages,
            self._elsewhere,
            self._disallowed,
            self._invalid,
            self._more,
            tuple(self._failures),
            self._delay,
        )


def _sentence(sitemap: PageUrl, error: NotASitemap) -> str:
    return f"{sitemap} is no sitemap: it {escape_line(str(error))}."


MOST_LOCATIONS = 50_000
"""What the protocol allows in a file; the rest is counted."""

_MOST_ELEMENTS = 1_000_000
"""Of any name: twenty for each location. More would take minutes, from a few packed kilobytes."""

_MOST_LEVELS = 100
"""A parser keeps each open element in memory."""

_CONTAINERS = {"urlset": "url", "sitemapindex": "sitemap"}


class NotASitemap(Exception):
    """The reason, as the end of a sentence about the file."""


class SitemapFile(Record, frozen=True):
    """`locations` are texts, as they stand there: of sitemaps if it is an `index`, else of pages.

    `more`: how many there are beyond those.
    """

    locations: list[str]
    index: bool = False
    more: int = 0


def read_sitemap(data: bytes, most_bytes: int) -> SitemapFile:
    """Raises `NotASitemap`."""
    if data.startswith(GZIP_BEGINS):
        try:
            data = gunzip(data, most_bytes)
        except BodyDamaged:
            raise NotASitemap("is packed, and cannot be unpacked") from None
        except BodyTooLarge:
            raise NotASitemap(f"has more than {most_bytes:,} bytes unpacked") from None
    if not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"http://", b"https://")):
        return _Xml().parse_file(data)
    lines = [line.strip() for line in data.decode("utf-8-sig", errors="replace").splitlines() if line.strip()]
    return SitemapFile(lines[:MOST_LOCATIONS], more=max(0, len(lines) - MOST_LOCATIONS))


class _Xml:
    """Reads `urlset/url/loc` and `sitemapindex/sitemap/loc`, and nothing else, of any namespace."""

    def __init__(self) -> None:
        self._path: list[str] = []
        self._depth = self._elements = 0
        self._text: list[str] = []
        self._length = 0
        self._found: list[str] = []
        self._more = 0

    def parse_file(self, data: bytes) -> SitemapFile:
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = _refuse
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        try:
            parser.Parse(data, True)
        except expat.ExpatError as error:
            raise NotASitemap(f"is no XML: {expat.ErrorString(error.code)}, line {error.lineno}") from error
        except (LookupError, ValueError) as error:
            raise NotASitemap("is in an encoding that XML readers need not know") from error
        return SitemapFile(self._found, self._path[0] == "sitemapindex", self._more)

    def _start(self, name: str, _attributes: dict[str, str]) -> None:
        self._depth += 1
        self._elements += 1
        if self._depth > _MOST_LEVELS:
            raise NotASitemap(f"nests its elements deeper than {_MOST_LEVELS} levels")
        if self._elements > _MOST_ELEMENTS:
            raise NotASitemap(f"has more than {_MOST_ELEMENTS:,} elements")
        del self._path[self._depth - 1 :]
        if self._depth <= len(("urlset", "url", "loc")):
            self._path.append(name.rpartition(" ")[2])
        if self._depth == 1 and self._path[0] not in _CONTAINERS:
            raise NotASitemap(f"begins with <{self._path[0][:40]}> instead of <urlset> or <sitemapindex>")
        self._text, self._length = [], 0

    def _characters(self, text: str) -> None:
        if self._length <= LONGEST:
            self._text.append(text)
            self._length += len(text)

    def _end(self, _name: str) -> None:
        root = self._path[0]
        if self._depth == len(self._path) and self._path[1:] == [_CONTAINERS[root], "loc"]:
            if len(self._found) < MOST_LOCATIONS:
                self._found.append("".join(self._text).strip())
            else:
                self._more += 1
        self._depth -= 1


def _refuse(*_: Any) -> None:
    """Entities are declared in a DOCTYPE, and a sitemap has none: no bomb, and no other file."""
    raise NotASitemap("has a DOCTYPE, which a sitemap may not have")
