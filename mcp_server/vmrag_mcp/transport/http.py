"""The protocol over HTTP, at `/mcp`: for several clients at once, on this computer unless somebody says otherwise.

A page in a browser must not reach it: the names under which it is addressed and the origins of requests are checked, against DNS
rebinding too. Who comes from another computer has to know the token.
"""

from __future__ import annotations

import errno
import hmac
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings

from vmrag_link.errors import Busy, UsageInvalid
from vmrag_mcp.server import KnowledgeServer
from vmrag_mcp.transport.address import Address

PATH = "/mcp"
LARGEST = 64 * 1024 * 1024
"""Bytes of a request. The SDK's own limit is below what a long document needs."""

_STOP_SECONDS = 1
"""How long requests may still take when the server is stopped."""

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def serve(server: KnowledgeServer, asked: Address, token: str | None) -> None:
    """Until a signal comes. Raises `Busy` for a port in use."""
    listening = _listening(asked)
    at = Address(asked.host, listening.getsockname()[1])
    app: App = server.sdk.streamable_http_app(
        streamable_http_path=PATH, transport_security=_security(at), max_request_body_size=LARGEST
    )
    sys.stderr.write(f"vmrag-mcp: http://{at.bracketed}:{at.port}{PATH}\n")
    sys.stderr.flush()
    settings = uvicorn.Config(
        Guarded(app, token) if token else app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    uvicorn.Server(settings).run(sockets=[listening])


def _listening(asked: Address) -> socket.socket:
    try:
        family, _, _, _, where = socket.getaddrinfo(asked.host, asked.port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # not for a port that somebody listens on
        listening.bind(where)
        listening.listen()
    except (OSError, UnicodeError) as error:  # UnicodeError: what can be no host's name
        said = f"Cannot listen on {asked.bracketed}:{asked.port}: {getattr(error, 'strerror', None) or error}."
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise Busy(said, hint="--http 0 takes a free port", port=asked.port) from error
        raise UsageInvalid(said, hint=f"--http {asked.port} listens on this computer") from error
    return listening


def _security(at: Address) -> TransportSecuritySettings:
    """Whoever listens on all addresses has a token, which no page in a browser knows."""
    names = (*_LOOPBACK, at.bracketed) if at.bracketed not in _LOOPBACK else _LOOPBACK
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=not at.anywhere,
        allowed_hosts=[*names, *(f"{name}:*" for name in names)],
        allowed_origins=[f"http://{name}{port}" for name in names for port in ("", ":*")],
    )


class Guarded:
    """Lets those through who say the token."""

    def __init__(self, app: App, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._knows(scope):
            headers = [(b"www-authenticate", b'Bearer realm="vmrag"'), (b"content-type", b"text/plain; charset=utf-8")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b"This server takes a bearer token.\n"})
            return
        await self._app(scope, receive, send)

    def _knows(self, scope: Scope) -> bool:
        """Compared in the same time, however much of it is right."""
        said = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(said) != 1:
            return False
        scheme, _, rest = said[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(b"Bearer " + rest.strip(), self._expected)
