"""One file of a sitemap: XML, or a URL a line; perhaps packed by gzip."""

from __future__ import annotations

from typing import Any
from xml.parsers import expat

from vmrag_link.http_body import GZIP_BEGINS, Damaged, TooLarge, gunzip
from vmrag_link.models import Record
from vmrag_link.toolsets.libraries.web.urls import LONGEST

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
        except Damaged:
            raise NotASitemap("is packed, and cannot be unpacked") from None
        except TooLarge:
            raise NotASitemap(f"has more than {most_bytes:,} bytes unpacked") from None
    if not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"http://", b"https://")):
        return _Xml().read(data)
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

    def read(self, data: bytes) -> SitemapFile:
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
