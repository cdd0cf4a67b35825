"""The socket to a Dolt sql-server, and its errors.

The socket limits time and bytes: without it, PyMySQL would wait as long as a server sends a byte
now and then, and keep a row of any size in memory. Errors contain the server's message and never a
password.
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
_SESSION_ENDED = (1040, 1053, 2003, 2006, 2013, 2026)
_SESSION_ENDED_WORDS = ("this connection can no longer be used",)
"""The message after a garbage collection that ends sessions."""

_ENCRYPTION_HINTS = {
    "insecure connections": "run 'git config vmrag.dolt.tls true' to encrypt the connection",
    "mismatch": "run 'git config vmrag.dolt.server HOST:PORT' with a host name that the server's certificate has",
    "has expired": "ask the server's administrator to renew its certificate",
    "certificate verify failed": "run 'git config vmrag.dolt.authorities /PATH/TO/ca.pem' with the authority that signed the server's "
    "certificate",
    "ssl is required": "ask the server's administrator to set listener.tls_cert and listener.tls_key, or run 'git config "
    "vmrag.dolt.tls false' for a server on this machine",
}
"""The hint for each message of a failed encryption. The first that matches applies."""

_MAX_SHOWN_CHARACTERS = 500


def translate_error(access: DoltAccess, code: int, words: str, *, gone: bool, statement: str = "") -> VmragError:
    """Return the error for a code of MySQL and a message from the server or from PyMySQL.

    `gone`: the session has ended. `statement`: the statement that failed.
    """
    lower = words.lower()
    if code == _LOGIN_DENIED:
        return login_refused_error(access)
    if code in _CONFLICTS:
        return Busy(
            f"another program changed the same rows at the same time: {_one_line(words)}.", hint="run the command again"
        )
    if code in _DENIED or any(phrase in lower for phrase in _DENIED_WORDS):
        return EngineUnwritable(
            f"the server {access.server} does not allow this: {_one_line(words)}.",
            hint=_permission_hint(access, code, lower, statement),
            said=words,
        )
    if gone or code in _SESSION_ENDED or any(phrase in lower for phrase in _SESSION_ENDED_WORDS):
        return unreachable_error(access, words)
    return dolt_error(words)


def _permission_hint(access: DoltAccess, code: int, words: str, statement: str) -> str:
    """Return a hint with the right that allows the statement which the server denied."""
    if code in _READ_ONLY or "read only" in words or "read-only" in words:
        return "run 'git config vmrag.dolt.server HOST:PORT' to use a server that can be written"
    procedure = re.match(r"CALL (dolt_\w+)\(", statement)
    right = f"EXECUTE ON PROCEDURE {access.database}.{procedure[1]}" if procedure else f"ALL ON {access.database}.*"
    return f'ask its administrator to run \'GRANT {right} TO "{shortened(access.user)}"@"%"\''


def unreachable_error(access: DoltAccess, why: str) -> ServerUnreachable:
    return ServerUnreachable(
        f"cannot reach the server {access.server}, or it ended the session: {_one_line(why)}.",
        hint=_reach_hint(why.lower()),
        server=access.server,
    )


def _reach_hint(why: str) -> str:
    for words, hint in _ENCRYPTION_HINTS.items():
        if words in why:
            return hint
    return "check that it is running, or run 'git config vmrag.dolt.server HOST:PORT' to change the address"


class ServerSilent(ServerUnreachable):
    """The server did not answer in time."""


def silent_error(access: DoltAccess, seconds: str) -> ServerSilent:
    error = unreachable_error(access, f"no answer within {seconds}")
    return ServerSilent(error.message, hint=error.hint, **error.details)


def lost_session_error(access: DoltAccess) -> ServerUnreachable:
    """Return the error for a lost session that something depended on."""
    return ServerUnreachable(
        f"the session with the server {access.server} was lost while writing.",
        hint="run the command again",
        server=access.server,
    )


def other_program_error(access: DoltAccess) -> ServerUnreachable:
    return ServerUnreachable(
        f"the program at {access.server} is not a Dolt sql-server.",
        hint="run 'git config vmrag.dolt.server HOST:PORT' to correct the address",
        server=access.server,
    )


def login_refused_error(access: DoltAccess) -> LoginRefused:
    how = "with the password" if access.password else "without a password"
    return LoginRefused(
        f"the server {access.server} refused the login of {shortened(access.user)!r} {how}.",
        hint="set VMRAG_DOLT_PASSWORD in the environment, and run 'git config vmrag.dolt.user NAME' to set the user",
        server=access.server,
        user=access.user,
    )


def missing_database_error(access: DoltAccess) -> KnowledgeMissing:
    return KnowledgeMissing(
        f"the server {access.server} has no knowledge base in a database {access.database!r},"
        f" or the user {shortened(access.user)!r} may not see it.",
        hint="ask its administrator for the name, then run 'git config vmrag.dolt.database NAME'",
        server=access.server,
        database=access.database,
    )


def cleartext_error(access: DoltAccess) -> ServerUnreachable:
    return ServerUnreachable(
        f"the server {access.server} requests the password unencrypted; it was not sent.",
        hint="run 'git config vmrag.dolt.tls true' to encrypt the connection",
        server=access.server,
    )


def _one_line(words: str) -> str:
    return terminal_text.escape_line(" ".join(words.split()))[:_MAX_SHOWN_CHARACTERS].rstrip(".")


T = TypeVar("T")


class Allowance:
    """Limits for received bytes and for time.

    `granted` is the time limit in seconds. `exceeded` and `late` are set when a limit is reached.
    """

    def __init__(self) -> None:
        self.exceeded = self.late = False
        self.granted = 0.0
        self._bytes = 0
        self._deadline = 0.0

    def renew(self, max_bytes: int, seconds: float) -> None:
        self.exceeded = self.late = False
        self.granted = seconds
        self._bytes = max_bytes
        self._deadline = time.monotonic() + seconds

    def remaining_seconds(self) -> float:
        """Return the remaining seconds. Raises `TimeoutError` if there are none."""
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            self.late = True
            raise TimeoutError("time limit exceeded")
        return remaining

    def wait_within(self, sock: socket.socket, wait: Callable[[], T]) -> T:
        """Return the result of `wait`, with the remaining time as the socket's timeout."""
        sock.settimeout(self.remaining_seconds())
        try:
            return wait()
        except TimeoutError:
            self.late = True
            raise

    def receive(self, sock: socket.socket, wait: Callable[[], int]) -> int:
        """Return the number of bytes that `wait` received in the remaining time.

        Raises `OSError` if the limit is exceeded.
        """
        received = self.wait_within(sock, wait)
        self._bytes -= received
        if self._bytes < 0:
            self.exceeded = True
            raise OSError("size limit exceeded")
        return received


class _Plain(socket.socket):
    """A socket with limits. PyMySQL reads with `recv_into` and sends with `sendall`."""

    allowance: Allowance

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        return self.allowance.receive(self, functools.partial(super().recv_into, buffer, nbytes, flags))

    def sendall(self, data: Any, flags: int = 0) -> None:
        self.allowance.wait_within(self, functools.partial(super().sendall, data, flags))


class _Encrypted(ssl.SSLSocket):
    """An encrypted socket with the same limits."""

    @property
    def allowance(self) -> Allowance:
        context = self.context
        assert isinstance(context, _Tls)  # noqa: S101  only `create_tls_context` creates one
        return context.allowance

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        return self.allowance.receive(self, functools.partial(super().recv_into, buffer, nbytes, flags))

    def sendall(self, data: Any, flags: int = 0) -> None:
        self.allowance.wait_within(self, functools.partial(super().sendall, data, flags))


class _Tls(ssl.SSLContext):
    allowance: Allowance
    sslsocket_class = _Encrypted


def connect(host: str, port: int, allowance: Allowance) -> socket.socket:
    """Return a connection without encryption, because MySQL's protocol begins without it.

    All addresses of the host share the allowed time. Raises `OSError`.
    """
    addresses = [info[4][:2] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    sock = _connect_to_any(addresses, allowance)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    plain = _Plain(sock.family, sock.type, sock.proto, fileno=sock.detach())
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
    """Return a context that requires a valid certificate for the server's name.

    A system authority must have signed it. With `authorities`, a certificate in this file must have
    signed it instead. Raises `OSError` for a file without certificates.
    """
    context = _Tls(ssl.PROTOCOL_TLS_CLIENT)
    context.allowance = allowance
    if authorities:
        context.load_verify_locations(authorities)
    else:
        context.load_default_certs()
    return context
