"""The pages that a sitemap names (https://www.sitemaps.org/protocol.html).

A sitemap file is XML, or has one URL per line. It can be compressed by gzip, and can name further
sitemaps instead of pages. Everything is limited, because a site can send any file.
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
from vmrag_link.toolsets.libraries.web.urls import MAX_URL_CHARS, PageUrl, parse_url, shown_url

MAX_PAGES = 1000
"""Default maximum number of pages."""

MAX_SITEMAPS = 100
MAX_LEVELS = 3
"""Maximum nesting of sitemaps. The protocol has two levels."""

MAX_LOCATIONS = 50_000
"""The protocol's maximum number of locations in a file. Further locations are only counted."""

_MAX_ELEMENTS = 1_000_000
"""Maximum number of elements of any name: twenty for each location. More could take minutes, from a
few compressed kilobytes.
"""

_MAX_DEPTH = 100
"""Maximum depth of elements. A parser keeps each open element in memory."""

_CONTAINERS = {"urlset": "url", "sitemapindex": "sitemap"}
"""The root elements of a file, each with the element around a location."""


class Sitemap(Record, frozen=True):
    """The pages of a sitemap, and what was left out.

    URLs have their stored form and the order of the sitemap, without duplicates. `elsewhere` counts
    pages and sitemaps of other hosts, which a sitemap cannot include. `disallowed` counts pages
    that robots.txt forbids, `invalid` counts invalid URLs, and `more` counts pages and sitemaps
    above the limits. `failures` has a sentence for each further sitemap that could not be read.
    """

    pages: list[str]
    elsewhere: int = 0
    disallowed: int = 0
    invalid: int = 0
    more: int = 0
    failures: tuple[str, ...] = ()
    delay_s: float = 0.0


def list_pages(url: str, *, limits: FetchLimits, max_pages: int = MAX_PAGES) -> Sitemap:
    """Return the pages that a sitemap names, including the pages of nested sitemaps.

    Raises the errors of `fetch_page` for that sitemap and for robots.txt, and `FetchFailed` if the
    file is not a sitemap.
    """
    return _Walk(limits, max_pages).list_pages(parse_url(url), fetch_page(url, limits=limits))


class _Walk:
    """Reads nested sitemaps.

    They can name pages of the first sitemap's host and of the host that it redirects to.
    """

    def __init__(self, limits: FetchLimits, max_pages: int) -> None:
        self._limits = limits
        self._max_pages = max_pages
        self._hosts: set[str] = set()
        self._seen_urls: set[str] = set()
        self._robots = Robots(limits)
        self._waiting: deque[tuple[PageUrl, int]] = deque()
        """Sitemaps to read, with their levels."""
        self._pages: list[str] = []
        self._elsewhere = self._disallowed = self._invalid = self._more = 0
        self._failures: list[str] = []
        self._location_count = 0
        self._delay = 0.0

    def list_pages(self, sitemap: PageUrl, fetched: Fetched) -> Sitemap:
        """Return the pages of a sitemap and of all sitemaps that it names."""
        for url in (sitemap, parse_url(fetched.url)):
            self._hosts.add(url.site)
            self._seen_urls.add(url.text)
        try:
            self._add_locations(read_sitemap(fetched.data, self._limits.max_bytes), level=1)
        except NotASitemap as error:
            named = self._robots.list_sitemaps(sitemap)
            raise FetchFailed(
                _describe_failure(sitemap, error),
                hint=f"use the sitemap that its host names: {shown_url(named[0])}"
                if named
                else f"name the pages instead, because {sitemap.site} names no sitemap in its robots.txt",
                url=sitemap.text,
            ) from error
        for _ in range(MAX_SITEMAPS - 1):
            if not self._waiting or len(self._pages) == self._max_pages:
                break
            self._read_nested(*self._waiting.popleft())
        return Sitemap(
            pages=self._pages,
            elsewhere=self._elsewhere,
            disallowed=self._disallowed,
            invalid=self._invalid,
            more=self._more + len(self._waiting),
            failures=tuple(self._failures),
            delay_s=self._delay,
        )

    def _read_nested(self, sitemap: PageUrl, level: int) -> None:
        try:
            page = fetch_page(sitemap.text, limits=self._limits)
            self._add_locations(read_sitemap(page.data, self._limits.max_bytes), level)
        except FetchFailed as error:
            self._failures.append(error.message)
        except NotASitemap as error:
            self._failures.append(_describe_failure(sitemap, error))

    def _add_locations(self, file: SitemapFile, level: int) -> None:
        room = max(0, MAX_LOCATIONS - self._location_count)
        self._more += file.more + len(file.locations[room:])
        self._location_count += len(file.locations)
        for location in file.locations[:room]:
            try:
                url = parse_url(location)
            except UsageInvalid:
                self._invalid += 1
                continue
            if url.text in self._seen_urls:
                continue
            self._seen_urls.add(url.text)
            if url.site not in self._hosts:
                self._elsewhere += 1
            elif not file.index:
                self._add_page(url)
            elif level < MAX_LEVELS:
                self._waiting.append((url, level + 1))
            else:
                self._more += 1

    def _add_page(self, url: PageUrl) -> None:
        if len(self._pages) == self._max_pages:
            self._more += 1
        elif not self._robots.allows_page(url):
            self._disallowed += 1
        else:
            self._pages.append(url.text)
            self._delay = max(self._delay, self._robots.find_delay(url))


def _describe_failure(sitemap: PageUrl, error: NotASitemap) -> str:
    return f"{sitemap} is not a sitemap: it {escape_line(str(error))}."


class NotASitemap(Exception):
    """The file is not a sitemap. The message is the end of a sentence about the file."""


class SitemapFile(Record, frozen=True):
    """A file of a sitemap.

    `locations` name sitemaps if it is an `index`, or else pages. `more` counts further locations.
    """

    locations: list[str]
    index: bool = False
    more: int = 0


def read_sitemap(data: bytes, max_bytes: int) -> SitemapFile:
    """Parse a file of a sitemap. Raises `NotASitemap`."""
    if data.startswith(GZIP_BEGINS):
        try:
            data = gunzip(data, max_bytes)
        except BodyDamaged:
            raise NotASitemap("is packed, and cannot be unpacked") from None
        except BodyTooLarge:
            raise NotASitemap(f"has more than {max_bytes:,} bytes unpacked") from None
    if not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"http://", b"https://")):
        return _Xml().parse_file(data)
    lines = [line.strip() for line in data.decode("utf-8-sig", errors="replace").splitlines() if line.strip()]
    return SitemapFile(lines[:MAX_LOCATIONS], more=max(0, len(lines) - MAX_LOCATIONS))


class _Xml:
    """Reads `urlset/url/loc` and `sitemapindex/sitemap/loc` of any namespace, and nothing else."""

    def __init__(self) -> None:
        self._path: list[str] = []
        """Names of the three outermost open elements."""
        self._depth = self._elements = 0
        self._text: list[str] = []
        self._length = 0
        self._locations: list[str] = []
        self._more = 0

    def parse_file(self, data: bytes) -> SitemapFile:
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = _refuse_doctype
        parser.StartElementHandler = self._start_element
        parser.EndElementHandler = self._end_element
        parser.CharacterDataHandler = self._add_characters
        try:
            parser.Parse(data, True)
        except expat.ExpatError as error:
            raise NotASitemap(f"is not XML: {expat.ErrorString(error.code)}, line {error.lineno}") from error
        except (LookupError, ValueError) as error:
            raise NotASitemap("is in an encoding that XML readers need not know") from error
        return SitemapFile(self._locations, self._path[0] == "sitemapindex", self._more)

    def _start_element(self, name: str, _attributes: dict[str, str]) -> None:
        self._depth += 1
        self._elements += 1
        if self._depth > _MAX_DEPTH:
            raise NotASitemap(f"nests its elements deeper than {_MAX_DEPTH} levels")
        if self._elements > _MAX_ELEMENTS:
            raise NotASitemap(f"has more than {_MAX_ELEMENTS:,} elements")
        del self._path[self._depth - 1 :]
        if self._depth <= len(("urlset", "url", "loc")):
            self._path.append(name.rpartition(" ")[2])
        if self._depth == 1 and self._path[0] not in _CONTAINERS:
            raise NotASitemap(f"begins with <{self._path[0][:40]}> instead of <urlset> or <sitemapindex>")
        self._text = []
        self._length = 0

    def _add_characters(self, text: str) -> None:
        if self._length <= MAX_URL_CHARS:
            self._text.append(text)
            self._length += len(text)

    def _end_element(self, _name: str) -> None:
        root = self._path[0]
        if self._depth == len(self._path) and self._path[1:] == [_CONTAINERS[root], "loc"]:
            if len(self._locations) < MAX_LOCATIONS:
                self._locations.append("".join(self._text).strip())
            else:
                self._more += 1
        self._depth -= 1


def _refuse_doctype(*_: Any) -> None:
    """Refuse a DOCTYPE.

    A sitemap has none, and it could declare entities that expand or read files.
    """
    raise NotASitemap("has a DOCTYPE, which a sitemap may not have")
