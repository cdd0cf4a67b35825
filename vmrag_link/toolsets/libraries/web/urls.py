"""URLs of pages in one form, and headers of requests and answers."""

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
"""The supported schemes and their default ports."""

MAX_URL_CHARS = 8000
"""Maximum number of characters of a URL, as in most servers."""

_UNQUOTED = "/:?#[]@!$&'()*+,;=%-._~"
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_HOST = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")  # a label ends at a dot: there is one way to try
_USERINFO = re.compile(r"(?s)^((?:[A-Za-z][A-Za-z0-9+.-]*:)?//)?.*@")


class PageUrl(Record, frozen=True):
    """A URL without credentials and without a fragment.

    `host` is in ASCII and in the form for comparison (`hosts.normalize_host`). `target` is path and
    query. `authorization` is the header for the credentials of the URL, or empty. It is only for
    `origin`, and not part of `text`.
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
        """Host and port in the form of the header `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def text(self) -> str:
        """The URL in the form that is stored and shown. Equal URLs have equal texts."""
        return f"{self.scheme}://{self.site}{self.target}"

    def __str__(self) -> str:
        return self.text


def parse_url(text: str) -> PageUrl:
    """Parse an http or https URL. Raises `UsageInvalid`, whose message shows no credentials."""
    stripped = text.strip()
    if len(stripped) > MAX_URL_CHARS:
        raise _build_invalid(stripped, f"is longer than {MAX_URL_CHARS} characters")
    if not stripped.isprintable() or " " in stripped or "\\" in stripped:
        raise _build_invalid(stripped, "holds blanks, backslashes or control characters")
    try:
        parts = urlsplit(stripped)
        host = parts.hostname or ""
        port = parts.port
    except ValueError:
        raise _build_invalid(stripped, "is not a URL") from None
    scheme = parts.scheme.lower()
    if scheme not in PORTS:
        raise _build_invalid(stripped, "is not an http:// or https:// URL")
    if port == 0:
        raise _build_invalid(stripped, "has an invalid port")
    target = quote(parts.path or "/", safe=_UNQUOTED)
    if parts.query:
        target += f"?{quote(parts.query, safe=_UNQUOTED)}"
    return PageUrl(
        scheme=scheme,
        host=_encode_host(host, stripped),
        port=PORTS[scheme] if port is None else port,
        target=target,
        authorization=_encode_credentials(parts.username, parts.password),
    )


def next_url(url: PageUrl, location: str) -> PageUrl:
    """Return the target of a redirection. Raises `UsageInvalid`.

    Credentials are kept within the origin only. Credentials from a server are ignored.
    """
    try:
        text = urljoin(url.text, location.strip().replace(" ", "%20"))
    except ValueError:
        raise _build_invalid(location, "is not a URL") from None
    target = parse_url(text)
    credentials = url.authorization if target.origin == url.origin else ""
    return PageUrl(target.scheme, target.host, target.port, target.target, credentials)


def shown_url(text: str) -> str:
    """Return a URL for a message: short, and without credentials.

    A password can contain a slash that is not encoded, so everything before the last @ is removed.
    """
    return shortened(escape_controls(_USERINFO.sub(r"\1…@", text)))


def _encode_host(host: str, text: str) -> str:
    """Return the host in ASCII. Raises `UsageInvalid` and `IndexExtraMissing`."""
    if ":" in host:
        return hosts.normalize_host(host)  # urlsplit accepts only an IPv6 address in brackets
    if not host.isascii():
        try:
            import idna
        except ModuleNotFoundError as error:
            needed = "A host in other letters than ASCII needs idna, which is not installed."
            raise extras.missing_extra_error("web", needed) from error
        try:
            host = idna.encode(host, uts46=True).decode()
        except idna.IDNAError:
            raise _build_invalid(text, "has no valid host") from None
    host = hosts.normalize_host(host)
    if not _HOST.fullmatch(host) or not (hosts.parse_address(host) or hosts.is_host_name(host)):
        raise _build_invalid(text, "has no valid host")
    return host


def _encode_credentials(user: str | None, password: str | None) -> str:
    if not user and not password:
        return ""
    pair = unquote_to_bytes(user or "") + b":" + unquote_to_bytes(password or "")
    return "Basic " + base64.b64encode(pair).decode()


def _build_invalid(text: str, reason: str) -> UsageInvalid:
    return UsageInvalid(
        f"{shown_url(text)!r} {reason}.",
        hint="pass the whole address of a page, such as https://docs.example.org/guide.html",
        parameter="url",
    )


ROBOT = "vmrag-link"
"""The name of this program in robots.txt."""

USER_AGENT = f"{ROBOT}/{__version__} (+https://github.com/vmrag/vmrag-link)"

_ETAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]{0,500}"')
_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]{1,100}/[a-z0-9!#$&^_.+-]{1,100}")
_CHARSET = re.compile(r"""(?i);\s*charset\s*=\s*["']?([A-Za-z0-9_.:-]{1,40})""")
_ISO = "%Y-%m-%dT%H:%M:%SZ"
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
# Browsers read these encodings as Windows-1252, because such pages contain its quotes and dashes.
_AS_BROWSERS = {"iso8859-1": "windows-1252", "ascii": "windows-1252", "cp1252": "windows-1252"}


def collect_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by lower-case name. If a header occurs twice, the last value is used."""
    return {_decode_header(name).lower(): _decode_header(value).strip() for name, value in headers}


def _decode_header(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def build_conditions(etag: str, last_modified: str) -> dict[str, str]:
    """Return the headers that request a page only if it has changed.

    Values that cannot be sent are left out: they can come from an untrusted knowledge base.
    """
    headers = {}
    if _ETAG.fullmatch(etag):
        headers["If-None-Match"] = etag
    since = _http_date(last_modified)
    if since:
        headers["If-Modified-Since"] = since
    return headers


def etag_of(headers: Mapping[str, str]) -> str:
    """Return the ETag; empty if there is none that can be sent back."""
    etag = headers.get("etag", "")
    return etag if _ETAG.fullmatch(etag) else ""


def last_modified_of(headers: Mapping[str, str]) -> str:
    """Return the time of the last change in ISO 8601 in UTC; empty without a valid date."""
    try:
        moment = parsedate_to_datetime(headers.get("last-modified", ""))
        return clock.format_file_time((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp())
    except (ValueError, OverflowError, OSError):
        return ""


def media_type_of(headers: Mapping[str, str]) -> str:
    """Return the media type, such as `text/html`; empty if the server sends none."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return media_type if _MEDIA_TYPE.fullmatch(media_type) else ""


def charset_of(headers: Mapping[str, str], body: bytes) -> str:
    """Return Python's name of the encoding; empty if it is unknown.

    The byte order mark of the text has priority over the header, as in browsers.
    """
    for mark, name in _BOMS:
        if body.startswith(mark):
            return name
    match = _CHARSET.search(headers.get("content-type", ""))
    try:
        name = codecs.lookup(match[1]).name if match else ""
    except LookupError:
        return ""
    return _AS_BROWSERS.get(name, name)


def retry_after_of(headers: Mapping[str, str]) -> int | None:
    """Return the seconds until the server accepts requests; None if it sends no number
    of seconds.
    """
    text = headers.get("retry-after", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < len("1000000") else None


def _http_date(iso: str) -> str:
    """Return a time in ISO 8601 as a header has it; empty if it is invalid."""
    try:
        return format_datetime(dt.datetime.strptime(iso, _ISO).replace(tzinfo=dt.UTC), usegmt=True)
    except ValueError:
        return ""
