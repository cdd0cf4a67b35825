"""What the conversion of one file may cost, and the error of one that cannot be converted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmrag_link.models import Record

if TYPE_CHECKING:
    from vmrag_link.settings import IngestSettings


MIB = 1 << 20
MAX_BYTES = 64 * MIB
"""Of a document."""


class ConversionLimits(Record, frozen=True):
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


def limits_of(settings: IngestSettings) -> ConversionLimits:
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


class ContentUnreadable(Exception):
    """`reason` completes a sentence that begins with the file's name: `is not UTF-8 (byte 3)`.

    `hint` is a command that may help; empty where only another file does.
    """

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
