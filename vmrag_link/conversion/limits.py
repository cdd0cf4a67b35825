"""How much one file may cost."""

from __future__ import annotations

from vmrag_link.models import Record

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
