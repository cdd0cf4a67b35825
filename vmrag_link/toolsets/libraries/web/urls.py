"""URLs of pages, read once and written in one way, and headers: those of a request, and what
those of an answer say, as far as it can be believed.
"""

from __future__ import annotations

import base64
import codecs
import datetime as dt
import re
from collections.abc import Iterable, Mapping
from email.utils import format_datetime, parsedate_to_datetime
from urllib.parse import quote, unquote_to_bytes, urljoin, urlsplit

from vmrag_link import __version__, clock, extras, hosts
from vmrag_link.errors import UsageInvalid, shortened
from vmrag_link.models import Record
from vmrag_link.terminal_text import escape_controls

PORTS = {"http": 80, "https": 443}
"""The schemes that are fetched, with their ports."""

LONGEST = 8000
"""Characters of a URL; what servers take at the most."""

_KEPT = "/:?#[]@!$&'()*+,;=%-._~"
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")  # a label ends at a dot: there is one way to try
_USERINFO = re.compile(r"(?s)^((?:[A-Za-z][A-Za-z0-9+.-]*:)?//)?.*@")


class PageUrl(Record, frozen=True):
    """A URL without credentials and without a fragment.

    `host` is in ASCII and as hosts are compared (`hosts.canonical`); `target` is path and query.
    `authorization` is the header for the credentials that stood in the URL, or empty: it is for
    `origin` alone, and no part of `text`.
    """

    scheme: str
    host: str
    port: int
    target: str
    authorization: str = ""

    @property
    def origin(self) -> tuple[str, str, int]:
        return (self.scheme, self.host, self.port)

    @property
    def site(self) -> str:
        """Host and port, as the header `Host` has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def text(self) -> str:
        """The URL, in which equal ones are equal: this is what is stored and shown."""
        return f"{self.scheme}://{self.site}{self.target}"

    def __str__(self) -> str:
        return self.text


def parse_url(text: str) -> PageUrl:
    """Raises `UsageInvalid` for what is no http or https URL. No message shows credentials."""
    stripped = text.strip()
    if len(stripped) > LONGEST:
        raise _invalid(stripped, f"is longer than {LONGEST} characters")
    if not stripped.isprintable() or " " in stripped or "\\" in stripped:
        raise _invalid(stripped, "holds blanks, backslashes or control characters")
    try:
        parts = urlsplit(stripped)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _invalid(stripped, "is no URL") from None
    scheme = parts.scheme.lower()
    if scheme not in PORTS:
        raise _invalid(stripped, "is no http:// or https:// URL")
    if port == 0:
        raise _invalid(stripped, "has no port that can be asked")
    target = quote(parts.path or "/", safe=_KEPT) + (f"?{quote(parts.query, safe=_KEPT)}" if parts.query else "")
    return PageUrl(
        scheme=scheme,
        host=_ascii(host, stripped),
        port=PORTS[scheme] if port is None else port,
        target=target,
        authorization=_basic(parts.username, parts.password),
    )


def next_url(url: PageUrl, location: str) -> PageUrl:
    """Where a redirection leads. The credentials go along within the origin only, and a server
    gives none.

    Raises `UsageInvalid`.
    """
    try:
        text = urljoin(url.text, location.strip().replace(" ", "%20"))
    except ValueError:
        raise _invalid(location, "is no URL") from None
    found = parse_url(text)
    credentials = url.authorization if found.origin == url.origin else ""
    return PageUrl(found.scheme, found.host, found.port, found.target, credentials)


def shown_url(text: str) -> str:
    """What somebody gave for a URL, for a message: without credentials, and short.

    A password may hold a slash that nobody encoded, so all before the last @ is left out.
    """
    return shortened(escape_controls(_USERINFO.sub(r"\1…@", text)))


def _ascii(host: str, text: str) -> str:
    """The host as names of hosts are asked for. Raises `UsageInvalid`, `IndexExtraMissing`."""
    if ":" in host:
        return hosts.normalize_host(host)  # urlsplit let through what stands in brackets, and is an IPv6 address
    if not host.isascii():
        try:
            import idna
        except ModuleNotFoundError as error:
            needed = "A host in other letters than ASCII needs idna, which is not installed."
            raise extras.missing_extra_error("web", needed) from error
        try:
            host = idna.encode(host, uts46=True).decode()
        except idna.IDNAError:
            raise _invalid(text, "names no host") from None
    host = hosts.normalize_host(host)
    if not _HOST.fullmatch(host) or not (hosts.parse_address(host) or hosts.is_host_name(host)):
        raise _invalid(text, "names no host")
    return host


def _basic(user: str | None, password: str | None) -> str:
    if not user and not password:
        return ""
    pair = unquote_to_bytes(user or "") + b":" + unquote_to_bytes(password or "")
    return "Basic " + base64.b64encode(pair).decode()


def _invalid(text: str, reason: str) -> UsageInvalid:
    return UsageInvalid(
        f"{shown_url(text)!r} {reason}.",
        hint="Give the whole address of a page, such as https://docs.example.org/guide.html",
        parameter="url",
    )


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


def collect_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """By lower-case names; of a header that stands there twice, the last one."""
    return {_text(name).lower(): _text(value).strip() for name, value in headers}


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def build_conditions(etag: str, last_modified: str) -> dict[str, str]:
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
        return clock.format_file_time((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp())
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
