"""Connections of httpcore: to addresses that were checked, and within one limit of time.

httpcore gives the reading of HTTP and a documented place to put one's own network in; httpx and
urllib3 decompress what they get without a limit, and open sockets by names.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from typing import Any

import httpcore
from httpcore import SOCKET_OPTION, NetworkBackend, NetworkStream

from vmrag_link.toolsets.libraries.web.deadline import Deadline

Addresses = Callable[[str, Deadline], list[str]]
"""The addresses of a host, as `Resolver.addresses`."""


class CheckedNetwork(NetworkBackend):
    """TCP to the addresses that `addresses` gives for a host, in their order."""

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
        """Raises as `addresses` does, the last address's failure, and `TimeoutError`."""
        addresses = self._addresses(host, self._deadline)
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            try:
                stream = self._sockets.connect_tcp(
                    address, port, self._deadline.left() / left, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if left == 1:
                    raise
            else:
                return _TimedStream(stream, self._deadline)
        raise AssertionError  # there is an address, and the last one returns or raises


class _TimedStream(NetworkStream):
    """A stream of which no step goes on beyond the deadline, however slowly bytes drip in."""

    def __init__(self, stream: NetworkStream, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        return self._stream.read(max_bytes, self._deadline.left())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        self._stream.write(buffer, self._deadline.left())

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, self._deadline.left())
        return _TimedStream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
