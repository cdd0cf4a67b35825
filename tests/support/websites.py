"""A web server of this machine: real HTTP over real sockets, with pages that tests write."""

from __future__ import annotations

import contextlib
import ipaddress
import select
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from vmrag_link.toolsets.libraries.web.addresses import FetchLimits, Resolver, is_public

HERE = ipaddress.ip_address("127.0.0.1")


def public_or_here(address: Any) -> bool:
    """The rule of the program, with one address more: that of the server."""
    return address == HERE or is_public(address)


def limits(lookup: Callable[[str], list[str]] | None = None, **more: Any) -> FetchLimits:
    """Return limits that permit the server of this machine, and no other private host."""
    resolver = Resolver(permits=public_or_here, **({"lookup": lookup} if lookup else {}))
    return FetchLimits(**{"timeout_s": 5, "resolver": resolver} | more)


@dataclass
class Asked:
    """A request as it came in."""

    path: str
    headers: dict[str, str]


Page = tuple[int, dict[str, str], bytes] | bytes | str | Callable[[BaseHTTPRequestHandler], None]
"""Status, headers and body; a body alone; or what speaks to the client by itself."""


@dataclass
class Website:
    """A server of `pages` by their paths; other paths are missing.

    `tunnels`: whether it is also a proxy for encrypted pages.
    """

    scheme: str = "http"
    port: int = 0
    pages: dict[str, Page] = field(default_factory=dict)
    requests: list[Asked] = field(default_factory=list)
    tunnels: bool = False

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.requests.append(Asked(request.path, {name.lower(): value for name, value in request.headers.items()}))
        page = self.pages.get(request.path, (404, {}, b"nothing here"))
        if callable(page):
            with contextlib.suppress(OSError):  # the client may have gone
                page(request)
            return
        body = page.encode() if isinstance(page, str) else page
        status, headers, content = (200, {}, body) if isinstance(body, bytes) else body
        request.send_response(status)
        for name, value in ({"Content-Length": str(len(content))} | headers).items():
            request.send_header(name, value)
        request.end_headers()
        with contextlib.suppress(OSError):
            request.wfile.write(content)

    def tunnel(self, request: BaseHTTPRequestHandler) -> None:
        """Connect like a proxy: to this machine, for each host name."""
        self.requests.append(Asked(request.path, {name.lower(): value for name, value in request.headers.items()}))
        if not self.tunnels:
            request.send_error(403)
            return
        with socket.create_connection((str(HERE), int(request.path.rpartition(":")[2]))) as upstream:
            request.send_response(200)
            request.end_headers()
            ends = {request.connection: upstream, upstream: request.connection}
            while True:
                for end in select.select(list(ends), [], [])[0]:
                    data = end.recv(65536)
                    if not data:
                        return
                    ends[end].sendall(data)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # clients that go early are the subject
            super().handle_error(request, client_address)


@contextlib.contextmanager
def website(*, certificate: tuple[Any, Any] | None = None) -> Iterator[Website]:
    """A server at a port of its own. `certificate`: the files of it and of its key, for https."""
    site = Website(scheme="https" if certificate else "http")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.answer(self)

        def do_CONNECT(self) -> None:
            site.tunnel(self)

        def log_message(self, *_: Any) -> None:
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    site.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
