"""What a sync did to chunks, in numbers."""

from __future__ import annotations

from vmrag_link.models import Record


class ChunkCounts(Record, frozen=True):
    """Put into the index, taken out of it; of the texts put in: embedded now, and found in the
    cache.
    """

    added: int = 0
    removed: int = 0
    embedded: int = 0
    cached: int = 0
