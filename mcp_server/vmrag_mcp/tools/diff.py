"""What differs between two places in the knowledge base, in the shapes of the tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from vmrag_link.engines.base import Engine
from vmrag_link.errors import TableMissing, plural
from vmrag_link.models import At, ChangeKind, Document, DocumentChange, Record
from vmrag_link.ops.commits.tables import TABLES, table_of
from vmrag_link.ops.history import diff, revparse
from vmrag_link.ops.history.diff import Diff
from vmrag_mcp.arguments import Given
from vmrag_mcp.registry import tool
from vmrag_mcp.session import Call
from vmrag_mcp.tools import outcome

TEXT = 2000
"""Characters of a text that is shown."""

ChangeType = Literal["added", "modified", "deleted"]

_TYPES: dict[ChangeKind, ChangeType] = {"added": "added", "modified": "modified", "removed": "deleted"}


class TextDiff(Record, frozen=True, omit_defaults=True):
    """A document's text on both sides, None where it is not there, and the values of each key of its metadata that differs."""

    metadata_changes: dict[str, dict[str, Any]]
    content_before: str | None = None
    content_after: str | None = None


class ChangedDocument(Record, frozen=True, omit_defaults=True):
    """`truncated`: a text in `diff` was cut to `TEXT` characters."""

    collection: str
    doc_id: str
    change_type: ChangeType
    title: str
    table: str = ""
    diff: TextDiff | None = None
    truncated: bool = False

    @property
    def characters(self) -> int:
        """How much text it shows."""
        return sum(len(text or "") for text in (self.diff.content_before, self.diff.content_after)) if self.diff else 0


class ChangedCollection(Record, frozen=True, omit_defaults=True):
    """A collection's own row; the documents of one that was renamed are no changes."""

    name: str
    change_type: Literal["added", "modified", "deleted", "renamed"]
    old_name: str = ""


class Changes(Record, frozen=True):
    """A diff whose renamed collections are left out of `diff.documents`."""

    diff: Diff
    collections: tuple[ChangedCollection, ...]


@tool("R")
def get_diff(
    call: Call,
    *,
    from_ref: Annotated[str, Given("branch, tag, hash, HEAD~n, WORKING, origin/x")] = "HEAD",
    to_ref: str = "WORKING",
    table: Annotated[str, Given(f"{', '.join(TABLES)}, or a collection")] = "",
    include_content: bool = False,
    limit: Annotated[int, Given(low=1, high=1000, clamped=True)] = 100,
    offset: Annotated[int, Given(low=0)] = 0,
) -> dict[str, Any]:
    """Compare two commits, or a commit with the uncommitted documents: which documents and collections differ, and how."""
    here, ws = call.standing(), call.ws
    old, new = (revparse.tool_at(ws, name, here) for name in (from_ref, to_ref))
    found = changes(ws.engine, old, new)
    kinds = {each.name: each.kind for at in (old, new) for each in ws.engine.collections(at)}
    if table:
        found = _of_table(found, table, kinds)
    rows = documents(
        ws.engine,
        found.diff,
        found.diff.documents[offset:][:limit],
        texts=limit if include_content else 0,
        characters=call.behaviour.page_chars,
        kinds=kinds,
    )
    total = found.diff.changes.total
    fields = {
        "from_ref": from_ref,
        "to_ref": to_ref,
        "from_commit": _commit(from_ref, old),
        "to_commit": _commit(to_ref, new),
        "summary": outcome.summary(found.diff.changes),
        "documents": msgspec.to_builtins(rows),
        "has_more": offset + len(rows) < total,
        "message": f"{plural(total, 'document')} of {to_ref} differ{'s' * (total == 1)} from {from_ref}.",
    }
    return fields | collections_field(found)


def changes(engine: Engine, old: At | None, new: At) -> Changes:
    """What turns the place `old` (None: nothing) into `new`."""
    found = diff.diff(engine, old, new)
    renamed = diff.renamed_collections(found)
    moved = {*renamed, *renamed.values()}
    collections = (
        ChangedCollection(each.key, "renamed", renamed[each.key])
        if each.key in renamed
        else ChangedCollection(each.key, _TYPES[each.kind])
        for each in found.collections
        if each.key not in renamed.values()
    )
    left = tuple(each for each in found.documents if each.key[0] not in moved)
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
    left = tuple(each for each in found.diff.documents if each.key[0] in names)
    rows = tuple(each for each in found.collections if each.name in names or each.old_name in names)
    return Changes(msgspec.structs.replace(found.diff, documents=left), rows)


def collections_field(found: Changes) -> dict[str, Any]:
    """The field with the collections that were themselves changed, if there is one."""
    return {"collections": msgspec.to_builtins(list(found.collections))} if found.collections else {}


def documents(
    engine: Engine,
    found: Diff,
    selected: Sequence[DocumentChange],
    *,
    texts: int = 0,
    characters: int | None = None,
    kinds: dict[str, str] | None = None,
) -> list[ChangedDocument]:
    """These of the changes, the first `texts` of them with their texts; as many as hold at most so many `characters`, but one.

    `kinds`: of the collections, where the table of each document is wanted.
    """
    rows: list[ChangedDocument] = []
    left = characters
    for number, change in enumerate(selected):
        row = _document(engine, found, change, with_text=number < texts)
        if left is not None:
            left -= row.characters
            if left < 0 and rows:
                break
        table = "" if kinds is None else table_of(kinds.get(row.collection, ""))
        rows.append(msgspec.structs.replace(row, table=table))
    return rows


def _document(engine: Engine, found: Diff, change: DocumentChange, *, with_text: bool) -> ChangedDocument:
    new = change.after
    header = new or change.before
    assert header is not None  # noqa: S101  a change has at least one side
    listed = ChangedDocument(header.collection, header.doc_id, _TYPES[change.kind], header.title)
    if not with_text:
        return listed
    old = diff.old_document(engine, found, change)
    sides = [None if each is None else each.content for each in (old, new)]
    text = TextDiff(_metadata_changes(old, new), *(None if each is None else each[:TEXT] for each in sides))
    return msgspec.structs.replace(listed, diff=text, truncated=any(each and len(each) > TEXT for each in sides))


def _metadata_changes(old: Document | None, new: Document | None) -> dict[str, dict[str, Any]]:
    before, after = _metadata(old), _metadata(new)
    return {
        name: {"before": before.get(name), "after": after.get(name)}
        for name in sorted(before.keys() | after.keys())
        if (name in before, before.get(name)) != (name in after, after.get(name))
    }


def _metadata(document: Document | None) -> dict[str, Any]:
    return msgspec.json.decode(document.metadata, type=dict[str, Any]) if document else {}


def _commit(name: str, at: object) -> str | None:
    return at if isinstance(at, str) and name != revparse.WORKING else None
