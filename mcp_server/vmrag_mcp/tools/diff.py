"""What differs between two places in the knowledge base, and the rows of changed documents that
other tools list, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from vmrag_link.engines.base import Engine
from vmrag_link.errors import TableMissing, plural
from vmrag_link.models import At, ChangeKind, Document, HeaderChange, Record, parse_metadata
from vmrag_link.ops.stores import stores
from vmrag_link.workspace.documents.collections import TABLES, table_of
from vmrag_link.workspace.history import diff, revparse
from vmrag_link.workspace.history.diff import Diff
from vmrag_mcp.arguments import DOCUMENTS, Given, Offset
from vmrag_mcp.registry import tool
from vmrag_mcp.results import DerivedRecord, ToolResult
from vmrag_mcp.session import Call

ChangeType = Literal["added", "modified", "deleted"]


class Summary(DerivedRecord, frozen=True, rename={"removed": "deleted"}):
    """Numbers of documents (`ChangeCounts`)."""

    added: int
    modified: int
    removed: int
    total: int


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


Truncated = Annotated[bool | UnsetType, Meta(description="a text in diff was cut to 2000 characters")]
Collections = Annotated[list[ChangedCollection] | UnsetType, Meta(description="a collection itself was changed")]


class ChangeEntry(DerivedRecord, frozen=True):
    """A document that was changed."""

    collection: str
    doc_id: str
    change_type: ChangeType
    title: str


class DocumentInCommit(ChangeEntry, frozen=True):
    """A document that a commit has changed."""

    diff: Annotated[TextDiff | UnsetType, Meta(description="include_diff and among the first diff_limit documents")] = (
        UNSET
    )
    truncated: Truncated = UNSET


class DiffEntry(ChangeEntry, frozen=True):
    """A document that differs."""

    table: str
    diff: Annotated[TextDiff | UnsetType, Meta(description="include_content")] = UNSET
    truncated: Truncated = UNSET

    @property
    def weight(self) -> int:
        """Characters of its JSON."""
        return len(msgspec.json.encode(self).decode())

    @property
    def in_commit(self) -> DocumentInCommit:
        return DocumentInCommit(self.collection, self.doc_id, self.change_type, self.title, self.diff, self.truncated)


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


TEXT = 2000
"""Characters of a text that is shown."""

_TYPES: dict[ChangeKind, ChangeType] = {"added": "added", "modified": "modified", "removed": "deleted"}


class Changes(Record, frozen=True):
    """A diff whose renamed collections are left out of `diff.documents`."""

    diff: Diff
    collections: tuple[ChangedCollection, ...]

    @property
    def is_empty(self) -> bool:
        return not self.diff.documents and not self.collections


@tool("R", title="Compare commits")
def get_diff(
    call: Call,
    *,
    from_ref: Annotated[str, Given("branch, tag, hash, HEAD~1 or WORKING")] = "HEAD",
    to_ref: Annotated[str, Given("second side, like from_ref")] = "WORKING",
    table: Annotated[str, Given(f"{', '.join(TABLES)}, or a collection")] = "",
    include_content: Annotated[bool, Given("also show the texts")] = False,
    limit: Annotated[int, Given(DOCUMENTS, low=1, high=1000, clamped=True)] = 100,
    offset: Offset = 0,
) -> GetDiffResult:
    """Compare two commits, or a commit with the uncommitted documents: list the documents and
    collections that differ.
    """
    here, ws = call.find_origin(), call.ws
    old, new = (revparse.resolve_tool_at(ws, name, here) for name in (from_ref, to_ref))
    found = find_changes(ws.engine, old, new)
    kinds = {collection.name: collection.kind for at in (old, new) for collection in ws.engine.list_collections(at)}
    if table:
        if table not in kinds and stores.is_made_of_files(ws, table):
            raise TableMissing(
                f"The collection {table!r} is made of files of this repository, and git compares these.",
                hint="vmrag diff   (shows both: files, and documents that are stored)",
                table=table,
                tables=list(TABLES),
                collections=sorted(kinds),
            )
        found = _of_table(found, table, kinds)
    rows = build_entries(
        ws.engine,
        found.diff,
        found.diff.documents[offset:][:limit],
        texts=limit if include_content else 0,
        characters=call.behaviour.page_chars,
        kinds=kinds,
    )
    total = found.diff.changes.total
    return GetDiffResult(
        from_ref=from_ref,
        to_ref=to_ref,
        from_commit=_commit(from_ref, old),
        to_commit=_commit(to_ref, new),
        summary=Summary.from_report(found.diff.changes),
        documents=rows,
        has_more=offset + len(rows) < total,
        collections=list(found.collections) or UNSET,
        message=f"{plural(total, 'document')} of {to_ref} differ{'s' * (total == 1)} from {from_ref}.",
    )


def find_changes(engine: Engine, old: At | None, new: At) -> Changes:
    """What turns the place `old` (None: nothing) into `new`."""
    found = diff.diff_documents(engine, old, new)
    renamed = diff.renamed_collections(found)
    moved = {*renamed, *renamed.values()}
    collections = (
        ChangedCollection(collection.key, "renamed", renamed[collection.key])
        if collection.key in renamed
        else ChangedCollection(collection.key, _TYPES[collection.kind])
        for collection in found.collections
        if collection.key not in renamed.values()
    )
    left = tuple(document for document in found.documents if document.key[0] not in moved)
    return Changes(msgspec.structs.replace(found, documents=left), tuple(collections))


def _of_table(found: Changes, table: str, kinds: dict[str, str]) -> Changes:
    """The part about one of `TABLES`, or about one collection. Raises `TableMissing`."""
    names = {table} if table in kinds else {name for name, kind in kinds.items() if table_of(kind) == table}
    if table not in kinds and table not in TABLES:
        raise TableMissing(
            f"There is no table and no collection {table[:80]!r}.",
            hint=f"Tables: {', '.join(TABLES)}; collections: {', '.join(sorted(kinds)) or 'none'}",
            table=table,
            tables=list(TABLES),
            collections=sorted(kinds),
        )
    left = tuple(document for document in found.diff.documents if document.key[0] in names)
    rows = tuple(
        collection for collection in found.collections if collection.name in names or collection.old_name in names
    )
    return Changes(msgspec.structs.replace(found.diff, documents=left), rows)


def build_entries(
    engine: Engine,
    found: Diff,
    selected: Sequence[HeaderChange],
    *,
    texts: int = 0,
    characters: int | None = None,
    kinds: dict[str, str] | None = None,
) -> list[DiffEntry]:
    """The selected changes as rows, the first `texts` of them with their texts.

    At least one row, and no more than `characters` allow.

    `kinds`: of the collections, where the table of each document is wanted.
    """
    rows: list[DiffEntry] = []
    left = characters
    read = diff.read_sides(diff.stored_texts(engine, found.old, found.new), selected[:texts])
    for number, change in enumerate(selected):
        row = _with_text(*next(read)) if number < texts else _listed(change)
        if left is not None:
            left -= row.weight
            if left < 0 and rows:
                break
        table = "" if kinds is None else table_of(kinds.get(row.collection, ""))
        rows.append(msgspec.structs.replace(row, table=table))
    return rows


def _listed(change: HeaderChange) -> DiffEntry:
    header = change.header
    return DiffEntry(header.collection, header.doc_id, _TYPES[change.kind], header.title, table="")


def _with_text(change: HeaderChange, old: Document | None, new: Document | None) -> DiffEntry:
    sides = [None if each is None else each.content for each in (old, new)]
    text = TextDiff(_metadata_changes(old, new), *(None if side is None else side[:TEXT] for side in sides))
    cut = any(side and len(side) > TEXT for side in sides)
    return msgspec.structs.replace(_listed(change), diff=text, truncated=cut or UNSET)


def _metadata_changes(old: Document | None, new: Document | None) -> dict[str, dict[str, Any]]:
    before, after = _metadata(old), _metadata(new)
    return {
        name: {"before": before.get(name), "after": after.get(name)}
        for name in sorted(before.keys() | after.keys())
        if (name in before, before.get(name)) != (name in after, after.get(name))
    }


def _metadata(document: Document | None) -> dict[str, Any]:
    return parse_metadata(document) if document else {}


def _commit(name: str, at: object) -> str | None:
    return at if isinstance(at, str) and name != revparse.WORKING else None
