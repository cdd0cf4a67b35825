"""The socket to a Dolt sql-server: it takes neither more nor longer than is allowed.

PyMySQL waits as often as a server sends a byte, and keeps a row of any size in memory.
"""

from __future__ import annotations

import functools
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, TypeVar

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

    def seconds(self) -> float:
        """Raises `TimeoutError` where none is left."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            self.late = True
            raise TimeoutError("the time is over")
        return left

    def within(self, sock: socket.socket, wait: Callable[[], T]) -> T:
        """What `wait` returns, for which the socket has the time that is left."""
        sock.settimeout(self.seconds())
        try:
            return wait()
        except TimeoutError:
            self.late = True
            raise

    def receive(self, sock: socket.socket, wait: Callable[[], int]) -> int:
        """As `within`, for a number of bytes. Raises `OSError` for more than is allowed."""
        received = self.within(sock, wait)
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
        self.allowance.within(self, functools.partial(super().sendall, data, flags))


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
        self.allowance.within(self, functools.partial(super().sendall, data, flags))


class _Tls(ssl.SSLContext):
    allowance: Allowance
    sslsocket_class = _Encrypted


def connect(host: str, port: int, allowance: Allowance) -> socket.socket:
    """A connection that is not encrypted yet: MySQL's protocol begins so. Raises `OSError`."""
    made = socket.create_connection((host, port), timeout=allowance.seconds())
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    plain = _Plain(made.family, made.type, made.proto, fileno=made.detach())
    plain.allowance = allowance
    return plain


def encryption(authorities: str, allowance: Allowance) -> ssl.SSLContext:
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
