"""Parts that results of several topics have in common."""

from __future__ import annotations

from vmrag_link.models import ChangeCounts, Record


class SyncSummary(Record, frozen=True):
    """Numbers of documents that queries find differently now."""

    documents_added: int
    documents_modified: int
    documents_deleted: int
    total_changes: int

    @classmethod
    def of(cls, changes: ChangeCounts) -> SyncSummary:
        return cls(changes.added, changes.modified, changes.removed, changes.total)
