"""Send one request over httpcore: to checked addresses, with the certificates and proxies of this
machine, and within one limit of time.

httpcore lets us replace the network, so we connect to the checked addresses. httpx and urllib3
decompress answers without a limit, and resolve names themselves.

The proxy is the one that the environment names for a URL, as other programs of this machine use it.
It resolves names by itself, so vmrag cannot check where a name leads behind it. It is still
used: often there is no other connection, and the user has configured it.
"""

from __future__ import annotations

import contextlib
import functools
import re
import ssl
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

import certifi
import httpcore
import truststore
from httpcore import SOCKET_OPTION, NetworkBackend, NetworkStream

from vmrag_link import hosts
from vmrag_link.errors import FetchFailed, quoted, shortened
from vmrag_link.http_body import GZIP, BodyDamaged, BodyTooLarge, gunzip, read_body
from vmrag_link.models import Record
from vmrag_link.terminal_text import escape_line
from vmrag_link.toolsets.libraries.web import urls
from vmrag_link.toolsets.libraries.web.addresses import Deadline, FetchLimits, Resolver, is_anything
from vmrag_link.toolsets.libraries.web.urls import PORTS, PageUrl, shown_url


def proxy_for(url: PageUrl) -> httpcore.Proxy | None:
    """Return the proxy for a page; None if the host is contacted directly.

    Raises `FetchFailed` for an unsupported kind of proxy.
    """
    from urllib import request  # reads the variables as curl and git do, and macOS's own settings

    proxies = request.getproxies()
    text = proxies.get(url.scheme) or proxies.get("all")
    if not text or hosts.is_loopback(url.host) or request.proxy_bypass(f"{url.host}:{url.port}"):
        return None
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host = parts.hostname
        port = parts.port
    except ValueError:
        host = port = None
    if not host or parts.scheme not in ("http", "https"):
        raise FetchFailed(
            f"cannot use the proxy {shown_url(text)} of the environment for {url}: it is not an http:// or https:// proxy.",
            hint=f"set {url.scheme}_proxy to an HTTP proxy, or run 'export no_proxy={quoted(url.host)}' to use none for this "
            "host",
        )
    where = httpcore.URL(scheme=parts.scheme, host=host, port=port, target="/")
    auth = (unquote_to_bytes(parts.username), unquote_to_bytes(parts.password or "")) if parts.username else None
    return httpcore.Proxy(where, auth=auth, ssl_context=load_certificates() if parts.scheme == "https" else None)


Addresses = Callable[[str, Deadline], list[str]]
"""Returns the addresses of a host, like `Resolver.resolve_host`."""


class CheckedNetwork(NetworkBackend):
    """TCP connections to the addresses that `addresses` returns for a host, in their order."""

    def __init__(self, addresses: Addresses, deadline: Deadline) -> None:
        self._addresses = addresses
        self._deadline = deadline
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002  the deadline is stricter
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> NetworkStream:
        """Connect to a host.

        Raises the errors of `addresses`, of the last address, and `TimeoutError`.
        """
        addresses = self._addresses(host, self._deadline)
        for number, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            try:
                stream = self._sockets.connect_tcp(
                    address, port, self._deadline.require_left() / number, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if number == 1:
                    raise
            else:
                return _TimedStream(stream, self._deadline)
        raise AssertionError  # there is an address, and the last one returns or raises


class _TimedStream(NetworkStream):
    """A stream that never waits beyond the deadline, however slowly bytes arrive."""

    def __init__(self, stream: NetworkStream, deadline: Deadline) -> None:
        self._open_stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        return self._open_stream.read(max_bytes, self._deadline.require_left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        self._open_stream.write(buffer, self._deadline.require_left())

    def close(self) -> None:
        self._open_stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> NetworkStream:
        stream = self._open_stream.start_tls(ssl_context, server_hostname, self._deadline.require_left())
        return _TimedStream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._open_stream.get_extra_info(info)


_COMPLETE = (200, 203)

_AGAIN = "try it in a browser, and try again later if it works there"
_HEADERS = {
    "User-Agent": urls.USER_AGENT,
    "Accept": "text/markdown, text/html, application/xhtml+xml, text/plain;q=0.9, */*;q=0.8",
    "Accept-Encoding": "gzip",
    "Connection": "close",
}


class Response(Record, frozen=True):
    """An answer.

    Headers have lower-case names. `body` is unpacked, and empty unless it is complete.
    """

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def is_complete(self) -> bool:
        return self.status in _COMPLETE


def send_request(page: PageUrl, conditions: dict[str, str], limits: FetchLimits, deadline: Deadline) -> Response:
    """Send a GET request without following redirections.

    Raises `AccessDenied` and `FetchFailed`.
    """
    try:
        with _open_pool(page, limits.resolver, deadline) as pool, _open_stream(pool, page, conditions) as response:
            headers = urls.collect_headers(response.headers)
            body = _read_body(response, headers, limits.max_bytes) if response.status in _COMPLETE else b""
            return Response(response.status, headers, body)
    except (TimeoutError, httpcore.TimeoutException) as error:
        raise FetchFailed(
            f"{page} did not answer within {limits.timeout_s:g} s (ingest.timeout_s).",
            hint=f"run 'git config vmrag.ingest.timeout-s {max(60, int(limits.timeout_s) * 6)}'",
            url=page.text,
        ) from error
    except BodyTooLarge as error:
        raise FetchFailed(
            f"{page} is larger than {limits.max_bytes:,} bytes (ingest.max_bytes).",
            hint=f"run 'git config vmrag.ingest.max-bytes {limits.max_bytes * 10}'",
            url=page.text,
        ) from error
    except BodyDamaged as error:
        raise FetchFailed(f"{page} came packed, and cannot be unpacked.", hint=_AGAIN, url=page.text) from error
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError) as error:
        raise _build_unreachable(page, error) from error


def _open_pool(page: PageUrl, resolver: Resolver, deadline: Deadline) -> httpcore.ConnectionPool:
    """Return the connections for one request.

    The address of a proxy is not checked: the user chose it.
    """
    proxy = proxy_for(page)
    if proxy:
        resolver.check_behind_proxy(page.host, deadline)
        resolver = Resolver(permits=is_anything, lookup=resolver.lookup)
    return httpcore.ConnectionPool(
        ssl_context=load_certificates() if page.scheme == "https" else None,
        proxy=proxy,
        network_backend=CheckedNetwork(resolver.resolve_host, deadline),
    )


def _open_stream(
    pool: httpcore.ConnectionPool, page: PageUrl, conditions: dict[str, str]
) -> contextlib.AbstractContextManager[httpcore.Response]:
    headers = {"Host": page.site} | _HEADERS | conditions
    if page.authorization:
        headers["Authorization"] = page.authorization
    port = None if page.port == PORTS[page.scheme] else page.port  # a proxy receives this value
    where = httpcore.URL(scheme=page.scheme, host=page.host, port=port, target=page.target)
    return pool.stream("GET", where, headers=list(headers.items()))


def _read_body(response: httpcore.Response, headers: dict[str, str], max_bytes: int) -> bytes:
    """Return the unpacked body. Raises `BodyTooLarge` and `BodyDamaged`."""
    length = headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length[:20]) > max_bytes:
        raise BodyTooLarge
    body = read_body(response.iter_stream(), max_bytes)
    encoding = headers.get("content-encoding", "identity").lower()
    if encoding in GZIP:
        return gunzip(body, max_bytes)
    if encoding not in ("identity", ""):
        raise BodyDamaged  # the request does not accept this encoding
    return body


_ERROR_NUMBER = re.compile(r"^\[Errno -?\d+\] ")
"""The begin of Python's messages for errors of the system."""


def _build_unreachable(page: PageUrl, error: Exception) -> FetchFailed:
    reason = shortened(escape_line(_ERROR_NUMBER.sub("", str(error)) or type(error).__name__))
    hint = _AGAIN
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        reason = "its certificate has no signature that this machine trusts, or belongs to another host"
        hint = "run 'export SSL_CERT_FILE=/PATH/TO/authority.pem' if the authority is your own"
    elif isinstance(error, httpcore.ProxyError):
        reason = f"the proxy of the environment answered {reason}"
        hint = f"check {page.scheme}_proxy, or run 'export no_proxy={quoted(page.host)}' to ask the host directly"
    return FetchFailed(f"{page} cannot be fetched: {reason}.", hint=hint, url=page.text)


@functools.cache
def load_certificates() -> ssl.SSLContext:
    """Return the certificates that this machine trusts, like pip.

    These are the system's store, which contains a company's own authority, and Mozilla's list for
    machines without one. `SSL_CERT_FILE` is also used.
    """
    context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certifi.where())
    return context
