"""`vmrag diff`: what differs between two places, word by word, for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from vmrag_link import worddiff
from vmrag_link.documents import origin
from vmrag_link.models import (
    At,
    ChangeCounts,
    ChangeKind,
    Collection,
    Document,
    DocumentChange,
    Record,
    canonical_json,
)
from vmrag_link.ops.follow.follow_pin import move_and_warn
from vmrag_link.ops.history.diff import Diff, diff, old_document
from vmrag_link.ops.history.revparse import WORKING, resolve_at
from vmrag_link.worddiff import Piece
from vmrag_link.workspace import Workspace

Detail = Literal["names", "stat", "text"]

DOCUMENT_FIELDS = ("title", "metadata", "source", "file_type")
COLLECTION_FIELDS = tuple(name for name in Collection.__struct_fields__ if name != "name")


class Words(Record, frozen=True):
    """Numbers of words, separated by blanks."""

    inserted: int = 0
    deleted: int = 0


class FieldDiff(Record, frozen=True):
    """Texts; a value that is no text in the knowledge base (a number, the chunking) as JSON."""

    name: str
    before: str
    after: str


class DocumentDiff(Record, frozen=True):
    """`words` None: not counted. `fields` and `text` of modified documents, if asked for.

    Long equal stretches are cut out of `text`.
    """

    kind: ChangeKind
    collection: str
    doc_id: str
    title: str
    words: Words | None = None
    fields: tuple[FieldDiff, ...] = ()
    text: tuple[Piece, ...] = ()


class CollectionDiff(Record, frozen=True):
    """A collection's settings; `fields` of modified ones."""

    kind: ChangeKind
    name: str
    fields: tuple[FieldDiff, ...]


class DiffReport(Record, frozen=True):
    """`old`, `new`: revisions, or `WORKING`. `changes`, `words`: sums over the documents."""

    old: str
    new: str
    changes: ChangeCounts
    words: Words | None
    documents: list[DocumentDiff]
    collections: list[CollectionDiff]


def word_diff(
    ws: Workspace, old: str | None = None, new: str | None = None, *, only: str | None = None, detail: Detail = "text"
) -> DiffReport:
    """What turns `old` into `new`, as `resolve_at` takes them.

    By default: the revision here, and the uncommitted documents.

    `only`: `COLLECTION` or `COLLECTION/DOC`. `detail`: the names alone; with numbers of words; with
    the changed texts.
    """
    move_and_warn(ws)
    before = ws.revision_here() if old is None else resolve_at(ws, old)
    collection, _, doc_id = (only or "").partition("/")
    found = diff(ws.engine, before, resolve_at(ws, WORKING if new is None else new)).only(collection, doc_id)
    documents = [_document(ws, found, each, detail) for each in found.documents]
    collections = [
        CollectionDiff(each.kind, each.key, _fields(each.before, each.after, COLLECTION_FIELDS))
        for each in found.collections
    ]
    words = None if detail == "names" else _sum(each.words for each in documents if each.words)
    return DiffReport(_name(before), _name(found.new), found.changes, words, documents, collections)


def _sum(counts: Iterable[Words]) -> Words:
    counted = list(counts)
    return Words(sum(each.inserted for each in counted), sum(each.deleted for each in counted))


def _document(ws: Workspace, found: Diff, change: DocumentChange, detail: Detail) -> DocumentDiff:
    row = change.after or change.before
    assert row is not None  # noqa: S101  a change has at least one side
    named = DocumentDiff(change.kind, row.collection, row.doc_id, row.title)
    if detail == "names":
        return named
    same_text = change.before and change.after and change.before.content_hash == change.after.content_hash
    # The new documents came with the diff; an old one is read only if something of it is asked for.
    before = None if same_text and detail == "stat" else old_document(ws.engine, found, change)
    old, new = before.content if before else "", change.after.content if change.after else ""
    pieces = () if same_text else worddiff.difference(old, new)
    words = Words(worddiff.words(pieces, "insert"), worddiff.words(pieces, "delete"))
    counted = msgspec.structs.replace(named, words=words)
    if detail == "stat" or change.kind != "modified":
        return counted
    fields = _fields(before, change.after, DOCUMENT_FIELDS)
    return msgspec.structs.replace(counted, fields=fields, text=worddiff.cut(pieces))


def _fields(before: Record | None, after: Record | None, names: Sequence[str]) -> tuple[FieldDiff, ...]:
    if before is None or after is None:
        return ()
    found = (FieldDiff(name, _text(before, name), _text(after, name)) for name in names)
    return tuple(each for each in found if each.before != each.after)


def _text(row: Record, name: str) -> str:
    """A field as it is shown; of which bytes a library made a document tells a person nothing."""
    if isinstance(row, Document) and name == "metadata":
        return canonical_json(origin.shown_metadata(row))
    value = getattr(row, name)
    return value if isinstance(value, str) else canonical_json(value)


def _name(at: At) -> str:
    return at if isinstance(at, str) else WORKING
