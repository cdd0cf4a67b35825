"""What the headers of an answer say, as far as it can be believed; and those of a request."""

from __future__ import annotations

import codecs
import datetime as dt
import re
from collections.abc import Iterable, Mapping
from email.utils import format_datetime, parsedate_to_datetime

from vmrag_link import __version__, clock

ROBOT = "vmrag-link"
"""The name by which robots.txt may address this program."""

USER_AGENT = f"{ROBOT}/{__version__} (+https://github.com/vmrag/vmrag-link)"

_ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]{0,500}"')
_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,100}/[a-z0-9!#$&^_.+-]{1,100}")
_CHARSET = re.compile(r"""(?i);\s*charset\s*=\s*["']?([A-Za-z0-9_.:-]{1,40})""")
_ISO = "%Y-%m-%dT%H:%M:%SZ"
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
# What browsers read where these are named: pages that say so hold the quotes and dashes of Windows.
_AS_BROWSERS = {"iso8859-1": "windows-1252", "ascii": "windows-1252", "cp1252": "windows-1252"}


def collected(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """By lower-case names; of a header that stands there twice, the last one."""
    return {_text(name).lower(): _text(value).strip() for name, value in headers}


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def conditional(etag: str, last_modified: str) -> dict[str, str]:
    """The headers that ask for a page only if it changed. What cannot be sent is left out: it may
    come from a stranger's knowledge base.
    """
    headers = {}
    if _ETAG.fullmatch(etag):
        headers["If-None-Match"] = etag
    if since := _http_date(last_modified):
        headers["If-Modified-Since"] = since
    return headers


def etag_of(headers: Mapping[str, str]) -> str:
    """Empty if there is none that can be sent back."""
    etag = headers.get("etag", "")
    return etag if _ETAG.fullmatch(etag) else ""


def last_modified_of(headers: Mapping[str, str]) -> str:
    """ISO 8601 in UTC; empty if there is none, or no date."""
    try:
        moment = parsedate_to_datetime(headers.get("last-modified", ""))
        return clock.at((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp())
    except (ValueError, OverflowError, OSError):
        return ""


def media_type_of(headers: Mapping[str, str]) -> str:
    """Such as `text/html`; empty if the server does not say."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type if _MEDIA_TYPE.fullmatch(media_type) else ""


def charset_of(headers: Mapping[str, str], body: bytes) -> str:
    """Python's name of the encoding; empty if neither the text's own mark nor the server says one
    that is known. The mark precedes, as in browsers.
    """
    for mark, name in _BOMS:
        if body.startswith(mark):
            return name
    found = _CHARSET.search(headers.get("content-type", ""))
    try:
        name = codecs.lookup(found[1]).name if found else ""
    except LookupError:
        return ""
    return _AS_BROWSERS.get(name, name)


def retry_after_of(headers: Mapping[str, str]) -> int | None:
    """The seconds for which a server wants to be left alone; None if it does not say in seconds."""
    text = headers.get("retry-after", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < len("1000000") else None


def _http_date(iso: str) -> str:
    try:
        return format_datetime(dt.datetime.strptime(iso, _ISO).replace(tzinfo=dt.UTC), usegmt=True)
    except ValueError:
        return ""
