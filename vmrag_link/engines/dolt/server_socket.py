"""The socket to a Dolt sql-server, and its errors.

The socket takes neither more nor longer than is allowed: PyMySQL waits as often as a server sends a
byte, and keeps a row of any size in memory. An error says what the server said, or what it left
unsaid; no password is in any of them.
"""

from __future__ import annotations

import contextlib
import functools
import re
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from vmrag_link import terminal_text
from vmrag_link.engines.dolt.access import DoltAccess
from vmrag_link.engines.dolt.connection import dolt_error
from vmrag_link.errors import (
    Busy,
    EngineUnwritable,
    KnowledgeMissing,
    LoginRefused,
    ServerUnreachable,
    VmragError,
    shortened,
)

_LOGIN_DENIED = 1045
_CONFLICTS = (1205, 1213)
_DENIED = (1044, 1142, 1227, 1290, 1370, 1792)
_READ_ONLY = (1290, 1792)
_DENIED_WORDS = ("command denied to user", "access denied for user", "read only mode", "read-only mode")
_GONE = (1040, 1053, 2003, 2006, 2013, 2026)
_GONE_WORDS = ("this connection can no longer be used",)
"""After a garbage collection that ends sessions."""

_ENCRYPTION_HINTS = {
    "insecure connections": "encrypt the connection: git config vmrag.dolt.tls true",
    "mismatch": "use a host name that the server's certificate has: git config vmrag.dolt.server HOST:PORT",
    "has expired": "ask the server's administrator to renew its certificate",
    "certificate verify failed": "name the certificate of the authority that signed the server's:"
    " git config vmrag.dolt.authorities /PATH/TO/ca.pem",
    "ssl is required": "ask the server's administrator to set listener.tls_cert and listener.tls_key; a server on this"
    " machine also works without: git config vmrag.dolt.tls false",
}
"""What helps if the encryption fails, by words of the reason. The first that fits applies."""

_MOST_SHOWN = 500


def translate_error(access: DoltAccess, code: int, words: str, *, gone: bool, statement: str = "") -> VmragError:
    """The error for what the server, or PyMySQL in its place, said with one of MySQL's codes.

    `gone`: the session has ended. `statement`: what failed.
    """
    lower = words.lower()
    if code == _LOGIN_DENIED:
        return login_refused_error(access)
    if code in _CONFLICTS:
        return Busy(
            f"Somebody else has changed the same at the same time: {_one_line(words)}.", hint="Run the command again."
        )
    if code in _DENIED or any(denied_word in lower for denied_word in _DENIED_WORDS):
        return EngineUnwritable(
            f"The server {access.server} does not allow that: {_one_line(words)}.",
            hint=_remedy(access, code, lower, statement),
            said=words,
        )
    if gone or code in _GONE or any(gone_word in lower for gone_word in _GONE_WORDS):
        return unreachable_error(access, words)
    return dolt_error(words)


def _remedy(access: DoltAccess, code: int, words: str, statement: str) -> str:
    """Return what makes a server allow the statement that it denied."""
    if code in _READ_ONLY or "read only" in words or "read-only" in words:
        return "the server is read-only; name one that can be written: git config vmrag.dolt.server HOST:PORT"
    procedure = re.match(r"CALL (dolt_\w+)\(", statement)
    right = f"EXECUTE ON PROCEDURE {access.database}.{procedure[1]}" if procedure else f"ALL ON {access.database}.*"
    return f"ask its administrator for this right: GRANT {right} TO '{shortened(access.user)}'@'%'"


def unreachable_error(access: DoltAccess, why: str) -> ServerUnreachable:
    return ServerUnreachable(
        f"The server {access.server} cannot be reached, or has ended the session: {_one_line(why)}.",
        hint=_way_to_reach(why.lower()),
        server=access.server,
    )


def _way_to_reach(why: str) -> str:
    for words, hint in _ENCRYPTION_HINTS.items():
        if words in why:
            return hint
    return "Ask whether it runs there, then run the command again. The address: git config vmrag.dolt.server"


class ServerSilent(ServerUnreachable):
    """The server has not answered in time."""


def silent_error(access: DoltAccess, seconds: str) -> ServerSilent:
    error = unreachable_error(access, f"it has not answered within {seconds}")
    return ServerSilent(error.message, hint=error.hint, **error.details)


def lost_session_error(access: DoltAccess) -> ServerUnreachable:
    """Where something depended on the session."""
    return ServerUnreachable(
        f"The session with the server {access.server} was lost in the middle of writing.",
        hint="Run the command again.",
        server=access.server,
    )


def other_program_error(access: DoltAccess) -> ServerUnreachable:
    return ServerUnreachable(
        f"What answers at {access.server} is not Dolt's sql-server.",
        hint="Name the server: git config vmrag.dolt.server HOST:PORT",
        server=access.server,
    )


def login_refused_error(access: DoltAccess) -> LoginRefused:
    how = "with the password" if access.password else "without a password"
    return LoginRefused(
        f"The server {access.server} does not let in the user {shortened(access.user)!r} {how}.",
        hint="Set VMRAG_DOLT_PASSWORD in the environment; name the user by: git config vmrag.dolt.user NAME",
        server=access.server,
        user=access.user,
    )


def missing_database_error(access: DoltAccess) -> KnowledgeMissing:
    return KnowledgeMissing(
        f"The server {access.server} has no knowledge base in a database {access.database!r},"
        f" or does not show it to the user {shortened(access.user)!r}.",
        hint="Ask who runs it for its name: git config vmrag.dolt.database NAME",
        server=access.server,
        database=access.database,
    )


def cleartext_error(access: DoltAccess) -> ServerUnreachable:
    return ServerUnreachable(
        f"The server {access.server} asks for the password in the clear, which it does not get.",
        hint="Encrypt the connection: git config vmrag.dolt.tls true",
        server=access.server,
    )


def _one_line(words: str) -> str:
    return terminal_text.escape_line(" ".join(words.split()))[:_MOST_SHOWN].rstrip(".")


T = TypeVar("T")


class Allowance:
    """How much may be received, and for how long: `granted` seconds.

    `exceeded`: that much was not enough; `late`: so long was not.
    """

    def __init__(self) -> None:
        self.exceeded = self.late = False
        self.granted = 0.0
        self._bytes = 0
        self._deadline = 0.0

    def renew(self, most: int, seconds: float) -> None:
        self.exceeded = self.late = False
        self.granted, self._bytes, self._deadline = seconds, most, time.monotonic() + seconds

    def remaining_seconds(self) -> float:
        """Raises `TimeoutError` where none is left."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            self.late = True
            raise TimeoutError("the time is over")
        return left

    def wait_within(self, sock: socket.socket, wait: Callable[[], T]) -> T:
        """What `wait` returns, for which the socket has the time that is left."""
        sock.settimeout(self.remaining_seconds())
        try:
            return wait()
        except TimeoutError:
            self.late = True
            raise

    def receive(self, sock: socket.socket, wait: Callable[[], int]) -> int:
        """As `within`, for a number of bytes. Raises `OSError` for more than is allowed."""
        received = self.wait_within(sock, wait)
        self._bytes -= received
        if self._bytes < 0:
            self.exceeded = True
            raise OSError("more than is allowed")
        return received


class _Plain(socket.socket):
    """PyMySQL reads by `recv_into` and sends by `sendall`."""

    allowance: Allowance

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        return self.allowance.receive(self, functools.partial(super().recv_into, buffer, nbytes, flags))

    def sendall(self, data: Any, flags: int = 0) -> None:
        self.allowance.wait_within(self, functools.partial(super().sendall, data, flags))


class _Encrypted(ssl.SSLSocket):
    """As `_Plain`."""

    @property
    def allowance(self) -> Allowance:
        context = self.context
        assert isinstance(context, _Tls)  # noqa: S101  nothing else makes one
        return context.allowance

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        return self.allowance.receive(self, functools.partial(super().recv_into, buffer, nbytes, flags))

    def sendall(self, data: Any, flags: int = 0) -> None:
        self.allowance.wait_within(self, functools.partial(super().sendall, data, flags))


class _Tls(ssl.SSLContext):
    allowance: Allowance
    sslsocket_class = _Encrypted


def connect(host: str, port: int, allowance: Allowance) -> socket.socket:
    """A connection that is not encrypted yet: MySQL's protocol begins so. Raises `OSError`.

    All addresses of the host together get the time that is allowed.
    """
    made = _connect_to_any([info[4][:2] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)], allowance)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    plain = _Plain(made.family, made.type, made.proto, fileno=made.detach())
    plain.allowance = allowance
    return plain


def _connect_to_any(addresses: Sequence[tuple[Any, ...]], allowance: Allowance) -> socket.socket:
    for address in addresses[:-1]:
        with contextlib.suppress(OSError):
            return socket.create_connection(address, timeout=allowance.remaining_seconds())
    try:
        return socket.create_connection(addresses[-1], timeout=allowance.remaining_seconds())
    except TimeoutError:
        allowance.late = True
        raise


def create_tls_context(authorities: str, allowance: Allowance) -> ssl.SSLContext:
    """What demands a certificate of the server's name, by one of the system's authorities.

    `authorities`: by one in this file instead. Raises `OSError` for a file that holds none.
    """
    context = _Tls(ssl.PROTOCOL_TLS_CLIENT)
    context.allowance = allowance
    if authorities:
        context.load_verify_locations(authorities)
    else:
        context.load_default_certs()
    return context
