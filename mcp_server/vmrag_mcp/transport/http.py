"""The protocol over HTTP, at `/mcp`, for several clients; by default on this computer alone.

A page in a browser must not reach the server, unless a person named its origin. So the name that a
request uses (DNS rebinding) and its origin are checked here: the SDK's own checks accept any port,
and compare nothing where the server listens on all addresses. Other computers need the token.
"""

from __future__ import annotations

import errno
import hmac
import json
import socket
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.middleware.cors import CORSMiddleware

from vmrag_link.errors import Busy, UsageInvalid
from vmrag_mcp.client_tools import HEADER, PARAMETER, ClientTools
from vmrag_mcp.process import log
from vmrag_mcp.server import CHOICE, SESSION_HEADER, KnowledgeServer
from vmrag_mcp.transport.address import ListenAddress

PATH = "/mcp"
LARGEST = 64 * 1024 * 1024
"""Bytes of a request. The SDK's own limit is below what a long document needs."""

_STOP_SECONDS = 1
"""How long requests may still take when the server is stopped."""

_USUAL_PORT = 80
"""Which a client leaves out."""

_OWN_SITE = {b"none", b"same-origin"}

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def serve_http(server: KnowledgeServer, asked: ListenAddress, token: str | None, origins: Collection[str] = ()) -> None:
    """Until a signal comes; pages of the `origins` may use it. Raises `Busy` for a port in use."""
    listening = _listen(asked)
    bound, port = listening.getsockname()[:2]
    at = ListenAddress(asked.host, port)
    app: App = server.sdk.streamable_http_app(
        streamable_http_path=PATH,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # see `OriginCheck`
        max_request_body_size=LARGEST,
    )
    app = ToolsetChoice(app, server.clients)
    if token:
        app = TokenCheck(app, token)
    if origins:  # outside of the token: a browser asks without it whether a page may send it
        app = CORSMiddleware(
            app,
            origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=("Mcp-Session-Id",),
        )
    log(f"http://{at.url_host}:{at.port}{PATH}")
    settings = uvicorn.Config(
        OriginCheck(app, _hosts(at, ListenAddress(bound, port)), origins),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    uvicorn.Server(settings).run(sockets=[listening])


def _listen(asked: ListenAddress) -> socket.socket:
    try:
        family, _, _, _, where = socket.getaddrinfo(asked.host, asked.port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # not for a port that somebody listens on
        listening.bind(where)
        listening.listen()
    except (OSError, UnicodeError) as error:  # UnicodeError: what can be no host's name
        said = f"Cannot listen on {asked.url_host}:{asked.port}: {getattr(error, 'strerror', None) or error}."
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise Busy(said, hint="--http 0 takes a free port", port=asked.port) from error
        raise UsageInvalid(said, hint=f"--http {asked.port} listens on this computer") from error
    return listening


def _hosts(asked: ListenAddress, bound: ListenAddress) -> frozenset[bytes]:
    """What `Host` may say, in lower case.

    Empty: anything, because clients need the token anyway.
    """
    if asked.is_wildcard:
        return frozenset()
    names = {asked.url_host.lower(), bound.url_host} | ({"localhost"} if asked.is_loopback else set())
    usual = names if bound.port == _USUAL_PORT else set()
    return frozenset(text.encode() for text in (*(f"{name}:{bound.port}" for name in names), *usual))


class OriginCheck:
    """Lets requests through that name this server and come from no page, or from an allowed origin.

    The server's own origin is allowed: it has no pages, and MCP's conformance suite sends it.
    """

    def __init__(self, app: App, hosts: Collection[bytes], origins: Collection[str]) -> None:
        self._app = app
        self._hosts = hosts
        self._origins = {origin.encode() for origin in origins} | {b"http://" + host for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":  # spaces around a value are no part of it (RFC 9110, 5.5)
            scope = {**scope, "headers": [(name, value.strip(b" \t")) for name, value in scope["headers"]]}
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
            return
        status, text = refusal
        headers = [(b"content-type", b"text/plain; charset=utf-8")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    def _refusal(self, scope: Scope) -> tuple[int, bytes] | None:
        said: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            said.setdefault(name, []).append(value.lower())
        host, origin, site = (said.get(name, []) for name in (b"host", b"origin", b"sec-fetch-site"))
        if self._hosts and (len(host) != 1 or host[0] not in self._hosts):
            return 421, b"This server has no such name.\n"
        named = len(origin) == 1 and origin[0] in self._origins
        if not named and (origin or not _OWN_SITE.issuperset(site)):
            return 403, b"Pages of this origin may not use this server: see --allow-origin.\n"
        return None


class TokenCheck:
    """Lets requests through that have the token."""

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


class ToolsetChoice:
    """Reads which toolsets a client names, by a header or in the address; the header goes first.
    What is named when a session begins holds for all of it. A name that is none is refused.
    """

    def __init__(self, app: App, clients: ClientTools) -> None:
        self._app = app
        self._clients = clients

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        session = next(iter(_values(scope, SESSION_HEADER)), None)
        toolsets = _named_toolsets(scope)
        try:
            if toolsets is not None:
                self._clients.find_enabled(None, toolsets)
        except UsageInvalid as error:
            await _refuse(send, error)
            return

        async def watched(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._follow(scope, session, toolsets, message)
            await send(message)

        await self._app({**scope, CHOICE: toolsets}, receive, watched)

    def _follow(
        self, scope: Scope, session: str | None, toolsets: str | None, answer: MutableMapping[str, Any]
    ) -> None:
        """A session begins with the answer that names it; it ends when it is deleted or unknown."""
        if session is None:
            for begun in _values(answer, SESSION_HEADER):
                self._clients.begin_session(begun, toolsets)
        elif answer["status"] == _NOT_FOUND or (scope["method"] == "DELETE" and answer["status"] < _FAILED):
            self._clients.end_session(session)


_NOT_FOUND, _FAILED = 404, 400


def _named_toolsets(scope: Scope) -> str | None:
    """None: none, or an empty list."""
    query = parse_qsl(scope.get("query_string", b"").decode("latin-1"))
    said = _values(scope, HEADER.lower()) or [value for name, value in query if name == PARAMETER]
    return ",".join(filter(None, (each.strip() for each in said))) or None


def _values(message: MutableMapping[str, Any], name: str) -> list[str]:
    return [value.decode("latin-1") for key, value in message.get("headers", ()) if key.lower() == name.encode()]


async def _refuse(send: Send, error: UsageInvalid) -> None:
    """As JSON-RPC has it, with a status that every client takes for a failure."""
    known = ", ".join(error.details["toolsets"])
    message = f"{error.message} {HEADER}, or {PARAMETER} in the address, takes: {known}"
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": _INVALID_REQUEST, "message": message}}
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": _FAILED, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})


_INVALID_REQUEST = -32600
