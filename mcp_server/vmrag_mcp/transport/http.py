"""The protocol over HTTP, at `/mcp`, for several clients.

By default, only this computer can connect. Each request passes `OriginCheck`, the answers to
browsers (CORS), `TokenCheck` and `ToolsetChoice` before it reaches the SDK.

A page in a browser must not reach the server, unless a person named its origin. This module
therefore checks the host name (DNS rebinding) and the origin of each request. The SDK's own checks
accept any port, and check nothing if the server listens on all addresses. Other computers need the
token.
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
from vmrag_mcp.client_tools import TOOLSETS_HEADER, TOOLSETS_PARAMETER, ClientTools
from vmrag_mcp.process import log
from vmrag_mcp.server import SESSION_HEADER, TOOLSETS_KEY, KnowledgeServer
from vmrag_mcp.transport.address import ListenAddress

PATH = "/mcp"
MAX_REQUEST_BYTES = 64 * 1024 * 1024
"""The SDK's default is too small for a long document."""

_STOP_SECONDS = 1
"""Time for running requests after the server is stopped."""

_USUAL_PORT = 80
"""The port that clients leave out."""

_OWN_SITE = {b"none", b"same-origin"}
"""Values of the header `Sec-Fetch-Site` of requests that no other page sends."""

_BAD_REQUEST = 400
_NOT_FOUND = 404
_INVALID_REQUEST = -32600
"""The code of JSON-RPC for an invalid request."""

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def serve_http(
    server: KnowledgeServer, address: ListenAddress, token: str | None, origins: Collection[str] = ()
) -> None:
    """Serve until a signal arrives. Pages of the `origins` can use the server.

    Raises `Busy` for a port in use.
    """
    server_socket = _open_socket(address)
    bound, port = server_socket.getsockname()[:2]
    own_address = ListenAddress(address.host, port)
    app: App = server.sdk.streamable_http_app(
        streamable_http_path=PATH,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # see `OriginCheck`
        max_request_body_size=MAX_REQUEST_BYTES,
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
    log(f"http://{own_address.url_host}:{own_address.port}{PATH}")
    settings = uvicorn.Config(
        OriginCheck(app, _list_hosts(own_address, ListenAddress(bound, port)), origins),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    uvicorn.Server(settings).run(sockets=[server_socket])


def _open_socket(address: ListenAddress) -> socket.socket:
    try:
        family, _, _, _, socket_address = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        server_socket = socket.socket(family, socket.SOCK_STREAM)
        server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # has no effect on a port in use
        server_socket.bind(socket_address)
        server_socket.listen()
    except (OSError, UnicodeError) as error:  # UnicodeError: the text cannot be a host name
        problem = f"cannot listen on {address.url_host}:{address.port}: {getattr(error, 'strerror', None) or error}."
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise Busy(problem, hint="use --http 0 for a free port", port=address.port) from error
        raise UsageInvalid(problem, hint=f"use --http {address.port} to listen on this computer") from error
    return server_socket


def _list_hosts(address: ListenAddress, bound: ListenAddress) -> frozenset[bytes]:
    """Return the accepted values of the header `Host`, in lower case.

    Empty if any value is accepted, because clients need the token anyway.
    """
    if address.is_wildcard:
        return frozenset()
    names = {address.url_host.lower(), bound.url_host}
    if address.is_loopback:
        names.add("localhost")
    hosts = {f"{name}:{bound.port}" for name in names}
    if bound.port == _USUAL_PORT:
        hosts |= names
    return frozenset(host.encode() for host in hosts)


class OriginCheck:
    """Passes on requests that name this server and come from no page or from an allowed origin.

    The server's own origin is allowed: it has no pages, and MCP's conformance suite sends it.
    """

    def __init__(self, app: App, hosts: Collection[bytes], origins: Collection[str]) -> None:
        self._app = app
        self._hosts = hosts
        self._origins = {origin.encode() for origin in origins} | {b"http://" + host for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":  # strip the spaces around values (RFC 9110, 5.5)
            scope = {**scope, "headers": [(name, value.strip(b" \t")) for name, value in scope["headers"]]}
        refusal = self._check_request(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
            return
        status, text = refusal
        headers = [(b"content-type", b"text/plain; charset=utf-8")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    def _check_request(self, scope: Scope) -> tuple[int, bytes] | None:
        """Return the status and the text of a refusal; None for an accepted request."""
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, []).append(value.lower())
        host = headers.get(b"host", [])
        origin = headers.get(b"origin", [])
        site = headers.get(b"sec-fetch-site", [])
        if self._hosts and (len(host) != 1 or host[0] not in self._hosts):
            return 421, b"unknown host name for this server\n"
        is_allowed = len(origin) == 1 and origin[0] in self._origins
        if not is_allowed and (origin or not _OWN_SITE.issuperset(site)):
            return 403, b"pages of this origin cannot use this server (see --allow-origin)\n"
        return None


class TokenCheck:
    """Passes on requests with the token."""

    def __init__(self, app: App, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._has_token(scope):
            headers = [(b"www-authenticate", b'Bearer realm="vmrag"'), (b"content-type", b"text/plain; charset=utf-8")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b"this server requires a bearer token\n"})
            return
        await self._app(scope, receive, send)

    def _has_token(self, scope: Scope) -> bool:
        """Return whether a request has the token.

        The comparison takes equally long for every token.
        """
        values = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(values) != 1:
            return False
        scheme, _, rest = values[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(b"Bearer " + rest.strip(), self._expected)


class ToolsetChoice:
    """Passes on requests with the toolsets that their header names, or else their address.

    The toolsets at the begin of a session apply to the whole session. Unknown names are refused.
    """

    def __init__(self, app: App, clients: ClientTools) -> None:
        self._app = app
        self._clients = clients

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        session = next(iter(_read_values(scope, SESSION_HEADER)), None)
        toolsets = _named_toolsets(scope)
        try:
            if toolsets is not None:
                self._clients.find_enabled(None, toolsets)  # raises for an unknown name
        except UsageInvalid as error:
            await _send_error(send, error)
            return

        async def send_and_track(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self._track_session(scope, session, toolsets, message)
            await send(message)

        await self._app({**scope, TOOLSETS_KEY: toolsets}, receive, send_and_track)

    def _track_session(
        self, scope: Scope, session: str | None, toolsets: str | None, answer: MutableMapping[str, Any]
    ) -> None:
        """Begin a session when an answer names it; end it when it is deleted or unknown."""
        if session is None:
            for new_session in _read_values(answer, SESSION_HEADER):
                self._clients.begin_session(new_session, toolsets)
        elif answer["status"] == _NOT_FOUND or (scope["method"] == "DELETE" and answer["status"] < _BAD_REQUEST):
            self._clients.end_session(session)


def _named_toolsets(scope: Scope) -> str | None:
    """Return the toolsets that a request names; None for none or an empty list."""
    query = parse_qsl(scope.get("query_string", b"").decode("latin-1"))
    values = _read_values(scope, TOOLSETS_HEADER.lower()) or [
        value for name, value in query if name == TOOLSETS_PARAMETER
    ]
    return ",".join(filter(None, (name.strip() for name in values))) or None


def _read_values(message: MutableMapping[str, Any], name: str) -> list[str]:
    return [value.decode("latin-1") for key, value in message.get("headers", ()) if key.lower() == name.encode()]


async def _send_error(send: Send, error: UsageInvalid) -> None:
    """Send a JSON-RPC error, with a status that every client treats as a failure."""
    valid_names = ", ".join(error.details["toolsets"])
    message = f"{error.message} Use these names in {TOOLSETS_HEADER}, or in {TOOLSETS_PARAMETER} of the address: {valid_names}"
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": _INVALID_REQUEST, "message": message}}
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": _BAD_REQUEST, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})
