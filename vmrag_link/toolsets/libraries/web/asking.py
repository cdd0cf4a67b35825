"""One request and its answer, over httpcore."""

from __future__ import annotations

import contextlib

import httpcore

from vmrag_link.errors import FetchFailed, shortened
from vmrag_link.http_body import GZIP, Damaged, TooLarge, gunzip, read_body
from vmrag_link.models import Record
from vmrag_link.terminal_text import one_line
from vmrag_link.toolsets.libraries.web import headers as read
from vmrag_link.toolsets.libraries.web.addresses import Resolver, is_anything
from vmrag_link.toolsets.libraries.web.certificates import certificates
from vmrag_link.toolsets.libraries.web.connection import CheckedNetwork
from vmrag_link.toolsets.libraries.web.deadline import Deadline
from vmrag_link.toolsets.libraries.web.limits import FetchLimits
from vmrag_link.toolsets.libraries.web.proxies import proxy_for
from vmrag_link.toolsets.libraries.web.urls import PORTS, PageUrl

_COMPLETE = (200, 203)

_AGAIN = "Try it in a browser; if it is there, try again later."
_HEADERS = {
    "User-Agent": read.USER_AGENT,
    "Accept": "text/markdown, text/html, application/xhtml+xml, text/plain;q=0.9, */*;q=0.8",
    "Accept-Encoding": "gzip",
    "Connection": "close",
}


class Response(Record, frozen=True):
    """Headers by lower-case names; `body` is unpacked, and empty unless the answer is complete."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def complete(self) -> bool:
        return self.status in _COMPLETE


def ask(page: PageUrl, conditions: dict[str, str], limits: FetchLimits, deadline: Deadline) -> Response:
    """The answer to a GET. No redirection is followed. Raises `AccessDenied`, `FetchFailed`."""
    try:
        with _pool(page, limits.resolver, deadline) as pool, _stream(pool, page, conditions) as response:
            headers = read.collected(response.headers)
            body = _body(response, headers, limits.max_bytes) if response.status in _COMPLETE else b""
            return Response(response.status, headers, body)
    except (TimeoutError, httpcore.TimeoutException) as error:
        raise FetchFailed(
            f"{page} was not there after {limits.timeout_s:g} s (ingest.timeout_s).",
            hint=f"git config vmrag.ingest.timeout-s {max(60, int(limits.timeout_s) * 6)}",
            url=page.text,
        ) from error
    except TooLarge as error:
        raise FetchFailed(
            f"{page} is larger than {limits.max_bytes:,} bytes (ingest.max_bytes).",
            hint=f"git config vmrag.ingest.max-bytes {limits.max_bytes * 10}",
            url=page.text,
        ) from error
    except Damaged as error:
        raise FetchFailed(f"{page} came packed, and cannot be unpacked.", hint=_AGAIN, url=page.text) from error
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError) as error:
        raise _unreachable(page, error) from error


def _pool(page: PageUrl, resolver: Resolver, deadline: Deadline) -> httpcore.ConnectionPool:
    """For one request. A proxy is the person's own, so its address may be any."""
    proxy = proxy_for(page)
    if proxy:
        resolver.check_behind_proxy(page.host, deadline)
        resolver = Resolver(permits=is_anything, lookup=resolver.lookup)
    return httpcore.ConnectionPool(
        ssl_context=certificates() if page.scheme == "https" else None,
        proxy=proxy,
        network_backend=CheckedNetwork(resolver.addresses, deadline),
    )


def _stream(
    pool: httpcore.ConnectionPool, page: PageUrl, conditions: dict[str, str]
) -> contextlib.AbstractContextManager[httpcore.Response]:
    headers = {"Host": page.site} | _HEADERS | conditions
    if page.authorization:
        headers["Authorization"] = page.authorization
    port = None if page.port == PORTS[page.scheme] else page.port  # a proxy is told what stands here
    where = httpcore.URL(scheme=page.scheme, host=page.host, port=port, target=page.target)
    return pool.stream("GET", where, headers=list(headers.items()))


def _body(response: httpcore.Response, headers: dict[str, str], most: int) -> bytes:
    """Raises `TooLarge`, `Damaged`."""
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > most:
        raise TooLarge
    body = read_body(response.iter_stream(), most)
    encoding = headers.get("content-encoding", "identity").lower()
    if encoding in GZIP:
        return gunzip(body, most)
    if encoding not in ("identity", ""):
        raise Damaged  # nobody asked for it so
    return body


def _unreachable(page: PageUrl, error: Exception) -> FetchFailed:
    reason = shortened(one_line(str(error) or type(error).__name__))
    hint = _AGAIN
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        reason = "its certificate is signed by nobody whom this machine trusts, or is another host's"
        hint = "If the authority is your own: export SSL_CERT_FILE=/PATH/TO/authority.pem"
    elif isinstance(error, httpcore.ProxyError):
        reason = f"the proxy of the environment answered {reason}"
        hint = f"Check {page.scheme}_proxy, or ask the host directly: export no_proxy={page.host}"
    return FetchFailed(f"{page} cannot be fetched: {reason}.", hint=hint, url=page.text)
