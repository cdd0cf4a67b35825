"""Limits of the conversion of one file, its error, and the frames between vmrag and the child
process: a length and that many bytes.

The first frame to the child has its `ConversionLimits` as JSON. Every child loads this module, so
it imports little.
"""

from __future__ import annotations

import struct
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from vmrag_link.settings import IngestSettings


MIB = 1 << 20
MAX_BYTES = 64 * MIB
"""Maximum size of a document."""


class ConversionLimits(NamedTuple):
    """Limits of the conversion of one file. `max_bytes` and `max_text` apply to every format, the
    others only to the child process.
    """

    max_bytes: int = MAX_BYTES
    """Bytes of the file."""

    max_text: int = MAX_BYTES
    """Bytes of its text."""

    max_expanded: int = 256 * MIB
    """Bytes of all members of an archive."""

    max_cpu_seconds: int = 60
    """CPU time."""

    max_seconds: int = 180
    """Elapsed time."""

    max_memory: int = 2048 * MIB
    """Bytes of address space."""


def read_limits(settings: IngestSettings) -> ConversionLimits:
    """Return the limits of settings. Elapsed time may exceed CPU time, because other programs also
    run.
    """
    defaults = ConversionLimits()
    return ConversionLimits(
        max_bytes=settings.max_bytes,
        max_text=settings.text_mb * MIB,
        max_expanded=max(defaults.max_expanded, settings.max_bytes),
        max_cpu_seconds=settings.convert_s,
        max_seconds=3 * settings.convert_s,
        max_memory=settings.convert_mb * MIB,
    )


BINARY_WITHIN = 8000
"""Number of bytes in which git searches for a NUL."""


class ContentUnreadable(Exception):
    """A file cannot be converted. `reason` completes a sentence that begins with its name: `is not
    UTF-8 (byte 3)`.

    `hint`: a command that may help; empty if only another file helps.
    """

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


_LENGTH = struct.Struct(">Q")


class Disconnected(Exception):
    """The other process has ended or sent invalid data."""


def send_frames(stream: IO[bytes], *frames: bytes) -> None:
    """Write frames."""
    for frame in frames:
        stream.write(_LENGTH.pack(len(frame)))
        stream.write(frame)
    stream.flush()


def receive_frame(stream: IO[bytes], longest: int) -> bytes:
    """Return the next frame. Raises `Disconnected` at the end, and for a frame longer than
    `longest`.
    """
    length = _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))[0]
    if length > longest:
        raise Disconnected
    return _read_exactly(stream, length)


def _read_exactly(stream: IO[bytes], length: int) -> bytes:
    data = stream.read(length)
    if len(data) < length:
        raise Disconnected
    return data
