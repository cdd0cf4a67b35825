"""The result of get_diff, and the rows of changed documents that other tools list, too."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from vmrag_link.models import ChangeCounts, Record
from vmrag_mcp.results.base import ToolResult

ChangeType = Literal["added", "modified", "deleted"]


class Summary(Record, frozen=True):
    """Numbers of documents."""

    added: int
    modified: int
    deleted: int
    total: int

    @classmethod
    def of(cls, changes: ChangeCounts) -> Summary:
        return cls(changes.added, changes.modified, changes.removed, changes.total)


class TextDiff(Record, frozen=True, omit_defaults=True):
    """A document's text on both sides, and both values of each key of metadata that differs."""

    metadata_changes: dict[str, dict[str, Any]]
    content_before: Annotated[str | None, Meta(description="change_type is modified or deleted")] = None
    content_after: Annotated[str | None, Meta(description="change_type is modified or added")] = None


class ChangedCollection(Record, frozen=True, omit_defaults=True):
    """A collection's own row; the documents of one that was renamed are no changes."""

    name: str
    change_type: Literal["added", "modified", "deleted", "renamed"]
    old_name: Annotated[str, Meta(description="change_type is renamed")] = ""


class ChangedDocument(Record, frozen=True):
    """What the rows below are made of. `truncated`: a text in `diff` was cut."""

    collection: str
    doc_id: str
    change_type: ChangeType
    title: str
    table: str = ""
    diff: TextDiff | None = None
    truncated: bool = False

    @property
    def weight(self) -> int:
        """Characters of its JSON."""
        return len(msgspec.json.encode(self).decode())


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


class DocumentInCommit(Record, frozen=True):
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
    def of(cls, row: ChangedDocument) -> DocumentInCommit:
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
