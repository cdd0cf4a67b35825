"""The result of get_diff, and the rows of changed documents that other tools list, too."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from vmrag_link.models import Record
from vmrag_link.ops.commits.diff import ChangedCollection, ChangedDocument, ChangeType, Summary, TextDiff
from vmrag_mcp.results.base import ToolResult

Truncated = Annotated[bool | UnsetType, Meta(description="a text in diff was cut to 2000 characters")]
Collections = Annotated[list[ChangedCollection] | UnsetType, Meta(description="a collection itself was changed")]


class ChangeEntry(Record, frozen=True):
    """A document that was changed."""

    collection: str
    doc_id: str
    change_type: ChangeType
    title: str

    @classmethod
    def of(cls, row: ChangedDocument) -> ChangeEntry:
        return cls(row.collection, row.doc_id, row.change_type, row.title)


class CommitEntry(Record, frozen=True):
    """A document that a commit has changed."""

    collection: str
    doc_id: str
    change_type: ChangeType
    title: str
    diff: Annotated[TextDiff | UnsetType, Meta(description="include_diff and among the first diff_limit documents")] = (
        UNSET
    )
    truncated: Truncated = UNSET

    @classmethod
    def of(cls, row: ChangedDocument) -> CommitEntry:
        return cls(row.collection, row.doc_id, row.change_type, row.title, row.diff or UNSET, row.truncated or UNSET)


class DiffEntry(Record, frozen=True):
    """A document that differs."""

    collection: str
    doc_id: str
    change_type: ChangeType
    title: str
    table: str
    diff: Annotated[TextDiff | UnsetType, Meta(description="include_content")] = UNSET
    truncated: Truncated = UNSET

    @classmethod
    def of(cls, row: ChangedDocument) -> DiffEntry:
        return cls(
            row.collection, row.doc_id, row.change_type, row.title, row.table, row.diff or UNSET, row.truncated or UNSET
        )


class GetDiffResult(ToolResult, frozen=True):
    """`from_commit`, `to_commit`: null for WORKING alone.

    `summary` counts all documents that differ, not the page.
    """

    from_ref: str
    to_ref: str
    from_commit: str | None
    to_commit: str | None
    summary: Summary
    documents: list[DiffEntry]
    has_more: bool
    collections: Collections = UNSET
