"""The body of an answer, and never more of it than is allowed: neither as it comes nor unpacked."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

GZIP = ("gzip", "x-gzip")
"""The names of the one encoding that is asked for."""

GZIP_BEGINS = b"\x1f\x8b"
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


class TooLarge(Exception):
    """There is more than is allowed."""


class Damaged(Exception):
    """What says that it is packed cannot be unpacked."""


def read_body(chunks: Iterable[bytes], most: int) -> bytes:
    """All bytes of a stream. Raises `TooLarge`."""
    body = bytearray()
    for chunk in chunks:
        if len(body) + len(chunk) > most:
            raise TooLarge
        body += chunk
    return bytes(body)


def gunzip(packed: bytes, most: int) -> bytes:
    """What was packed by gzip, in one piece or several.

    A bomb costs as much memory as `most` says. Raises `TooLarge`, `Damaged`.
    """
    body = bytearray()
    rest = packed
    while rest:
        unpacker = zlib.decompressobj(_GZIP_WINDOW)
        try:
            body += unpacker.decompress(rest, most + 1 - len(body))
        except zlib.error as error:
            raise Damaged from error
        if len(body) > most:
            raise TooLarge
        if not unpacker.eof:
            raise Damaged
        rest = unpacker.unused_data.lstrip(b"\0")  # what some servers fill up with
    return bytes(body)
