"""What the conversion of one file may cost, the error of one that cannot be converted, and what we
and the child process say to each other: frames of a length and that many bytes.

The first frame to the child holds its `ConversionLimits`, as JSON. Every child loads this module,
so it imports little.
"""

from __future__ import annotations

import struct
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from vmrag_link.settings import IngestSettings


MIB = 1 << 20
MAX_BYTES = 64 * MIB
"""Of a document."""


class ConversionLimits(NamedTuple):
    """Limits of the conversion of one file.

    `max_bytes` of the file and `max_text` of its text hold for every format, the others for what
    the child process converts: `max_expanded` bytes of all that an archive holds, seconds of
    computing and of waiting, and bytes of address space.
    """

    max_bytes: int = MAX_BYTES
    max_text: int = MAX_BYTES
    max_expanded: int = 256 * MIB
    max_cpu_seconds: int = 60
    max_seconds: int = 180
    max_memory: int = 2048 * MIB


def read_limits(settings: IngestSettings) -> ConversionLimits:
    """Waiting may take longer than computing: other programs want the processor, too."""
    usual = ConversionLimits()
    return ConversionLimits(
        max_bytes=settings.max_bytes,
        max_text=settings.text_mb * MIB,
        max_expanded=max(usual.max_expanded, settings.max_bytes),
        max_cpu_seconds=settings.convert_s,
        max_seconds=3 * settings.convert_s,
        max_memory=settings.convert_mb * MIB,
    )


BINARY_WITHIN = 8000
"""Git looks for a NUL in so many bytes."""


class ContentUnreadable(Exception):
    """`reason` completes a sentence that begins with the file's name: `is not UTF-8 (byte 3)`.

    `hint` is a command that may help; empty where only another file does.
    """

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


_LENGTH = struct.Struct(">Q")


class Disconnected(Exception):
    """The other end is gone, or says what cannot be."""


def send_frames(stream: IO[bytes], *frames: bytes) -> None:
    for frame in frames:
        stream.write(_LENGTH.pack(len(frame)))
        stream.write(frame)
    stream.flush()


def receive_frame(stream: IO[bytes], longest: int) -> bytes:
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
