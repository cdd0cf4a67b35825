"""A filter before doltlite's own HTTP server, for requests that its own client could not have sent.

The library answers every connection, and a web page can make a browser connect: to a name that
resolves to this computer (DNS rebinding), or across sites with simple requests. So a request must
name this server, must come from no other site's page, and must look as the client's do. Recorded
from version 0.51.3, these are GET, or POST and PUT with `application/octet-stream`, `Host` without
a port, one request per connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

from vmrag_link.models import Record

HEAD_BYTES = 16 * 1024
BODY_BYTES = 2**31 - 1
"""The library counts them in an `int`."""

KIND = "application/octet-stream"
METHODS = ("GET", "POST", "PUT")
PIECE = 64 * 1024

_REQUEST = re.compile(r"([!-~]+) (/[!-~]*) HTTP/1\.[01]")
_HEADER = re.compile(r"([\w!#$%&'*+.^`|~-]+):[ \t]*([\t -~\x80-\xff]*?)[ \t]*", re.ASCII)
_ONCE = frozenset(("host", "origin", "sec-fetch-site", "content-length", "content-type"))
_OWN_SITE = ("same-origin", "none")
"""`Sec-Fetch-Site` of a page of this server, and of an address that a person typed."""


class RequestRefused(Exception):
    """A request that is refused: its HTTP status, and a sentence for a person."""

    def __init__(self, status: str, why: str) -> None:
        super().__init__(why)
        self.status = status


class Request(Record, frozen=True):
    """An acceptable request: `head` holds what was checked and nothing else; `length` bytes of body
    follow.
    """

    head: bytes
    length: int


class Names(Record, frozen=True):
    """The hosts by which clients may name this server, in lower case, and its port."""

    hosts: frozenset[str]
    port: int

    @property
    def written(self) -> frozenset[str]:
        """As `Host` may say them: the engine's client leaves the port out."""
        return self.hosts | {f"{host}:{self.port}" for host in self.hosts}


@contextlib.contextmanager
def answering(listening: socket.socket, inner: Path, *, hosts: Collection[str], timeout: int) -> Iterator[None]:
    """Answer at a listening socket, in a thread, until the block ends.

    The answers are those of the server at the unix socket `inner`. A connection is cut off after
    `timeout` seconds.
    """
    names = Names(frozenset(host.lower() for host in hosts), listening.getsockname()[1])
    loop = asyncio.new_event_loop()
    front = _Front(inner, names, timeout)
    thread = threading.Thread(target=_run, args=(loop, front, listening), name="vmrag serve")
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(front.stopped.set)
        thread.join()


def _run(loop: asyncio.AbstractEventLoop, front: _Front, listening: socket.socket) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(front.serve(listening))


class _Front:
    def __init__(self, inner: Path, names: Names, timeout: int) -> None:
        self.stopped = asyncio.Event()
        self._inner, self._names, self._timeout = str(inner), names, timeout
        self._open: set[asyncio.Task[None]] = set()

    async def serve(self, listening: socket.socket) -> None:
        server = await asyncio.start_server(self._begin, sock=listening, limit=HEAD_BYTES)
        await self.stopped.wait()
        server.close()
        for each in self._open:
            each.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Start the task here: asyncio's stream server would print a stack trace for a cancelled
        one.
        """
        task = asyncio.create_task(self._serve_connection(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A client that is slow, or gone, is nobody to tell anything.
        with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
            try:
                async with asyncio.timeout(self._timeout):
                    await self._answer(reader, writer)
            finally:
                writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = parse_request(await _head(reader), self._names)
            inner = await self._connect_inner()
        except RequestRefused as why:
            await _refuse(reader, writer, why)
        else:
            await _exchange(reader, writer, request, *inner)

    async def _connect_inner(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await asyncio.open_unix_connection(self._inner)
        except OSError as error:
            raise RequestRefused(
                "502 Bad Gateway", f"The engine's server does not answer: {error.strerror}."
            ) from error


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise RequestRefused(
            "431 Request Header Fields Too Large", f"A head has at most {HEAD_BYTES} bytes."
        ) from error


def parse_request(head: bytes, names: Names) -> Request:
    """The request that a head stands for. Raises `RequestRefused`."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    request = _REQUEST.fullmatch(first)
    if request is None:
        raise RequestRefused("400 Bad Request", "The first line is no request for a path of this server.")
    method, path = request.groups()
    headers = _headers(lines)
    _require_own(headers, names)
    if method not in METHODS:
        raise RequestRefused("405 Method Not Allowed", f"Only {', '.join(METHODS)}.")
    length, kind = _length(headers), headers.get("content-type")
    if method == "GET" and length:
        raise RequestRefused("400 Bad Request", "A GET has no body.")
    if method != "GET" and kind != KIND and (length or kind is not None):
        raise RequestRefused("415 Unsupported Media Type", f"Only {KIND}.")
    passed = [f"{method} {path} HTTP/1.1", f"Host: {headers['host']}", f"Content-Length: {length}", "Connection: close"]
    if kind is not None:
        passed.append(f"Content-Type: {KIND}")
    return Request("\r\n".join([*passed, "", ""]).encode("latin-1"), length)


def _headers(lines: list[str]) -> dict[str, str]:
    """By lower-case name. Nothing that two servers could read in two ways gets through."""
    found: dict[str, str] = {}
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            raise RequestRefused("400 Bad Request", "A line of the head is no header.")
        name = header[1].lower()
        if name == "transfer-encoding" or (name in _ONCE and name in found):
            raise RequestRefused("400 Bad Request", f"{name} is not taken, or not twice.")
        found[name] = header[2]
    if "host" not in found:
        raise RequestRefused("400 Bad Request", "A request names a host.")
    return found


def _require_own(headers: dict[str, str], names: Names) -> None:
    if headers["host"].lower() not in names.written:
        raise RequestRefused(
            "403 Forbidden", "This server has no such name. Others than its address: vmrag serve --host NAME"
        )
    origin = headers.get("origin")
    if origin is not None and origin.lower() not in {f"http://{host}:{names.port}" for host in names.hosts}:
        raise RequestRefused("403 Forbidden", "Pages of other sites get no answer.")
    if headers.get("sec-fetch-site", "none").lower() not in _OWN_SITE:
        raise RequestRefused("403 Forbidden", "Pages of other sites get no answer.")


def _length(headers: dict[str, str]) -> int:
    text = headers.get("content-length", "0")
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise RequestRefused("400 Bad Request", "Content-Length is no number.")
    if int(text) > BODY_BYTES:
        raise RequestRefused("413 Content Too Large", f"A body has at most {BODY_BYTES} bytes.")
    return int(text)


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, why: RequestRefused) -> None:
    text = f"{why}\n".encode()
    head = (
        f"HTTP/1.1 {why.status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + text)
    writer.write_eof()
    while await reader.read(PIECE):  # the system drops an answer whose reader is still being sent something
        pass


async def _exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    request: Request,
    inner_reader: asyncio.StreamReader,
    inner_writer: asyncio.StreamWriter,
) -> None:
    inner_writer.write(request.head)
    sending = asyncio.create_task(_send_body(reader, inner_writer, request.length))
    try:
        while data := await inner_reader.read(PIECE):
            writer.write(data)
            await writer.drain()
    finally:
        sending.cancel()
        inner_writer.close()


async def _send_body(reader: asyncio.StreamReader, inner: asyncio.StreamWriter, length: int) -> None:
    with contextlib.suppress(OSError):  # the server has answered already, and its answer says why
        while length:
            data = await reader.read(min(length, PIECE))
            if not data:  # the client is gone: so is the request
                inner.close()
                return
            inner.write(data)
            await inner.drain()
            length -= len(data)
