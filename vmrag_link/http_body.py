"""Read the body of an HTTP answer within a limit, which applies to packed and unpacked bytes."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

GZIP = ("gzip", "x-gzip")
"""The names of the only encoding that vmrag accepts."""

GZIP_BEGINS = b"\x1f\x8b"
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_SLICE = 4096  # zlib copies all that follows a piece, once for each piece
_MAX_PIECES = 10_000


class BodyTooLarge(Exception):
    """The body exceeds the limit."""


class BodyDamaged(Exception):
    """The body cannot be unpacked."""


def read_body(chunks: Iterable[bytes], max_bytes: int) -> bytes:
    """Read all bytes of a stream.

    Raises `BodyTooLarge`.
    """
    body = bytearray()
    for chunk in chunks:
        if len(body) + len(chunk) > max_bytes:
            raise BodyTooLarge
        body += chunk
    return bytes(body)


def gunzip(packed: bytes, max_bytes: int) -> bytes:
    """Unpack gzip data, which consists of one piece or several.

    A bomb needs no more memory than `max_bytes`, and thousands of empty pieces take hardly any
    time. Raises `BodyTooLarge` and `BodyDamaged`.
    """
    body = bytearray()
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    pieces = 1
    for at in range(0, len(packed), _SLICE):
        rest = packed[at : at + _SLICE]
        while rest:
            if unpacker.eof:
                rest = rest.lstrip(b"\0")  # padding of some servers
                if not rest:
                    break
                unpacker = zlib.decompressobj(_GZIP_WINDOW)
                pieces += 1
            try:
                body += unpacker.decompress(rest, max_bytes + 1 - len(body))
            except zlib.error as error:
                raise BodyDamaged from error
            if len(body) > max_bytes:
                raise BodyTooLarge
            if pieces > _MAX_PIECES:
                raise BodyDamaged
            rest = unpacker.unused_data
    if packed and not unpacker.eof:
        raise BodyDamaged
    return bytes(body)
