"""What differs between two places in the knowledge base, as tools show it: documents, their texts, collections, and renamed ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from vmrag_link.engines.base import Engine
from vmrag_link.errors import KnowledgeMoved, TableMissing
from vmrag_link.models import (
    At,
    ChangeCounts,
    ChangeKind,
    Collection,
    CollectionChange,
    Difference,
    Document,
    DocumentChange,
    Record,
)
from vmrag_link.ops.commits.tables import TABLES, table_of

TEXT = 2000
"""Characters of a text that is shown."""

ChangeType = Literal["added", "modified", "deleted"]

_TYPES: dict[ChangeKind, ChangeType] = {"added": "added", "modified": "modified", "removed": "deleted"}


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
    """A document's text on both sides, None where it is not there, and the values of each key of its metadata that differs."""

    metadata_changes: dict[str, dict[str, Any]]
    content_before: Annotated[str | None, Meta(description="change_type is modified or deleted")] = None
    content_after: Annotated[str | None, Meta(description="change_type is modified or added")] = None


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
    old_name: Annotated[str, Meta(description="change_type is renamed")] = ""


class Changed(Record, frozen=True):
    """What turns the place `old` (None: nothing) into another; documents sorted by (collection, doc_id). `kinds` of both's collections."""

    old: At | None
    documents: tuple[DocumentChange, ...]
    collections: tuple[ChangedCollection, ...]
    kinds: dict[str, str]

    @property
    def summary(self) -> Summary:
        return Summary.of(Difference((), self.documents).counts())

    @property
    def empty(self) -> bool:
        return not self.documents and not self.collections


def changed(engine: Engine, old: At | None, new: At, *, table: str | None = None) -> Changed:
    """`table`: one of `TABLES`, or a collection of either place. Raises `TableMissing`."""
    found = engine.diff(old, new) if old is not None else _all(engine, new)
    renamed = _renamed(found)
    gone = {*renamed, *renamed.values()}
    documents = tuple(each for each in found.documents if each.key[0] not in gone)
    collections = tuple(
        ChangedCollection(each.key, "renamed", renamed[each.key])
        if each.key in renamed
        else ChangedCollection(each.key, _TYPES[each.kind])
        for each in found.collections
        if each.key not in renamed.values()
    )
    kinds = {each.name: each.kind for at in (old, new) if at is not None for each in engine.collections(at)}
    if table is not None:
        names = _named(table, kinds)
        documents = tuple(each for each in documents if each.key[0] in names)
        collections = tuple(each for each in collections if each.name in names or each.old_name in names)
    return Changed(old, documents, collections, kinds)


def _all(engine: Engine, at: At) -> Difference:
    """Everything is new."""
    collections = tuple(CollectionChange("added", None, each) for each in engine.collections(at))
    return Difference(collections, tuple(DocumentChange("added", None, each) for each in engine.documents(at)))


def _named(table: str, kinds: dict[str, str]) -> set[str]:
    """The collections of a table, or the one of that name."""
    if table in kinds:
        return {table}
    if table not in TABLES:
        raise TableMissing(
            f"There is no table and no collection {table[:80]!r}.",
            hint=f"Tables: {', '.join(TABLES)}; collections: {', '.join(sorted(kinds)) or 'none'}",
            table=table,
            tables=list(TABLES),
            collections=sorted(kinds),
        )
    return {name for name, kind in kinds.items() if table_of(kind) == table}


# -- renamed collections ------------------------------------------------------------------------------------------------


def _renamed(found: Difference) -> dict[str, str]:
    """Old names by new ones: collections that came with what another one took along, made at the same moment."""
    gone = {each.before for each in found.collections if each.before and not each.after}
    come = [each.after for each in found.collections if each.after and not each.before]
    if not gone or not come:
        return {}
    renamed: dict[str, str] = {}
    for new in come:
        for old in sorted(gone, key=lambda each: each.name):
            if old.created_at == new.created_at and old.created_at and _held(found, old) == _held(found, new):
                renamed[new.name] = old.name
                gone.remove(old)
                break
    return renamed


def _held(found: Difference, collection: Collection) -> set[tuple[str, ...]]:
    headers = (
        each.after.header if each.after else each.before for each in found.documents if each.key[0] == collection.name
    )
    return {(each.doc_id, each.title, each.content_hash, each.metadata) for each in headers if each}


# -- showing ------------------------------------------------------------------------------------------------------------


def shown(
    engine: Engine,
    found: Changed,
    changes: Sequence[DocumentChange],
    *,
    texts: int = 0,
    characters: int | None = None,
    tables: bool = False,
) -> list[ChangedDocument]:
    """These of the changes, the first `texts` of them with their texts; no more of them than hold so many `characters`, but one.

    `tables`: with the table of each.
    """
    rows: list[ChangedDocument] = []
    left = characters
    for number, change in enumerate(changes):
        row = _row(engine, found, change, text=number < texts)
        if left is not None:
            left -= row.characters
            if left < 0 and rows:
                break
        table = table_of(found.kinds.get(row.collection, "")) if tables else ""
        rows.append(msgspec.structs.replace(row, table=table))
    return rows


def _row(engine: Engine, found: Changed, change: DocumentChange, *, text: bool) -> ChangedDocument:
    new, before = change.after, change.before
    row = new or before
    assert row is not None  # noqa: S101  a change has at least one side
    listed = ChangedDocument(row.collection, row.doc_id, _TYPES[change.kind], row.title)
    if not text:
        return listed
    old = _old(engine, found.old, change.key) if before and found.old is not None else None
    sides = [None if each is None else each.content for each in (old, new)]
    diff = TextDiff(_differing(old, new), *(None if each is None else each[:TEXT] for each in sides))
    return msgspec.structs.replace(listed, diff=diff, truncated=any(each and len(each) > TEXT for each in sides))


def _old(engine: Engine, at: At, key: tuple[str, str]) -> Document:
    found = engine.document(at, *key)
    if found is None:
        raise KnowledgeMoved(f"{'/'.join(key)} was removed while it was compared.", hint="Ask again.", doc_id=key[1])
    return found


def _differing(old: Document | None, new: Document | None) -> dict[str, dict[str, Any]]:
    before, after = _metadata(old), _metadata(new)
    names: Iterable[str] = sorted(before.keys() | after.keys())
    return {
        name: {"before": before.get(name), "after": after.get(name)}
        for name in names
        if (name in before, before.get(name)) != (name in after, after.get(name))
    }


def _metadata(document: Document | None) -> dict[str, Any]:
    return msgspec.json.decode(document.metadata, type=dict[str, Any]) if document else {}
