"""The differences between two revisions, or between a revision and the uncommitted documents.

Other tools also list changed documents as these entries.
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
from vmrag_mcp.call import Call
from vmrag_mcp.registry import tool
from vmrag_mcp.results import DerivedRecord, ToolResult

ChangeType = Literal["added", "modified", "deleted"]


class Summary(DerivedRecord, frozen=True, rename={"removed": "deleted"}):
    """Numbers of documents (`ChangeCounts`)."""

    added: int
    modified: int
    removed: int
    total: int


class TextDiff(Record, frozen=True, omit_defaults=True):
    """The text of a document on both sides, and both values of each changed key of the metadata."""

    metadata_changes: dict[str, dict[str, Any]]
    content_before: Annotated[str | None, Meta(description="change_type is modified or deleted")] = None
    content_after: Annotated[str | None, Meta(description="change_type is modified or added")] = None


class ChangedCollection(Record, frozen=True, omit_defaults=True):
    """A change of a collection itself. Documents of a renamed collection are not changes."""

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
        """Number of characters as JSON."""
        return len(msgspec.json.encode(self).decode())

    @property
    def in_commit(self) -> DocumentInCommit:
        return DocumentInCommit(
            collection=self.collection,
            doc_id=self.doc_id,
            change_type=self.change_type,
            title=self.title,
            diff=self.diff,
            truncated=self.truncated,
        )


class GetDiffResult(ToolResult, frozen=True):
    """The documents that differ.

    `from_commit` and `to_commit` are null only for WORKING. `summary` counts all documents that
    differ, not only the page.
    """

    from_ref: str
    to_ref: str
    from_commit: str | None
    to_commit: str | None
    summary: Summary
    documents: list[DiffEntry]
    has_more: bool
    collections: Collections = UNSET


MAX_TEXT_CHARACTERS = 2000
"""Maximum number of characters of a shown text."""

_CHANGE_TYPES: dict[ChangeKind, ChangeType] = {"added": "added", "modified": "modified", "removed": "deleted"}


class Changes(Record, frozen=True):
    """A diff whose `diff.documents` leaves out renamed collections."""

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
    ws = call.ws
    origin = call.find_origin()
    old = revparse.resolve_tool_at(ws, from_ref, origin)
    new = revparse.resolve_tool_at(ws, to_ref, origin)
    changes = find_changes(ws.engine, old, new)
    kinds = {collection.name: collection.kind for at in (old, new) for collection in ws.engine.list_collections(at)}
    if table:
        changes = _select_table(call, changes, table, kinds)
    entries = build_entries(
        ws.engine,
        changes.diff,
        changes.diff.documents[offset:][:limit],
        texts=limit if include_content else 0,
        characters=call.behaviour.page_chars,
        kinds=kinds,
    )
    total = changes.diff.changes.total
    return GetDiffResult(
        from_ref=from_ref,
        to_ref=to_ref,
        from_commit=_commit_at(from_ref, old),
        to_commit=_commit_at(to_ref, new),
        summary=Summary.from_report(changes.diff.changes),
        documents=entries,
        has_more=offset + len(entries) < total,
        collections=list(changes.collections) or UNSET,
        message=f"{plural(total, 'document')} of {to_ref} differ{'s' * (total == 1)} from {from_ref}.",
    )


def find_changes(engine: Engine, old: At | None, new: At) -> Changes:
    """Return the changes from `old` to `new`. Without `old`, everything is new."""
    difference = diff.diff_documents(engine, old, new)
    renamed = diff.renamed_collections(difference)
    renamed_names = {*renamed, *renamed.values()}
    collections = []
    for collection in difference.collections:
        if collection.key in renamed:
            collections.append(ChangedCollection(collection.key, "renamed", renamed[collection.key]))
        elif collection.key not in renamed_names:
            collections.append(ChangedCollection(collection.key, _CHANGE_TYPES[collection.kind]))
    documents = tuple(document for document in difference.documents if document.key[0] not in renamed_names)
    return Changes(msgspec.structs.replace(difference, documents=documents), tuple(collections))


def _select_table(call: Call, changes: Changes, table: str, kinds: dict[str, str]) -> Changes:
    """Return the changes of one of `TABLES` or of one collection. Raises `TableMissing`."""
    details = {"table": table, "tables": list(TABLES), "collections": sorted(kinds)}
    if table not in kinds and stores.is_made_of_files(call.ws, table):
        raise TableMissing(
            f"collection {table!r} contains files of this repository, which git compares.",
            hint="run 'vmrag diff' to show files and stored documents",
            **details,
        )
    if table not in kinds and table not in TABLES:
        raise TableMissing(
            f"no such table or collection: {table[:80]!r}.",
            hint=f"use a table ({', '.join(TABLES)}) or a collection ({', '.join(sorted(kinds)) or 'none'})",
            **details,
        )
    names = {table} if table in kinds else {name for name, kind in kinds.items() if table_of(kind) == table}
    documents = tuple(document for document in changes.diff.documents if document.key[0] in names)
    collections = tuple(
        collection for collection in changes.collections if collection.name in names or collection.old_name in names
    )
    return Changes(msgspec.structs.replace(changes.diff, documents=documents), collections)


def build_entries(
    engine: Engine,
    difference: Diff,
    selected: Sequence[HeaderChange],
    *,
    texts: int = 0,
    characters: int | None = None,
    kinds: dict[str, str] | None = None,
) -> list[DiffEntry]:
    """Return the selected changes as entries, the first `texts` of them with their texts.

    The list has at least one entry, and at most `characters` characters. With the `kinds` of the
    collections, the entries have the table of each document.
    """
    entries: list[DiffEntry] = []
    remaining_characters = characters
    sides = diff.read_sides(diff.stored_texts(engine, difference.old, difference.new), selected[:texts])
    for index, change in enumerate(selected):
        entry = _build_text_entry(*next(sides)) if index < texts else _build_entry(change)
        if remaining_characters is not None:
            remaining_characters -= entry.weight
            if remaining_characters < 0 and entries:
                break
        table = "" if kinds is None else table_of(kinds.get(entry.collection, ""))
        entries.append(msgspec.structs.replace(entry, table=table))
    return entries


def _build_entry(change: HeaderChange) -> DiffEntry:
    header = change.header
    return DiffEntry(header.collection, header.doc_id, _CHANGE_TYPES[change.kind], header.title, table="")


def _build_text_entry(change: HeaderChange, old: Document | None, new: Document | None) -> DiffEntry:
    sides = [None if side is None else side.content for side in (old, new)]
    text = TextDiff(
        _compare_metadata(old, new), *(None if side is None else side[:MAX_TEXT_CHARACTERS] for side in sides)
    )
    cut = any(side and len(side) > MAX_TEXT_CHARACTERS for side in sides)
    return msgspec.structs.replace(_build_entry(change), diff=text, truncated=cut or UNSET)


def _compare_metadata(old: Document | None, new: Document | None) -> dict[str, dict[str, Any]]:
    before, after = _parse_metadata(old), _parse_metadata(new)
    return {
        name: {"before": before.get(name), "after": after.get(name)}
        for name in sorted(before.keys() | after.keys())
        if (name in before, before.get(name)) != (name in after, after.get(name))
    }


def _parse_metadata(document: Document | None) -> dict[str, Any]:
    return parse_metadata(document) if document else {}


def _commit_at(name: str, at: object) -> str | None:
    return at if isinstance(at, str) and name != revparse.WORKING else None
