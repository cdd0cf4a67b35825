"""What we and the child process say to each other: frames of a length and that many bytes.

The first one to the child holds its `ConversionLimits`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import IO, Any

import msgspec

from vmrag_link.models import Record

_LENGTH = struct.Struct(">Q")


class ConversionTask(Record, frozen=True):
    """A file to convert; its bytes are the next frame. `reader`: as of a `Format`."""

    file_type: str
    charset: str
    reader: str = ""


class Answer(Record, frozen=True):
    """What became of a task. `failed` is the reason, with a `hint`; empty: the rest is the result.

    After the `last` one the child ends: it has used too much to go on.
    """

    failed: str = ""
    hint: str = ""
    text: str = ""
    title: str = ""
    metadata: Mapping[str, Any] = {}
    last: bool = False


class Disconnected(Exception):
    """The other end is gone, or says what cannot be."""


def send(stream: IO[bytes], *frames: bytes) -> None:
    for frame in frames:
        stream.write(_LENGTH.pack(len(frame)))
        stream.write(frame)
    stream.flush()


def receive(stream: IO[bytes], longest: int) -> bytes:
    """The next frame. Raises `Disconnected` at the end and for a frame longer than that."""
    length = _LENGTH.unpack(_exactly(stream, _LENGTH.size))[0]
    if length > longest:
        raise Disconnected
    return _exactly(stream, length)


def _exactly(stream: IO[bytes], length: int) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise Disconnected
    return data


def encode(message: Record) -> bytes:
    return msgspec.msgpack.encode(message)
